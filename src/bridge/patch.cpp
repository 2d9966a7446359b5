#include "bridge/patch.h"

#include <algorithm>
#include <atomic>

#include "base/bytes.h"
#include "base/mapping.h"
#include "base/waves.h"
#include "bridge/foreign.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// By itself a failed patch says nothing about files that were written to meanwhile.
Status judge(const ForeignVersion& version, Status status) {
  DW_RETURN_IF_ERROR(version.check_unchanged());
  return status;
}

std::string place_in(const ForeignInfo& info, const std::string& tensor) {
  return "version " + std::to_string(info.version) + ", tensor " + quote(tensor);
}

constexpr uint64_t kCopiedBytes = uint64_t{1} << 20;

void copy_tensor(Bytes from, MutableBytes to, ThreadPool* pool) {
  const size_t pieces = size_t((from.size() + kCopiedBytes - 1) / kCopiedBytes);
  parallel_for(pool, pieces, [&](size_t i, unsigned) {
    const uint64_t begin = i * kCopiedBytes;
    copy_out(from.data() + begin, to.data() + begin,
             size_t(std::min(kCopiedBytes, from.size() - begin)));
  });
}

}  // namespace

Status check_fits(const ForeignInfo& info, const Checkpoint& old) {
  if (info.full) return {};
  for (const ForeignTensor& tensor : info.tensors) {
    const CheckpointTensor* const held = old.find(tensor.name);
    if (held == nullptr) {
      return base_mismatch(
          place_in(info, tensor.name) +
          ": the checkpoint that it changes has no such tensor. A head that is tied to the "
          "embeddings is often left out when a checkpoint is saved: begin with a base that has it");
    }
    const TensorView& view = held->view;
    if ((tensor.dtype && *tensor.dtype != view.dtype) ||
        (tensor.shape && *tensor.shape != view.shape)) {
      return base_mismatch(
          place_in(info, tensor.name) + ": is for " +
          form_text(tensor.dtype.value_or(view.dtype), tensor.shape.value_or(view.shape)) +
          ", the checkpoint has " + form_text(view.dtype, view.shape) +
          ": begin with the checkpoint that the run began with");
    }
  }
  return {};
}

Result<std::vector<PublishTensor>> patch_tensors(const ForeignVersion& version,
                                                 const Checkpoint& old, Scratch* scratch,
                                                 ThreadPool* pool, const Progress& progress) {
  const ForeignInfo& info = version.info();
  DW_RETURN_IF_ERROR(check_fits(info, old));
  std::vector<uint64_t> sizes;
  std::vector<const CheckpointTensor*> held;
  for (const ForeignTensor& tensor : info.tensors) {
    held.push_back(old.find(tensor.name));
    sizes.push_back(held.back()->view.bytes.size());
  }
  DW_ASSIGN_OR_RETURN(const std::vector<MutableBytes> made, scratch->make(sizes));
  Status patched =
      Waves(sizes, Waves::Inside::kShared, pool, progress)
          .run([&](size_t i, ThreadPool* inner) -> Status {
            const TensorView& view = held[i]->view;
            copy_tensor(view.bytes, made[i], inner);
            return version.apply(i, {view.name, view.dtype, view.shape}, made[i], inner);
          });
  DW_RETURN_IF_ERROR(judge(version, std::move(patched)));
  DW_RETURN_IF_ERROR(scratch->check());
  DW_RETURN_IF_ERROR(old.check_whole());
  std::vector<PublishTensor> tensors;
  size_t next = 0;  // both are sorted by name
  for (const CheckpointTensor& tensor : old.tensors()) {
    PublishTensor& now = tensors.emplace_back();
    now.view = tensor.view;
    now.unchanged = true;
    if (next == info.tensors.size() || held[next] != &tensor) continue;
    now.view.bytes = made[next++];
    now.unchanged = false;
  }
  if (next != info.tensors.size()) return internal_error("tensors of a version are not sorted");
  return tensors;
}

Result<std::vector<PublishTensor>> whole_tensors(const ForeignVersion& version, Scratch* scratch,
                                                 ThreadPool* pool, const Progress& progress) {
  const ForeignInfo& info = version.info();
  std::vector<PublishTensor> tensors;
  std::vector<uint64_t> sizes;
  for (const ForeignTensor& tensor : info.tensors) {
    if (!tensor.dtype || !tensor.shape) return internal_error("a whole version tells all forms");
    tensors.emplace_back().view = {tensor.name, *tensor.dtype, *tensor.shape, {}};
    DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(*tensor.dtype, *tensor.shape));
    sizes.push_back(size);
  }
  DW_ASSIGN_OR_RETURN(const std::vector<MutableBytes> made, scratch->make(sizes));
  Status read = Waves(sizes, Waves::Inside::kShared, pool, progress)
                    .run([&](size_t i, ThreadPool* inner) -> Status {
                      TensorView& view = tensors[i].view;
                      view.bytes = made[i];
                      return version.apply(i, {view.name, view.dtype, view.shape}, made[i], inner);
                    });
  DW_RETURN_IF_ERROR(judge(version, std::move(read)));
  DW_RETURN_IF_ERROR(scratch->check());
  return tensors;
}

Status try_patch(const ForeignVersion& version, const Checkpoint& old, ThreadPool* pool,
                 const Progress& progress) {
  const ForeignInfo& info = version.info();
  DW_RETURN_IF_ERROR(check_fits(info, old));
  std::vector<uint64_t> sizes;
  for (const ForeignTensor& tensor : info.tensors) {
    sizes.push_back(old.find(tensor.name)->view.bytes.size());
  }
  std::atomic<bool> changed = false;
  Status patched =
      Waves(sizes, Waves::Inside::kShared, pool, progress)
          .run([&](size_t i, ThreadPool* inner) -> Status {
            const TensorView& view = old.find(info.tensors[i].name)->view;
            DW_ASSIGN_OR_RETURN(const auto copy, allocate_bytes(sizes[i]));
            const MutableBytes bytes{copy.get(), sizes[i]};
            copy_tensor(view.bytes, bytes, inner);
            DW_RETURN_IF_ERROR(version.apply(i, {view.name, view.dtype, view.shape}, bytes, inner));
            if (!changed && !std::ranges::equal(bytes, view.bytes)) changed = true;
            return {};
          });
  DW_RETURN_IF_ERROR(judge(version, std::move(patched)));
  DW_RETURN_IF_ERROR(old.check_whole());
  const auto writes = [](const ForeignTensor& tensor) { return tensor.payload_bytes != 0; };
  if (changed || std::ranges::none_of(info.tensors, writes)) return {};
  // Where no digest tells: their writers write what changed, and only that.
  return corruption("version " + std::to_string(info.version) + " changes nothing of " +
                    old.path().string() + ", which has its values already");
}

}  // namespace deltawire
