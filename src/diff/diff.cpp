#include "diff/diff.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "base/waves.h"
#include "delta/encode_items.h"
#include "diff/coded_array.h"
#include "diff/computed_tensors.h"
#include "diff/hash_state.h"
#include "store/bodies.h"
#include "tensor/box.h"
#include "tensor/form.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// The items to encode: tensors, boxes of ranks, or slices of either.
struct Work {
  std::vector<EncodeItem> items;
  std::vector<size_t> piece_of;  // item -> piece
  // Piece -> the body that it is read from, and hashed by if it did not change and its digest is
  // unknown; may be null.
  Contents new_contents;
  std::vector<std::shared_ptr<const void>> owners;
  // Piece -> sums of its slices; none if it is a single item.
  struct SliceSums {
    Sums old_bytes, new_bytes;
  };
  std::vector<std::optional<SliceSums>> sums;

  void begin_piece() {
    sums.emplace_back();
    new_contents.emplace_back();
  }
};

std::shared_ptr<const Body> steady(const std::string& name, std::shared_ptr<const Body> contents) {
  return std::make_shared<StableBody>(std::move(contents), "tensor " + quote(name));
}

Status plan_work(const DiffJob& job, uint64_t item_bytes, Work* work, StateDiff* diff) {
  for (size_t piece = 0; piece < job.tensors.size(); ++piece) {
    const PublishTensor& tensor = job.tensors[piece];
    const TensorView& view = tensor.view;
    diff->pieces.push_back(piece_of(tensor));
    if (taken_as_unchanged(job, tensor)) {
      DW_ASSIGN_OR_RETURN(diff->pieces.back().num_elements,
                          num_elements(box_shape(tensor.box, view.shape)));
      work->begin_piece();
      continue;
    }
    if (on_device(tensor)) {
      work->begin_piece();
      continue;
    }
    DW_ASSIGN_OR_RETURN(std::optional<OldPiece> old, job.old.find(view, tensor.box));
    EncodeItem item;
    const bool computed = is_computed(tensor);
    item.change = {view, tensor.box, {}, computed ? Bytes() : view.bytes};
    item.comparable = old.has_value();
    if (!old) {
      if (!tensor.box.whole()) diff->needs_full = box_of_new_tensor(view.name);
      work->begin_piece();
      item.new_contents = steady(view.name, published_body(tensor));
      if (computed) item.computed_bytes = published_bytes(tensor);
      work->items.push_back(std::move(item));
      work->piece_of.push_back(piece);
      continue;
    }
    if (old->owner) work->owners.push_back(old->owner);
    const std::vector<Slice> slices = split_rows(tensor.box, view.dtype, view.shape, item_bytes);
    work->begin_piece();
    if (slices.size() != 1) {
      item.summed = true;
      work->sums.back().emplace();
      if (computed) item.new_contents = published_body(tensor);
    } else if (computed) {
      item.new_contents = work->new_contents.back() = steady(view.name, published_body(tensor));
    }
    if (slices.size() == 1 && !computed && !is_known(job, tensor)) {
      // An unchanged piece equals the snapshot, which nobody modifies meanwhile.
      work->new_contents.back() = std::make_shared<MemoryBody>(old->bytes);
    }
    for (const Slice& slice : slices) {
      EncodeItem own = item;
      own.change.box = slice.box;
      own.begin = slice.begin;
      own.change.old_bytes = old->bytes.subspan(slice.begin, slice.size_bytes);
      if (computed) {
        own.computed_bytes = slice.size_bytes;
      } else {
        own.change.new_bytes = view.bytes.subspan(slice.begin, slice.size_bytes);
      }
      if (slices.size() == 1) own.old_digest = known_digest(job.parent, view, tensor.box);
      own.wants_box_sums = wants_sums(diff->pieces.back());
      work->items.push_back(std::move(own));
      work->piece_of.push_back(piece);
    }
  }
  return {};
}

Status check_source(const PublishTensor& tensor) {
  if (!tensor.source || *tensor.source == tensor.view.dtype) return {};
  const bool there = tensor.view.dtype == DType::kBF16 &&
                     (*tensor.source == DType::kF32 || *tensor.source == DType::kF16);
  if (on_device(tensor) ? there : can_round(*tensor.source, tensor.view.dtype)) return {};
  return invalid_argument(std::string(dtype_name(*tensor.source)) + " cannot be published as " +
                          std::string(dtype_name(tensor.view.dtype)) +
                          (on_device(tensor)
                               ? " from a GPU; F32 and F16 can, as BF16"
                               : "; F64, F32, F16 and BF16 can, as BF16, F16 or F32"));
}

