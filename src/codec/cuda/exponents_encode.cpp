#include "codec/cuda/exponents_encode.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/guard.h"
#include "codec/cuda/device_parts.h"
#include "codec/cuda/workspace.h"
#include "kernels/cuda/exponents.h"

namespace deltawire::cuda {
namespace {

using exponents::BlockPlan;
using exponents::kBlockElements;

constexpr uint64_t kFetchedBytes = uint64_t{32} << 20;  // of pinned memory, at a time

uint64_t num_blocks(const DeviceWhole& array) {
  return (array.num_elements + kBlockElements - 1) / kBlockElements;
}
uint32_t elements_of(const DeviceWhole& array, uint64_t block) {
  const uint64_t begin = block * kBlockElements;
  return uint32_t(std::min<uint64_t>(kBlockElements, array.num_elements - begin));
}
ExponentsBlock block_of(const DeviceWhole& array, uint64_t block) {
  ExponentsBlock made{};
  made.data = const_cast<void*>(array.data);
  made.first = block * kBlockElements;
  made.num_elements = elements_of(array, block);
  made.block = uint32_t(block);
  return made;
}

// Blocks of arrays of one form and kind.
class ExponentsPlanner {
 public:
  ExponentsPlanner(KeyForm form, NewKind kind, const DeviceOptions& options, Stream stream)
      : form_(form), kind_(kind), options_(options), stream_(stream) {}

  void add(const DeviceWhole& array, BlockPlans* plans) {
    for (uint64_t i = 0; i < num_blocks(array); ++i) {
      blocks_.push_back(block_of(array, i));
      out_.push_back(&(*plans)[i]);
    }
  }

  Status run() {
    const size_t room =
        (options_.scratch_bytes - kCarveAlign) / (sizeof(ExponentsBlock) + sizeof(ExponentsPlan));
    const size_t most = std::max<size_t>(1, std::min<size_t>(room, size_t{1} << 20));
    for (size_t begin = 0; begin < blocks_.size(); begin += most) {
      DW_RETURN_IF_ERROR(run_some(begin, std::min(most, blocks_.size() - begin)));
    }
    return {};
  }

