// Payloads of `exponents` onto a device: the directory, and what a block's length and base say, is
// checked here, the rest there.
#include <algorithm>

#include "codec/cuda/device_parts.h"
#include "codec/cuda/workspace.h"
#include "codec/exponents.h"
#include "kernels/cuda/exponents.h"

namespace deltawire::cuda {
namespace {

struct OpenedPayload {
  DevicePatch patch;
  size_t number;  // of the call
  std::optional<KeyForm> form;
  exponents::Directory directory;
};

class ExponentsApplier {
 public:
  ExponentsApplier(const DeviceOptions& options, Stream stream)
      : options_(options), stream_(stream) {}

  Status open(std::span<const NumberedPatch> patches) {
    for (const NumberedPatch& numbered : patches) {
      DW_RETURN_IF_ERROR(open_one(numbered).at("patch " + std::to_string(numbered.number)));
    }
    // Forms one after the other: they are launched apart.
    std::stable_sort(opened_.begin(), opened_.end(),
                     [](const auto& a, const auto& b) { return a.form < b.form; });
    cut();
    return {};
  }

  bool in_one_go() const { return chunks_.size() <= 1; }

  Status run(bool write) {
    for (const std::vector<Stretch>& chunk : chunks_) {
      DW_RETURN_IF_ERROR(run_some(chunk, write));
    }
    // Their blocks are all raw: nothing in them can be wrong.
    for (const OpenedPayload& one : opened_) {
      if (!write || one.form || one.patch.num_elements == 0) continue;
      const Bytes elements = one.patch.payload.subspan(size_t(one.directory.block_begin(0)));
      DW_RETURN_IF_ERROR(copy(one.patch.data, elements.data(), elements.size(), stream_));
    }
    return wait(stream_);
  }

 private:
  // Blocks [first, last) of a payload.
  struct Stretch {
    const OpenedPayload* of;
    size_t first, last;
    Bytes bytes() const {
      const size_t begin = size_t(of->directory.block_begin(first));
      return of->patch.payload.subspan(begin, size_t(of->directory.block_end(last - 1)) - begin);
    }
  };

  Status open_one(const NumberedPatch& numbered) {
    const DevicePatch& patch = numbered.patch;
    const uint64_t array_bytes = patch.num_elements * patch.layout.width;
    DW_ASSIGN_OR_RETURN(exponents::Directory directory,
                        exponents::Directory::parse(patch.layout, array_bytes, patch.payload,
                                                    patch.payload.size()));
    for (size_t i = 0; i < directory.num_blocks(); ++i) {
      const size_t begin = size_t(directory.block_begin(i));
      const Bytes block = patch.payload.subspan(begin, size_t(directory.block_end(i)) - begin);
      DW_RETURN_IF_ERROR(exponents::check_block(
          patch.layout, block, size_t(directory.array_end(i) - directory.array_begin(i))));
    }
    opened_.push_back(
        {patch, numbered.number, exponents::form_of(patch.layout), std::move(directory)});
    return {};
  }

  // What is worked on together: of one form, as much as the scratch takes, at least a block.
  void cut() {
    uint64_t size = 0;
    for (const OpenedPayload& one : opened_) {
      if (!one.form) continue;
      for (size_t i = 0; i < one.directory.num_blocks(); ++i) {
        const uint64_t own =
            sizeof(ExponentsBlock) + one.directory.block_end(i) - one.directory.block_begin(i);
        const bool fits = !chunks_.empty() && chunks_.back()[0].of->form == one.form &&
                          size + own + kCarveAlign <= options_.scratch_bytes;
        if (!fits) {
          chunks_.emplace_back();
          size = 0;
        }
        std::vector<Stretch>& chunk = chunks_.back();
        if (!chunk.empty() && chunk.back().of == &one) {
          ++chunk.back().last;
        } else {
          chunk.push_back({&one, i, i + 1});
        }
        size += own;
      }
    }
  }

  Status run_some(const std::vector<Stretch>& chunk, bool write) {
    Workspace& workspace = *options_.workspace;
    size_t num_blocks = 0, payload_bytes = 0;
    for (const Stretch& stretch : chunk) {
      num_blocks += stretch.last - stretch.first;
      payload_bytes += stretch.bytes().size();
    }
    const size_t table_bytes = carved_bytes(num_blocks * sizeof(ExponentsBlock));
    DW_ASSIGN_OR_RETURN(uint8_t* const memory,
                        workspace.get(Workspace::kSlots, table_bytes + payload_bytes));
    DW_ASSIGN_OR_RETURN(uint8_t* const status_at,
                        workspace.get(Workspace::kStatus, sizeof(PatchStatus)));
    auto* const table = reinterpret_cast<ExponentsBlock*>(memory);
    auto* const status = reinterpret_cast<PatchStatus*>(status_at);
    std::vector<ExponentsBlock> blocks;
    uint8_t* at = memory + table_bytes;
    for (const Stretch& stretch : chunk) {
      const Bytes bytes = stretch.bytes();
      DW_RETURN_IF_ERROR(copy(at, bytes.data(), bytes.size(), stream_));
      add_blocks(stretch, at, &blocks);
      at += bytes.size();
    }
    DW_RETURN_IF_ERROR(copy(table, blocks.data(), num_blocks * sizeof(ExponentsBlock), stream_));
    DW_RETURN_IF_ERROR(fill_zero(status, sizeof(PatchStatus), stream_));
    const KeyForm form = *chunk[0].of->form;
    DW_RETURN_IF_ERROR(check_exponents(form, table, uint32_t(num_blocks), status, stream_));
    if (write) {
      DW_RETURN_IF_ERROR(join_exponents(form, table, uint32_t(num_blocks), status, stream_));
    }
    PatchStatus found{};
    DW_RETURN_IF_ERROR(copy(&found, status, sizeof found, stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    return to_status(found, "block", [](uint32_t number) { return number; });
  }

  static void add_blocks(const Stretch& stretch, uint8_t* at, std::vector<ExponentsBlock>* blocks) {
    const OpenedPayload& one = *stretch.of;
    const uint64_t width = one.patch.layout.width;
    const uint64_t begin = one.directory.block_begin(stretch.first);
    for (size_t i = stretch.first; i < stretch.last; ++i) {
      const uint64_t from = one.directory.block_begin(i);
      ExponentsBlock block{};
      block.data = one.patch.data;
      block.first = one.directory.array_begin(i) / width;
      block.coded = at + (from - begin);
      block.coded_bytes = uint32_t(one.directory.block_end(i) - from);
      block.num_elements =
          uint32_t((one.directory.array_end(i) - one.directory.array_begin(i)) / width);
      block.array = uint32_t(one.number);
      block.block = uint32_t(i);
      block.base = one.patch.payload[size_t(from)];
      blocks->push_back(block);
    }
  }

  const DeviceOptions& options_;
  const Stream stream_;
  std::vector<OpenedPayload> opened_;
  std::vector<std::vector<Stretch>> chunks_;
};

}  // namespace

Status apply_exponents_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                               bool write, Stream stream) {
  ExponentsApplier applier(options, stream);
  DW_RETURN_IF_ERROR(applier.open(patches));
  if (write && options.all_or_nothing && !applier.in_one_go()) {
    DW_RETURN_IF_ERROR(applier.run(false));
  }
  return applier.run(write);
}

}  // namespace deltawire::cuda
