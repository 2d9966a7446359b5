#include "replica/boxed_tensors.h"

#include <algorithm>

#include "base/copy_parallel.h"
#include "base/waves.h"
#include "codec/codec.h"
#include "codec/gaps.h"
#include "format/layout.h"
#include "format/tensor_digest.h"
#include "replica/stage.h"
#include "tensor/box.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// The bytes of a range that lie inside the box are contiguous in the box's contents, because both
// have the same order.
std::optional<CutChange> cut_raw(const RedoEntry& redo, const ByteRange& range,
                                 const BoxRows& rows) {
  CutChange cut;
  const uint64_t end = range.offset + range.size, row_bytes = rows.row_bytes();
  for (uint64_t row = rows.first_behind(range.offset); row < rows.count(); ++row) {
    const uint64_t position = rows.position(row);
    if (position >= end) break;
    const uint64_t from = std::max(position, range.offset),
                   to = std::min(position + row_bytes, end);
    if (cut.payload.empty()) cut.begin = row * row_bytes + (from - position);
    const auto bytes = redo.payload.begin() - ptrdiff_t(range.offset);
    cut.payload.insert(cut.payload.end(), bytes + ptrdiff_t(from), bytes + ptrdiff_t(to));
  }
  if (cut.payload.empty()) return {};
  cut.size_bytes = cut.payload.size();
  cut.num_changed = cut.size_bytes / layout_of(redo.entry.dtype).width;
  return cut;
}

Result<std::optional<CutChange>> cut_gaps(const RedoEntry& redo, const ByteRange& range,
                                          const BoxRows& rows) {
  const unsigned width = layout_of(redo.entry.dtype).width;
  Bytes payload = redo.payload;
  const uint64_t num_elements = range.size / width;
  DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(num_elements, &payload));
  DW_ASSIGN_OR_RETURN(const Changes changes,
                      decode_gaps_body(header, width, payload, num_elements, nullptr));
  std::vector<uint64_t> positions;
  std::vector<uint8_t> values;
  const uint64_t row_bytes = rows.row_bytes();
  uint64_t row = rows.first_behind(range.offset);
  uint64_t begin = row < rows.count() ? rows.position(row) : UINT64_MAX;
  for (size_t i = 0; i < changes.positions.size(); ++i) {
    const uint64_t at = range.offset + changes.positions[i] * width;
    while (row < rows.count() && begin + row_bytes <= at) {
      ++row;
      begin = row < rows.count() ? rows.position(row) : UINT64_MAX;
    }
    if (row == rows.count()) break;
    if (at < begin) continue;
    positions.push_back((row * row_bytes + (at - begin)) / width);
    const uint8_t* const value = changes.values.data() + i * width;
    values.insert(values.end(), value, value + width);
  }
  if (positions.empty()) return std::optional<CutChange>();
  CutChange cut{0, rows.count() * row_bytes, CodecId::kGaps, {}, positions.size()};
  cut.payload = gaps_payload(width, positions, values);
  return std::optional(std::move(cut));
}

}  // namespace

Result<std::optional<CutChange>> cut_to_box(const RedoEntry& redo, const Box& box) {
  DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(redo.entry));
  const BoxRows rows(box, redo.entry.dtype, redo.entry.shape);
  if (redo.entry.codec == CodecId::kGaps) return cut_gaps(redo, range, rows);
  if (redo.entry.codec != CodecId::kRaw) return internal_error("not in absolute values");
  return cut_raw(redo, range, rows);
}

namespace {

uint64_t box_bytes(const TensorSpec& form, const Box& box) {
  return tensor_size_bytes(form.dtype, box_shape(box, form.shape)).value();  // checked before
}

Status apply_change(DType dtype, const ArrayChange& change, MutableBytes bytes, ThreadPool* pool) {
  return find_codec(change.codec)
      ->apply(layout_of(dtype), change.payload, bytes.subspan(change.begin, change.size_bytes),
              pool);
}

}  // namespace

void BoxedTensors::add(size_t number, TensorSpec form, std::vector<Piece> pieces) {
  const uint64_t size = tensor_size_bytes(form.dtype, form.shape).value();  // checked before
  tensors_.emplace(number, Tensor{std::move(form), size, std::move(pieces)});
}

Result<std::shared_ptr<MutableFile>> BoxedTensors::make_backing(size_t number,
                                                                uint64_t size_bytes) const {
  DW_ASSIGN_OR_RETURN(
      MutableFile file,
      MutableFile::create(folder_ / ("backing-" + std::to_string(number)), size_bytes));
  return std::make_shared<MutableFile>(std::move(file));
}