Status check_computed(const PublishTensor& tensor) {
  if (!tensor.computed) return {};
  if (!tensor.view.bytes.empty() || tensor.source) {
    return invalid_argument("is computed during the publish, but bytes are given too");
  }
  return {};
}

// Checks a snapshot on disk against the parent where no single item can.
Status check_old(const DiffJob& job, const Digest& got, size_t i) {
  const std::optional<Digest> known =
      known_digest(job.parent, job.tensors[i].view, job.tensors[i].box);
  if (!known) return {};
  return check_old_digest(*known, got).at("tensor " + quote(job.tensors[i].view.name));
}

// The same for a piece whose slices were summed.
Status take_sums(const DiffJob& job, const Work::SliceSums& sums, size_t i, PieceRecord* piece) {
  const uint64_t size = published_bytes(job.tensors[i]);
  DW_ASSIGN_OR_RETURN(piece->digest, sums.new_bytes.finish(size));
  if (job.old.hashing() != Hashing::kChecked) return {};
  DW_ASSIGN_OR_RETURN(const Digest got, sums.old_bytes.finish(size));
  return check_old(job, got, i);
}

// Completes digests and sums: of sliced pieces that changed, and of unchanged boxes that the parent
// does not know.
Status complete_digests(const DiffJob& job, const Work& work, ThreadPool* pool,
                        std::vector<PieceRecord>* pieces) {
  std::vector<size_t> missing;
  for (size_t i = 0; i < pieces->size(); ++i) {
    PieceRecord& piece = (*pieces)[i];
    const bool complete = piece.digest.size != 0 && (piece.sums || !wants_sums(piece));
    if (work.sums[i]) {
      DW_RETURN_IF_ERROR(take_sums(job, *work.sums[i], i, &piece));
      continue;
    }
    if (complete) continue;
    if (!piece.changed && is_known(job, job.tensors[i])) {
      const TensorSpec& form = job.tensors[i].view;
      piece.digest = *known_digest(job.parent, form, piece.box);
      piece.sums = known_sums(job.parent, form, piece.box);
      continue;
    }
    missing.push_back(i);
  }
  return hash_pieces(work.new_contents, missing, pool, pieces);
}

const BoxDigest* find_box(const Manifest& manifest, const std::string& tensor, const Box& box) {
  const auto boxes = manifest.boxes.find(tensor);
  if (boxes == manifest.boxes.end()) return nullptr;
  const auto found = std::find_if(boxes->second.begin(), boxes->second.end(),
                                  [&](const BoxDigest& known) { return known.box == box; });
  return found == boxes->second.end() ? nullptr : &*found;
}

// The digest of the whole tensor; none if the version does not have it in this form.
std::optional<Digest> tensor_digest_in(const ParentState& version, const TensorSpec& form) {
  if (version.schema == nullptr) return {};
  const auto& tensors = version.schema->tensors;
  const TensorSpec* found = find_tensor(tensors, form.name);
  if (found == nullptr || !same_form(*found, form)) return {};
  return version.manifest->digests[size_t(found - tensors.data())];
}

}  // namespace

bool is_known(const DiffJob& job, const PublishTensor& tensor) {
  return known_digest(job.parent, tensor.view, tensor.box) &&
         (!wants_sums(piece_of(tensor)) || known_sums(job.parent, tensor.view, tensor.box));
}

bool taken_as_unchanged(const DiffJob& job, const PublishTensor& tensor) {
  return tensor.unchanged && is_known(job, tensor);
}

std::string box_of_new_tensor(const std::string& name) {
  return "schema: tensor " + quote(name) +
         " is new or has another dtype or shape, but is published in boxes";
}

// If everything changes, a codec needs six times the memory of its input, and copies need twice as
// much. So a wave takes up to a quarter of the limit, and parts on their way another quarter.
MemoryShares share_memory(uint64_t limit, uint64_t part_bytes) {
  return {limit / 32, limit / 32, std::min(part_bytes, limit / 16), limit / 8};
}

unsigned diff_threads(const Limits& limits) {
  constexpr uint64_t kThreadBytes = uint64_t{24} << 20;  // of a codec if everything changes
  const uint64_t wanted = limits.threads == 0 ? usable_cores() : limits.threads;
  return unsigned(std::clamp<uint64_t>(limits.memory_bytes / 2 / kThreadBytes, 1, wanted));
}