 private:
  Status run_some(size_t begin, size_t count) {
    const size_t table_bytes = carved_bytes(count * sizeof(ExponentsBlock));
    DW_ASSIGN_OR_RETURN(
        uint8_t* const memory,
        options_.workspace->get(Workspace::kSlots, table_bytes + count * sizeof(ExponentsPlan)));
    auto* const table = reinterpret_cast<ExponentsBlock*>(memory);
    auto* const found = reinterpret_cast<ExponentsPlan*>(memory + table_bytes);
    DW_RETURN_IF_ERROR(copy(table, &blocks_[begin], count * sizeof(ExponentsBlock), stream_));
    DW_RETURN_IF_ERROR(plan_exponents(form_, kind_, table, uint32_t(count), found, stream_));
    std::vector<ExponentsPlan> plans(count);
    DW_RETURN_IF_ERROR(copy(plans.data(), found, count * sizeof(ExponentsPlan), stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    for (size_t i = 0; i < count; ++i) {
      const size_t n = blocks_[begin + i].num_elements;
      const size_t coded = 1 + key_planes::bytes(form_, n) + plans[i].num_far;
      *out_[begin + i] = {uint32_t(std::min(n * key_planes::width(form_), coded)),
                          uint8_t(plans[i].base)};
    }
    return {};
  }

  const KeyForm form_;
  const NewKind kind_;
  const DeviceOptions& options_;
  const Stream stream_;
  std::vector<ExponentsBlock> blocks_;
  std::vector<BlockPlan*> out_;
};

class ExponentsCoder {
 public:
  ExponentsCoder(const DeviceWhole& array, KeyForm form, const DeviceOptions& options,
                 Stream stream)
      : array_(array), form_(form), options_(options), stream_(stream) {}

  // As many as the scratch takes.
  Status run(size_t first, std::span<const BlockPlan> plans, MutableBytes out) {
    const uint64_t room = std::min<uint64_t>(options_.scratch_bytes, kFetchedBytes) - kCarveAlign;
    while (!plans.empty()) {
      size_t count = 0;
      uint64_t size = 0;
      do {
        size += plans[count++].size_bytes;
      } while (count < plans.size() &&
               (count + 1) * sizeof(ExponentsBlock) + size + plans[count].size_bytes <= room);
      if (size > out.size()) return internal_error("blocks of another size");
      DW_RETURN_IF_ERROR(run_some(first, plans.first(count), out.first(size_t(size))));
      first += count;
      plans = plans.subspan(count);
      out = out.subspan(size_t(size));
    }
    return {};
  }

 private:
  Status run_some(size_t first, std::span<const BlockPlan> plans, MutableBytes out) {
    Workspace& workspace = *options_.workspace;
    const size_t table_bytes = carved_bytes(plans.size() * sizeof(ExponentsBlock));
    DW_ASSIGN_OR_RETURN(uint8_t* const memory,
                        workspace.get(Workspace::kSlots, table_bytes + out.size()));
    DW_ASSIGN_OR_RETURN(uint8_t* const status_at,
                        workspace.get(Workspace::kStatus, sizeof(PatchStatus)));
    auto* const table = reinterpret_cast<ExponentsBlock*>(memory);
    auto* const status = reinterpret_cast<PatchStatus*>(status_at);
    uint8_t* const coded = memory + table_bytes;
    std::vector<ExponentsBlock> blocks;
    for (uint8_t* at = coded; const BlockPlan& plan : plans) {
      ExponentsBlock block = block_of(array_, first + blocks.size());
      block.coded = at;
      block.coded_bytes = plan.size_bytes;
      block.base = plan.base;
      blocks.push_back(block);
      at += plan.size_bytes;
    }
    DW_RETURN_IF_ERROR(copy(table, blocks.data(), blocks.size() * sizeof(ExponentsBlock), stream_));
    DW_RETURN_IF_ERROR(fill_zero(status, sizeof(PatchStatus), stream_));
    DW_RETURN_IF_ERROR(
        write_exponents(form_, array_.kind, table, uint32_t(blocks.size()), status, stream_));
    PatchStatus found{};
    DW_RETURN_IF_ERROR(copy(out.data(), coded, out.size(), stream_));
    DW_RETURN_IF_ERROR(copy(&found, status, sizeof found, stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    return found.code == 0 ? Status() : io_error(describe(PatchError(found.code)));
  }

  const DeviceWhole& array_;
  const KeyForm form_;
  const DeviceOptions& options_;
  const Stream stream_;
};

// With a workspace, and what others hold of the scratch taken off.
template <class Body>
auto with_workspace(const DeviceOptions& given, Stream stream, const Body& body)
    -> decltype(body(given)) {
  Workspace own;
  DeviceOptions options = given;
  if (options.workspace == nullptr) options.workspace = &own;
  auto result = guard_memory("encoding", [&] { return body(less_tables(options, 0)); });
  if (!result.ok()) options.workspace->settle(stream);
  return result;
}

}  // namespace

Result<std::vector<BlockPlans>> plan_whole(std::span<const DeviceWhole> arrays,
                                           const DeviceOptions& given, Stream stream) {
  return with_workspace(
      given, stream, [&](const DeviceOptions& options) -> Result<std::vector<BlockPlans>> {
        std::vector<BlockPlans> plans(arrays.size());
        std::map<std::pair<KeyForm, NewKind>, ExponentsPlanner> planners;
        for (size_t i = 0; i < arrays.size(); ++i) {
          const DeviceWhole& array = arrays[i];
          plans[i].resize(num_blocks(array));
          if (const std::optional<KeyForm> form = exponents::form_of(array.layout)) {
            const std::pair kind{*form, array.kind};
            planners.try_emplace(kind, *form, array.kind, options, stream)
                .first->second.add(array, &plans[i]);
          } else {
            for (size_t k = 0; k < plans[i].size(); ++k) {
              plans[i][k].size_bytes = elements_of(array, k) * array.layout.width;
            }
          }
        }
        for (auto& [kind, planner] : planners) DW_RETURN_IF_ERROR(planner.run());
        return plans;
      });
}

Status code_blocks(const DeviceWhole& array, size_t first, std::span<const BlockPlan> plans,
                   MutableBytes out, const DeviceOptions& given, Stream stream) {
  if (first > num_blocks(array) || plans.size() > num_blocks(array) - first) {
    return internal_error("blocks that the array does not have");
  }
  return with_workspace(given, stream, [&](const DeviceOptions& options) -> Status {
    const std::optional<KeyForm> form = exponents::form_of(array.layout);
    if (form) return ExponentsCoder(array, *form, options, stream).run(first, plans, out);
    const auto* const data = static_cast<const uint8_t*>(array.data);
    DW_RETURN_IF_ERROR(
        copy(out.data(), data + first * kBlockElements * array.layout.width, out.size(), stream));
    return wait(stream);
  });
}

Result<std::vector<uint8_t>> encode_whole(const DeviceWhole& array, const DeviceOptions& options,
                                          Stream stream) {
  DW_ASSIGN_OR_RETURN(const std::vector<BlockPlans> plans,
                      plan_whole({&array, 1}, options, stream));
  return guard_memory("encoding", [&]() -> Result<std::vector<uint8_t>> {
    const exponents::Directory directory(array.layout, array.num_elements * array.layout.width,
                                         plans[0]);
    std::vector<uint8_t> payload = directory.front();
    const size_t front = payload.size();
    payload.resize(size_t(directory.payload_bytes()));
    DW_RETURN_IF_ERROR(
        code_blocks(array, 0, plans[0], MutableBytes(payload).subspan(front), options, stream));
    return payload;
  });
}

}  // namespace deltawire::cuda