Result<bool> BoxedTensors::gather() {
  for (const auto& [number, tensor] : tensors_) {
    uint64_t covered = 0;
    for (const Piece& piece : tensor.pieces) covered += box_bytes(tensor.form, piece.box);
    if (covered != tensor.size_bytes) return false;
  }
  for (auto& [number, tensor] : tensors_) {
    DW_ASSIGN_OR_RETURN(auto backing, make_backing(number, tensor.size_bytes));
    for (const Piece& piece : tensor.pieces) {
      DW_ASSIGN_OR_RETURN(const ScratchCopy copy,
                          ScratchCopy::make(folder_, piece.array, box_bytes(tensor.form, piece.box),
                                            memory_.work.large_tensor));
      DW_RETURN_IF_ERROR(piece.set->read(piece.array, copy.bytes()));
      copy_box_in(piece.box, tensor.form.dtype, tensor.form.shape, copy.bytes(), backing->bytes());
    }
    tensor.backing = std::move(backing);
  }
  return true;
}

Status BoxedTensors::check(std::span<const size_t> which, const Manifest& manifest) {
  std::vector<uint64_t> sizes;
  for (const size_t number : which) sizes.push_back(tensors_.at(number).size_bytes);
  const auto check_one = [&](size_t i, ThreadPool*) -> Status {
    const Tensor& tensor = tensors_.at(which[i]);
    const std::string place = "tensor " + quote(tensor.form.name);
    if (!tensor.backing) {
      return base_mismatch(place + ": only boxes of the tensor are held");
    }
    const Digest got = tensor_digest(tensor.form.dtype, tensor.form.shape, tensor.backing->bytes(),
                                     boxes_hashed(manifest, tensor.form.name));
    return check_digest(place, got, manifest, which[i]);
  };
  DW_RETURN_IF_ERROR(Waves(std::move(sizes), Waves::Inside::kOneThread, pool_, {}).run(check_one));
  return check_pieces(which);
}

Status BoxedTensors::check_arrays(
    std::span<const size_t> which,
    const std::function<const Digest&(const Tensor&, size_t piece)>& expected) {
  std::map<ArraySet*, std::vector<ArrayDigest>> by_set;
  for (const size_t number : which) {
    const Tensor& tensor = tensors_.at(number);
    for (size_t i = 0; i < tensor.pieces.size(); ++i) {
      by_set[tensor.pieces[i].set].push_back({tensor.pieces[i].array, expected(tensor, i)});
    }
  }
  for (const auto& [set, arrays] : by_set) DW_RETURN_IF_ERROR(set->check_arrays(arrays));
  return {};
}

// Checks that the arrays hold the same bytes as the backings.
Status BoxedTensors::check_pieces(std::span<const size_t> which) {
  std::map<const Tensor*, std::vector<Digest>> digests;
  std::vector<uint64_t> sizes;
  for (const size_t number : which) {
    const Tensor& tensor = tensors_.at(number);
    digests[&tensor].resize(tensor.pieces.size());
    sizes.push_back(tensor.size_bytes);
  }
  const auto hash = [&](size_t i, ThreadPool*) -> Status {
    const Tensor& tensor = tensors_.at(which[i]);
    std::vector<Digest>& own = digests.at(&tensor);
    for (size_t p = 0; p < own.size(); ++p) {
      own[p] = box_digest(tensor.form.dtype, tensor.form.shape, tensor.backing->bytes(),
                          tensor.pieces[p].box);
    }
    return {};
  };
  DW_RETURN_IF_ERROR(Waves(std::move(sizes), Waves::Inside::kOneThread, pool_, {}).run(hash));
  return check_arrays(which, [&](const Tensor& tensor, size_t piece) -> const Digest& {
    return digests.at(&tensor)[piece];
  });
}

Status BoxedTensors::stage(std::span<const TensorSteps> steps, const Target& target,
                           const Progress& progress) {
  std::vector<size_t> which;
  std::vector<uint64_t> sizes;
  for (const TensorSteps& one : steps) {
    const Tensor& tensor = tensors_.at(one.index);
    if (!tensor.backing) return internal_error("a boxed tensor has no backing");
    which.push_back(one.index);
    sizes.push_back(tensor.size_bytes);
  }
  DW_RETURN_IF_ERROR(check_pieces(which));
  return Waves(std::move(sizes), Waves::Inside::kShared, pool_, progress, memory_.work.wave_bytes)
      .run([&](size_t i, ThreadPool* inner) { return stage_one(steps[i], target, inner); });
}

