#include <algorithm>
#include <cstring>

#include "sync/publisher/snapshot.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr size_t kCompareBytes = size_t{256} << 10;

bool same_form(DType dtype, const Shape& shape, const TensorView& form) {
  return dtype == form.dtype && shape == form.shape;
}

// Writes only where there is something to write: unchanged pages stay clean and shared.
void copy_changes(Bytes from, MutableBytes to, ThreadPool* pool) {
  const size_t pieces = (from.size() + kCompareBytes - 1) / kCompareBytes;
  parallel_for(pool, pieces, [&](size_t i, unsigned) {
    const size_t begin = i * kCompareBytes, size = std::min(kCompareBytes, from.size() - begin);
    if (std::memcmp(from.data() + begin, to.data() + begin, size) != 0) {
      std::memcpy(to.data() + begin, from.data() + begin, size);
    }
  });
}

void copy_all(Bytes from, MutableBytes to, ThreadPool* pool) {
  const size_t pieces = (from.size() + kCompareBytes - 1) / kCompareBytes;
  parallel_for(pool, pieces, [&](size_t i, unsigned) {
    const size_t begin = i * kCompareBytes, size = std::min(kCompareBytes, from.size() - begin);
    std::memcpy(to.data() + begin, from.data() + begin, size);
  });
}

}  // namespace

Box normalise_box(Box box, const Shape& shape) {
  const bool all = box.extent == shape && std::all_of(box.offset.begin(), box.offset.end(),
                                                      [](uint64_t at) { return at == 0; });
  return all ? Box{} : box;
}

MemorySnapshot::MemorySnapshot(MemoryState state, ThreadPool* pool) : pool_(pool) {
  for (auto& [name, tensor] : state) {
    tensors_[name] = {tensor.dtype, tensor.shape, {{{}, tensor.bytes, tensor.owner}}};
  }
}

const MemorySnapshot::Piece* MemorySnapshot::find_piece(const TensorView& form,
                                                        const Box& box) const {
  const auto found = tensors_.find(form.name);
  if (found == tensors_.end() || !same_form(found->second.dtype, found->second.shape, form)) {
    return nullptr;
  }
  for (const Piece& piece : found->second.pieces) {
    if (piece.box == box) return &piece;
  }
  return nullptr;
}

Result<std::optional<OldPiece>> MemorySnapshot::find(const TensorView& form, const Box& box) const {
  if (const Piece* piece = find_piece(form, box)) {
    return std::optional(OldPiece{piece->bytes, nullptr});
  }
  const auto found = tensors_.find(form.name);
  if (found == tensors_.end() || !same_form(found->second.dtype, found->second.shape, form)) {
    return std::optional<OldPiece>();
  }
  const Piece* const whole = find_piece(form, {});
  if (whole == nullptr) {
    return not_found("tensor " + quote(form.name) + ": the snapshot does not hold box " +
                     (box.whole() ? "of all" : box_to_string(box)));
  }
  DW_ASSIGN_OR_RETURN(const uint64_t size,
                      tensor_size_bytes(form.dtype, box_shape(box, form.shape)));
  DW_ASSIGN_OR_RETURN(const auto owner, allocate_bytes(size));
  copy_box_out(box, form.dtype, form.shape, whole->bytes, {owner.get(), size});
  return std::optional(OldPiece{{owner.get(), size}, owner});
}

Status MemorySnapshot::narrow(std::span<const PublishTensor> tensors) {
  std::map<std::string, Tensor, std::less<>> kept;
  for (const PublishTensor& tensor : tensors) {
    const TensorView& form = tensor.view;
    DW_ASSIGN_OR_RETURN(const std::optional<OldPiece> piece, find(form, tensor.box));
    if (!piece) continue;
    DW_ASSIGN_OR_RETURN(const auto owner, allocate_bytes(piece->bytes.size()));
    const MutableBytes bytes{owner.get(), piece->bytes.size()};
    copy_all(piece->bytes, bytes, pool_);
    Tensor& held = kept[form.name];
    held.dtype = form.dtype;
    held.shape = form.shape;
    held.pieces.push_back({tensor.box, bytes, owner});
  }
  tensors_ = std::move(kept);
  return {};
}

Status MemorySnapshot::advance(const Advance& committed) {
  const std::span<const PublishTensor> tensors = committed.tensors;
  std::map<std::string, Tensor, std::less<>> next;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView& view = tensors[i].view;
    Piece piece{tensors[i].box, {}, nullptr};
    if (const Piece* held = find_piece(view, tensors[i].box)) {
      piece = *held;
      if (committed.changed[i]) copy_changes(view.bytes, piece.bytes, pool_);
    } else {
      DW_ASSIGN_OR_RETURN(const auto owner, allocate_bytes(view.bytes.size()));
      piece.bytes = {owner.get(), view.bytes.size()};
      piece.owner = owner;
      copy_all(view.bytes, piece.bytes, pool_);
    }
    Tensor& tensor = next[view.name];
    tensor.dtype = view.dtype;
    tensor.shape = view.shape;
    tensor.pieces.push_back(std::move(piece));
  }
  tensors_ = std::move(next);
  return {};
}

}  // namespace deltawire
