#include <algorithm>
#include <cstring>

#include "base/waves.h"
#include "codec/codec.h"
#include "diff/computed_tensors.h"
#include "format/layout.h"
#include "publish/snapshot.h"
#include "tensor/box.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr size_t kCompareBytes = size_t{256} << 10;

// Unless `to` is new memory, writes only pieces that differ, so that other pages stay clean and
// shared.
Status copy_published(const PublishTensor& tensor, MutableBytes to, bool is_new, ThreadPool* pool) {
  const size_t pieces = (to.size() + kCompareBytes - 1) / kCompareBytes;
  return parallel_try("copying", pool, pieces, [&](size_t i, unsigned) -> Status {
    const size_t begin = i * kCompareBytes, size = std::min(kCompareBytes, to.size() - begin);
    if (is_computed(tensor)) return read_published(tensor, begin, to.subspan(begin, size));
    const uint8_t* const from = tensor.view.bytes.data() + begin;
    if (is_new || std::memcmp(from, to.data() + begin, size) != 0) {
      std::memcpy(to.data() + begin, from, size);
    }
    return {};
  });
}

Status check_advanced(const PieceRecord& record, const Digest& got) {
  if (got == record.digest) return {};
  return internal_error("tensor " + quote(record.name) + ": expected " + record.digest.hex() +
                        ", got " + got.hex());
}

}  // namespace

Result<std::optional<OldPiece>> cut_piece(const TensorSpec& form, Bytes all, const Box& box) {
  const BoxRows rows(box, form.dtype, form.shape);
  const uint64_t size = rows.count() * rows.row_bytes();
  if (rows.count() <= 1) {
    return std::optional(OldPiece{all.subspan(rows.count() == 0 ? 0 : rows.position(0), size)});
  }
  DW_ASSIGN_OR_RETURN(const auto owner, allocate_bytes(size));
  copy_box_out(box, form.dtype, form.shape, all, {owner.get(), size});
  return std::optional(OldPiece{{owner.get(), size}, owner});
}

MemorySnapshot::MemorySnapshot(MemoryState state, ThreadPool* pool) : pool_(pool) {
  for (auto& [name, tensor] : state) {
    tensors_[name] = {{name, tensor.dtype, tensor.shape}, {{{}, true, tensor.bytes, tensor.owner}}};
  }
}

Status MemorySnapshot::Piece::allocate(uint64_t size_bytes) {
  DW_ASSIGN_OR_RETURN(const auto memory, allocate_bytes(size_bytes));
  held = true;
  bytes = {memory.get(), size_bytes};
  owner = memory;
  return {};
}

const MemorySnapshot::Piece* MemorySnapshot::find_piece(const TensorSpec& form,
                                                        const Box& box) const {
  const auto found = tensors_.find(form.name);
  if (found == tensors_.end() || !same_form(found->second, form)) {
    return nullptr;
  }
  for (const Piece& piece : found->second.pieces) {
    if (piece.box == box) return &piece;
  }
  return nullptr;
}

Result<std::optional<OldPiece>> MemorySnapshot::find(const TensorSpec& form, const Box& box) const {
  if (const Piece* piece = find_piece(form, box)) {
    return std::optional(OldPiece{piece->bytes, nullptr, piece->on_device});
  }
  const auto found = tensors_.find(form.name);
  if (found == tensors_.end() || !same_form(found->second, form)) {
    return std::optional<OldPiece>();
  }
  const Piece* const whole = find_piece(form, {});
  if (whole == nullptr || whole->on_device) {
    return not_found("tensor " + quote(form.name) + ": the snapshot does not hold box " +
                     (box.whole() ? "of all" : box_to_string(box)));
  }
  return cut_piece(form, whole->bytes, box);
}

Status MemorySnapshot::narrow(std::span<const PublishTensor> tensors) {
  std::map<std::string, Tensor, std::less<>> kept;
  for (const PublishTensor& tensor : tensors) {
    const TensorSpec& form = tensor.view;
    DW_ASSIGN_OR_RETURN(const std::optional<OldPiece> piece, find(form, tensor.box));
    if (!piece) continue;
    Piece copy{tensor.box};
    DW_RETURN_IF_ERROR(copy.allocate(piece->bytes.size()));
    DW_RETURN_IF_ERROR(copy_published({{form, piece->bytes}, tensor.box}, copy.bytes, true, pool_));
    Tensor& held = kept[form.name];
    static_cast<TensorSpec&>(held) = form;
    held.pieces.push_back(std::move(copy));
  }
  tensors_ = std::move(kept);
  return {};
}