Status BoxedTensors::stage_one(const TensorSteps& steps, const Target& target, ThreadPool* inner) {
  Tensor& tensor = tensors_.at(steps.index);
  const std::string place = "tensor " + quote(tensor.form.name);
  TensorView held{tensor.form, {}};
  held.bytes = tensor.backing->bytes();
  // What each array will hold, to compute its digest.
  std::vector<ScratchCopy> after;
  for (const Piece& piece : tensor.pieces) {
    DW_ASSIGN_OR_RETURN(ScratchCopy copy,
                        ScratchCopy::make(folder_, piece.array, box_bytes(held, piece.box),
                                          memory_.work.large_tensor));
    copy_box_out(piece.box, held.dtype, held.shape, held.bytes, copy.bytes());
    after.push_back(std::move(copy));
  }
  const StageJob job{steps, target, place, held, folder_, memory_.work};
  DW_RETURN_IF_ERROR(stage_tensor(job, inner, [&](RedoEntry redo) -> Status {
    for (size_t i = 0; i < tensor.pieces.size(); ++i) {
      const Piece& piece = tensor.pieces[i];
      DW_ASSIGN_OR_RETURN(std::optional<CutChange> cut, cut_to_box(redo, piece.box));
      if (!cut) continue;
      DW_ASSIGN_OR_RETURN(const Bytes payload, spill_->keep(std::move(cut->payload)));
      const ArrayChange change{cut->begin, cut->size_bytes, cut->codec, payload, cut->num_changed};
      DW_RETURN_IF_ERROR(apply_change(held.dtype, change, after[i].bytes(), inner));
      DW_RETURN_IF_ERROR(piece.set->stage_change(piece.array, change));
    }
    DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(redo.entry));
    DW_ASSIGN_OR_RETURN(const Bytes payload, own_spill_.keep(std::move(redo.payload)));
    tensor.changes.push_back(
        {range.offset, range.size, redo.entry.codec, payload, redo.entry.num_changed});
    return {};
  }));
  for (const ScratchCopy& copy : after)
    tensor.written.push_back(digest_of(DigestKind::kSum128, copy.bytes()));
  return {};
}

Status BoxedTensors::stage_whole(size_t number, Bytes contents) {
  Tensor& tensor = tensors_.at(number);
  if (contents.size() != tensor.size_bytes) return internal_error("contents have the wrong size");
  DW_ASSIGN_OR_RETURN(tensor.next, make_backing(number, tensor.size_bytes));
  const MutableBytes all = tensor.next->bytes();
  copy_parallel(contents, all, pool_);
  for (const Piece& piece : tensor.pieces) {
    const BoxRows rows(piece.box, tensor.form.dtype, tensor.form.shape);
    Bytes own;
    if (rows.count() == 1) {
      own = all.subspan(rows.position(0), rows.row_bytes());
    } else {
      DW_ASSIGN_OR_RETURN(const MutableBytes space,
                          spill_->take(box_bytes(tensor.form, piece.box)));
      copy_box_out(piece.box, tensor.form.dtype, tensor.form.shape, all, space);
      own = space;
    }
    tensor.written.push_back(digest_of(DigestKind::kSum128, own));
    DW_RETURN_IF_ERROR(piece.set->stage_whole(piece.array, own));
  }
  return {};
}

Status BoxedTensors::commit() {
  committed_ = true;
  return {};
}

Status BoxedTensors::check_written(std::span<const size_t> which, const Manifest&) {
  return check_arrays(which, [](const Tensor& tensor, size_t piece) -> const Digest& {
    return tensor.written[piece];
  });
}

Status BoxedTensors::settle() {
  if (!committed_) return {};
  committed_ = false;
  std::vector<Tensor*> changed;
  std::vector<uint64_t> sizes;
  for (auto& [number, tensor] : tensors_) {
    if (tensor.next) tensor.backing = std::exchange(tensor.next, nullptr);
    if (tensor.changes.empty()) continue;
    changed.push_back(&tensor);
    sizes.push_back(tensor.size_bytes);
  }
  const auto advance = [&](size_t i, ThreadPool* inner) -> Status {
    for (const ArrayChange& change : changed[i]->changes) {
      DW_RETURN_IF_ERROR(
          apply_change(changed[i]->form.dtype, change, changed[i]->backing->bytes(), inner));
    }
    return {};
  };
  Status status = Waves(std::move(sizes), Waves::Inside::kShared, pool_, {}).run(advance);
  drop();
  if (!status.ok()) forget();
  return status;
}

void BoxedTensors::drop() noexcept {
  if (committed_) return;  // settle() needs it
  for (auto& [number, tensor] : tensors_) {
    tensor.next = nullptr;
    tensor.changes = {};
    tensor.written = {};
  }
  own_spill_.clear();
}

void BoxedTensors::forget() noexcept {
  committed_ = false;
  drop();
  for (auto& [number, tensor] : tensors_) tensor.backing = nullptr;
}

}  // namespace deltawire