Result<std::vector<PublishTensor>> check_tensors(std::span<const PublishTensor> tensors) {
  std::vector<PublishTensor> checked;
  for (const PublishTensor& tensor : tensors) {
    const TensorView& view = tensor.view;
    const std::string place = "tensor " + quote(view.name);
    if (view.name.empty() || !is_utf8(view.name) || view.name == kMetadataKey) {
      return invalid_argument(place + ": not the name of a tensor");
    }
    DW_RETURN_IF_ERROR(check_box(tensor.box, view.dtype, view.shape).at(place));
    DW_RETURN_IF_ERROR(check_source(tensor).at(place));
    DW_RETURN_IF_ERROR(check_computed(tensor).at(place));
    const Result<uint64_t> size =
        tensor_size_bytes(tensor.source.value_or(view.dtype), box_shape(tensor.box, view.shape));
    if (!size.ok()) return Status(size.status()).at(place);
    const uint64_t given = tensor.computed ? tensor.computed->size() : view.bytes.size();
    if (given != *size) {
      return invalid_argument(place + ": expected " + std::to_string(*size) + " bytes, got " +
                              std::to_string(given));
    }
    checked.push_back(tensor);
    if (*size == 0) checked.back().computed = nullptr;  // no bytes to compute
    checked.back().box = normalise_box(tensor.box, view.shape);
  }
  return checked;
}

std::optional<Digest> known_digest(const ParentState& version, const TensorSpec& form,
                                   const Box& box) {
  const std::optional<Digest> whole = tensor_digest_in(version, form);
  if (!whole) return {};
  if (box.whole() && boxes_hashed(*version.manifest, form.name) == nullptr) return whole;
  const BoxDigest* const known = find_box(*version.manifest, form.name, box);
  return known == nullptr ? std::nullopt : std::optional(known->digest);
}

std::optional<Sums> known_sums(const ParentState& version, const TensorSpec& form, const Box& box) {
  if (!tensor_digest_in(version, form)) return {};
  const BoxDigest* const known = find_box(*version.manifest, form.name, box);
  return known == nullptr ? std::nullopt : known->sums;
}

Result<StateDiff> diff_state(const DiffJob& job, ThreadPool* pool, PartStream* stream) {
  const MemoryShares& shares = job.shares;
  StateDiff diff;
  Work work;
  DW_RETURN_IF_ERROR(plan_work(job, shares.item_bytes, &work, &diff));
  if (!diff.needs_full.empty()) return diff;

  const EncodeOptions encode{job.codec, job.old.hashing(), shares.wave_bytes, job.progress};
  const DiffSink out{job, stream, &diff};
  const auto take = [&](size_t i, EncodedItem outcome) -> Status {
    const EncodeItem& item = work.items[i];
    PieceRecord& piece = diff.pieces[work.piece_of[i]];
    if (outcome.box_sums) {
      if (!piece.sums) piece.sums.emplace();
      piece.sums->add(*outcome.box_sums);
    }
    if (auto& sums = work.sums[work.piece_of[i]]) {
      sums->old_bytes.add(outcome.old_sums);
      sums->new_bytes.add(outcome.new_sums);
    } else {
      piece.digest = outcome.entry.new_digest;
    }
    if (item.comparable) piece.num_elements += outcome.entry.num_elements();
    if (!outcome.changed) return {};
    Payload payload = Payload::own(std::move(outcome.payload));
    if (!item.comparable) {  // it was hashed without a payload
      const bool stream =
          !job.keep && item.computed_bytes == 0 && item.size_bytes() > shares.item_bytes;
      DW_ASSIGN_OR_RETURN(payload,
                          new_tensor_payload(item, job.codec, stream, pool, &outcome.entry));
    }
    return out.add(work.piece_of[i], item.begin, item.size_bytes(), std::move(outcome.entry),
                   std::move(payload));
  };
  Status status = diff_on_device(out, pool);
  if (!diff.needs_full.empty()) return diff;
  if (status.ok()) status = encode_items(work.items, encode, pool, take);
  if (diff.dense) return diff;
  DW_RETURN_IF_ERROR(std::move(status));
  DW_RETURN_IF_ERROR(complete_digests(job, work, pool, &diff.pieces));
  return diff;
}

Status DiffSink::add(size_t piece, uint64_t begin, uint64_t size_bytes, DeltaEntry entry,
                     Payload payload) const {
  PieceRecord& record = diff->pieces[piece];
  record.changed = true;
  record.num_changed += entry.num_changed;
  // a new tensor has no other count
  if (!entry.old_digest) record.num_elements += entry.num_changed;
  if (job.keep) job.keep->add({piece, begin, size_bytes, entry.layout(), entry.codec, payload});
  DW_RETURN_IF_ERROR(stream->add(std::move(entry), std::move(payload)));
  diff->payload_bytes = stream->payload_bytes();
  diff->dense = diff->payload_bytes > job.give_up_bytes;
  return diff->dense ? cancelled("dense") : Status();
}

}  // namespace deltawire