Status MemorySnapshot::place(std::span<const PublishTensor> tensors, PublishDevice* device) {
  for (const PublishTensor& tensor : tensors) {
    Piece* const piece = find_piece(tensor.view, tensor.box);
    if (piece == nullptr || on_device(tensor) == bool(piece->on_device)) continue;
    if (on_device(tensor)) {
      DW_ASSIGN_OR_RETURN(
          piece->on_device,
          device->hold(piece->bytes, tensor.view.dtype,
                       layout_of(tensor.view.dtype, box_shape(tensor.box, tensor.view.shape))));
      piece->bytes = {};
      piece->owner = nullptr;
    } else {
      Piece here{tensor.box};
      DW_RETURN_IF_ERROR(here.allocate(piece->on_device->size_bytes()));
      DW_RETURN_IF_ERROR(piece->on_device->read(here.bytes));
      *piece = std::move(here);
    }
  }
  return {};
}

SnapshotMemory MemorySnapshot::memory() const {
  SnapshotMemory memory;
  for (const auto& [name, tensor] : tensors_) {
    for (const Piece& piece : tensor.pieces) {
      memory.host += piece.bytes.size();
      if (!piece.on_device) continue;
      (piece.on_device->pinned() ? memory.pinned : memory.device) += piece.on_device->size_bytes();
    }
  }
  return memory;
}

Status MemorySnapshot::advance_tensor(const PublishTensor& tensor, bool changed,
                                      PublishDevice* device, Piece* piece) {
  if (!changed) return {};
  if (on_device(tensor)) {
    piece->on_device = nullptr;  // freed first, because both may not fit
    DW_ASSIGN_OR_RETURN(piece->on_device, device->hold(tensor));
    piece->held = true;
    return {};
  }
  const bool is_new = !piece->held;
  if (is_new) DW_RETURN_IF_ERROR(piece->allocate(published_bytes(tensor)));
  return copy_published(tensor, piece->bytes, is_new, pool_);
}

// The caller does not wait for this, so there is time to prove the result of the codec.
Status MemorySnapshot::advance_changes(std::span<const KeptChange> changes,
                                       const PieceRecord& record, Piece* piece) {
  if (changes.empty()) return {};
  // A new tensor comes whole.
  if (!piece->held) DW_RETURN_IF_ERROR(piece->allocate(size_t(changes[0].size_bytes)));
  for (const KeptChange& change : changes) {
    DW_RETURN_IF_ERROR(find_codec(change.codec)
                           ->apply(change.layout, change.payload.bytes,
                                   piece->bytes.subspan(change.begin, change.size_bytes), pool_));
  }
  return check_advanced(record, digest_of(record.digest.kind, piece->bytes));
}

// The tensors still hold the committed values, so they are copied: for a device, reading and
// writing everything is faster than decoding the changes. The digests prove what was read.
Status MemorySnapshot::replace_on_device(const Advance& next, const std::vector<size_t>& which,
                                         const std::vector<Piece*>& pieces) {
  std::vector<PublishDevice::Comparison> items;
  std::vector<const PieceRecord*> records;
  for (const size_t i : which) {
    if (next.kept->of(i).empty()) continue;
    if (!pieces[i]->held) {
      DW_ASSIGN_OR_RETURN(pieces[i]->on_device, next.device->hold(next.tensors[i]));
      pieces[i]->held = true;
    }
    items.push_back({pieces[i]->on_device.get(), &next.tensors[i]});
    records.push_back(&next.pieces[i]);
  }
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> got, next.device->replace(items));
  for (size_t i = 0; i < items.size(); ++i) {
    if (got[i] == records[i]->digest) continue;
    return io_error("tensor " + quote(records[i]->name) +
                    ": was written to before publish() had returned");
  }
  return {};
}

