#include "sync/replica/host_tensor.h"

#include <algorithm>
#include <cstring>

#include "codec/codec.h"
#include "codec/guard.h"
#include "format/layout.h"
#include "sync/replica/stage.h"
#include "sync/tensor_digest.h"

namespace deltawire {
namespace {

constexpr size_t kCopyBytes = size_t{4} << 20;

}  // namespace

Result<Digest> HostTensorMemory::digest(DigestKind kind, const std::vector<BoxDigest>* boxes) {
  return guard_memory([&]() -> Result<Digest> {
    return tensor_digest(kind, tensor_.dtype, tensor_.shape, tensor_.bytes, boxes);
  });
}

Status HostTensorMemory::stage(const TensorSteps& steps, const Target& target,
                               const std::string& place, ThreadPool* pool) {
  drop();
  const TensorView held{tensor_.name, tensor_.dtype, tensor_.shape, tensor_.bytes};
  return stage_tensor({steps, target, place, held, scratch_}, pool, [&](RedoEntry entry) {
    staged_.push_back(std::move(entry));
    return Status();
  });
}

Status HostTensorMemory::stage_whole(Bytes contents) {
  drop();
  if (contents.size() != tensor_.bytes.size()) return internal_error("contents of another size");
  whole_ = contents;
  return {};
}

uint64_t HostTensorMemory::num_staged() const {
  uint64_t count = whole_.size() / layout_of(tensor_.dtype).width;
  for (const RedoEntry& redo : staged_) count += redo.entry.num_changed;
  return count;
}

Status HostTensorMemory::commit(ThreadPool* pool) {
  const MutableBytes bytes = tensor_.bytes;
  parallel_for(pool, (whole_.size() + kCopyBytes - 1) / kCopyBytes, [&](size_t i, unsigned) {
    const size_t at = i * kCopyBytes;
    std::memcpy(bytes.data() + at, whole_.data() + at, std::min(kCopyBytes, whole_.size() - at));
  });
  for (const RedoEntry& redo : staged_) {
    DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(redo.entry));
    DW_RETURN_IF_ERROR(find_codec(redo.entry.codec)
                           ->apply(layout_of(tensor_.dtype), redo.payload,
                                   bytes.subspan(range.offset, range.size), pool));
  }
  drop();
  return {};
}

void HostTensorMemory::drop() noexcept {
  staged_.clear();
  staged_.shrink_to_fit();
  whole_ = {};
}

}  // namespace deltawire