// All tensors together.
Status MemorySnapshot::advance_on_device(const Advance& next, const std::vector<size_t>& which,
                                         const std::vector<Piece*>& pieces) {
  if (which.empty()) return {};  // there may be no device
  if (next.tensors_stay && !next.device->pinned()) {
    return replace_on_device(next, which, pieces);
  }
  std::vector<PublishDevice::Step> steps;
  std::vector<const PublishDevice::Held*> held;
  std::vector<const PieceRecord*> records;
  for (const size_t i : which) {
    Piece* const piece = pieces[i];
    const PieceRecord& record = next.pieces[i];
    const std::span<const KeptChange> changes = next.kept->of(i);
    if (changes.empty()) continue;
    if (!piece->held) {
      std::vector<uint8_t> whole(size_t(changes[0].size_bytes));
      DW_RETURN_IF_ERROR(find_codec(changes[0].codec)
                             ->apply(changes[0].layout, changes[0].payload.bytes, whole, pool_));
      DW_ASSIGN_OR_RETURN(piece->on_device,
                          next.device->hold(whole, record.dtype, changes[0].layout));
      piece->held = true;
    } else {
      steps.push_back({piece->on_device.get(), &changes[0]});
    }
    held.push_back(piece->on_device.get());
    records.push_back(&record);
  }
  if (held.empty()) return {};
  DW_RETURN_IF_ERROR(next.device->advance(steps));
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> got, next.device->digests(held));
  for (size_t i = 0; i < held.size(); ++i) DW_RETURN_IF_ERROR(check_advanced(*records[i], got[i]));
  return {};
}

// The tensors were read again and may have changed meanwhile.
Status MemorySnapshot::prove(const Advance& next, const std::vector<size_t>& which,
                             const std::vector<Piece*>& pieces) {
  std::vector<const PublishDevice::Held*> held;
  std::vector<size_t> here, there;
  std::vector<uint64_t> sizes;
  for (const size_t i : which) {
    const bool on_device = bool(pieces[i]->on_device);
    (on_device ? there : here).push_back(i);
    if (on_device) {
      held.push_back(pieces[i]->on_device.get());
    } else {
      sizes.push_back(pieces[i]->bytes.size());
    }
  }
  const auto check = [&](size_t n, ThreadPool*) {
    const PieceRecord& record = next.pieces[here[n]];
    return check_advanced(record, digest_of(record.digest.kind, pieces[here[n]]->bytes));
  };
  DW_RETURN_IF_ERROR(Waves(std::move(sizes), Waves::Inside::kOneThread, pool_, {}).run(check));
  if (held.empty()) return {};
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> got, next.device->digests(held));
  for (size_t n = 0; n < there.size(); ++n) {
    DW_RETURN_IF_ERROR(check_advanced(next.pieces[there[n]], got[n]));
  }
  return {};
}

Status MemorySnapshot::advance(const Advance& committed) {
  const std::span<const PublishTensor> tensors = committed.tensors;
  std::map<std::string, Tensor, std::less<>> next;
  std::vector<Piece> pieces;
  std::vector<Piece*> all;
  std::vector<size_t> on_devices, written;
  pieces.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Piece* const held = find_piece(tensors[i].view, tensors[i].box);
    pieces.push_back(held ? *held : Piece{tensors[i].box});
    Piece& piece = pieces.back();
    all.push_back(&piece);
    if (!committed.kept) {
      const bool advances = committed.pieces[i].changed || !piece.held;
      DW_RETURN_IF_ERROR(advance_tensor(tensors[i], advances, committed.device, &piece));
      if (advances) written.push_back(i);
    } else if (on_device(tensors[i])) {
      on_devices.push_back(i);
    } else {
      DW_RETURN_IF_ERROR(advance_changes(committed.kept->of(i), committed.pieces[i], &piece));
    }
  }
  if (committed.kept) DW_RETURN_IF_ERROR(advance_on_device(committed, on_devices, all));
  DW_RETURN_IF_ERROR(prove(committed, written, all));
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor& tensor = next[tensors[i].view.name];
    static_cast<TensorSpec&>(tensor) = tensors[i].view;
    tensor.pieces.push_back(std::move(pieces[i]));
  }
  tensors_ = std::move(next);
  return {};
}

}  // namespace deltawire
