// Compares and encodes the tensors of a publish that are on a GPU.
#include <functional>
#include <map>

#include "codec/choose.h"
#include "diff/diff.h"
#include "diff/hash_state.h"
#include "format/layout.h"
#include "format/tensor_digest.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// A tensor whose committed state is on the device, too.
struct Item {
  size_t piece;
  std::shared_ptr<const PublishDevice::Held> before;
};

DeltaEntry entry_of(const DiffSink& out, size_t piece) {
  const PublishTensor& tensor = out.job.tensors[piece];
  DeltaEntry entry;
  entry.tensor = tensor.view.name;
  entry.dtype = tensor.view.dtype;
  entry.shape = tensor.view.shape;
  entry.box = tensor.box;
  return entry;
}

Result<std::vector<uint8_t>> fetch(PublishDevice* device, const PublishTensor& tensor) {
  std::vector<uint8_t> bytes(published_bytes(tensor));
  DW_RETURN_IF_ERROR(device->fetch(tensor, 0, bytes));
  return bytes;
}

Status add_whole(const DiffSink& out, size_t piece) {
  const PublishTensor& tensor = out.job.tensors[piece];
  DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, fetch(out.job.device, tensor));
  DeltaEntry entry = entry_of(out, piece);
  DW_ASSIGN_OR_RETURN(Choice whole, encode_whole_array(layout_of(entry.dtype), bytes,
                                                       out.job.codec == "raw", nullptr));
  entry.codec = whole.codec;
  entry.num_changed = entry.num_elements();
  entry.new_digest = digest_of(DigestKind::kSum128, bytes);
  out.diff->pieces[piece].digest = entry.new_digest;
  return out.add(piece, 0, bytes.size(), std::move(entry),
                 Payload::own(std::move(whole.encoded.payload)));
}

// Encoded tensors and their digests; unchanged tensors may have none.
struct Encodings {
  std::vector<cuda::Coded> coded;
  std::map<size_t, Sums> sums;  // of items that need them
};

// For codecs without kernels: fetches one tensor at a time and encodes it on the CPU.
Result<Encodings> encode_on_host(const DiffSink& out, std::span<const Item> items,
                                 ThreadPool* pool) {
  const Codec& codec = *find_codec(out.job.codec);
  Encodings all;
  for (const Item& item : items) {
    const PublishTensor& tensor = out.job.tensors[item.piece];
    std::vector<uint8_t> before(item.before->size_bytes());
    DW_RETURN_IF_ERROR(item.before->read(before));
    DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> after, fetch(out.job.device, tensor));
    DW_ASSIGN_OR_RETURN(
        Encoded encoded,
        codec.encode(layout_of(tensor.view.dtype, box_shape(tensor.box, tensor.view.shape)), before,
                     after, pool));
    const bool changed = encoded.num_changed != 0;
    if (changed && wants_sums(out.diff->pieces[item.piece])) {
      const BoxRows rows(tensor.box, tensor.view.dtype, tensor.view.shape);
      DW_ASSIGN_OR_RETURN(all.sums[all.coded.size()], sums_of_box(rows, after, pool));
    }
    all.coded.push_back(
        {std::string(codec.name()), std::move(encoded.payload), encoded.num_changed, {}});
    if (changed) all.coded.back().new_digest = digest_of(DigestKind::kSum128, after);
  }
  return all;
}

// The digests are of what was encoded.
Result<Encodings> encode_there(const DiffSink& out, std::span<const Item> items,
                               const std::function<Status()>& half_done) {
  std::vector<PublishDevice::Comparison> comparisons;
  std::vector<const PublishTensor*> tensors;
  for (const Item& item : items) {
    tensors.push_back(&out.job.tensors[item.piece]);
    comparisons.push_back({item.before.get(), tensors.back()});
  }
  Encodings all;
  DW_ASSIGN_OR_RETURN(all.coded, out.job.device->encode(out.job.codec, comparisons));
  DW_RETURN_IF_ERROR(half_done());
  std::vector<const PublishTensor*> boxes;
  std::vector<size_t> boxes_at;
  for (size_t i = 0; i < items.size(); ++i) {
    if (all.coded[i].num_changed == 0) continue;
    if (!wants_sums(out.diff->pieces[items[i].piece])) continue;
    boxes.push_back(tensors[i]);
    boxes_at.push_back(i);
  }
  DW_ASSIGN_OR_RETURN(std::vector<Sums> sums, out.job.device->sums(boxes));
  for (size_t i = 0; i < sums.size(); ++i) all.sums[boxes_at[i]] = std::move(sums[i]);
  return all;
}

// If the trainer continued too early, payloads contain half-written tensors or a mixture of steps.
// They are one state if all digests are still the same now.
Status look_again(const DiffSink& out, std::span<const size_t> pieces) {
  if (pieces.empty()) return {};  // there may be no device
  std::vector<const PublishTensor*> tensors;
  for (const size_t piece : pieces) tensors.push_back(&out.job.tensors[piece]);
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> now, out.job.device->digests(tensors));
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (now[i] == out.diff->pieces[pieces[i]].digest) continue;
    return changed_on_device(*tensors[i]);
  }
  return {};
}

Status diff_wave(const DiffSink& out, std::span<const Item> items, ThreadPool* pool,
                 const std::function<Status()>& half_done) {
  DW_ASSIGN_OR_RETURN(Encodings all, cuda::has_codec(out.job.codec)
                                         ? encode_there(out, items, half_done)
                                         : encode_on_host(out, items, pool));
  uint64_t payload_bytes = 0;
  for (const cuda::Coded& coded : all.coded) payload_bytes += coded.payload.size();
  out.stream->expect(payload_bytes);
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t piece = items[i].piece;
    PieceRecord& record = out.diff->pieces[piece];
    DeltaEntry entry = entry_of(out, piece);
    record.num_elements = entry.num_elements();
    entry.old_digest = known_digest(out.job.parent, out.job.tensors[piece].view, record.box);
    if (!entry.old_digest) {  // the boxes were different before
      const PublishDevice::Held* const held = items[i].before.get();
      DW_ASSIGN_OR_RETURN(const std::vector<Digest> old, out.job.device->digests({&held, 1}));
      entry.old_digest = old[0];
    }
    cuda::Coded& coded = all.coded[i];
    if (coded.num_changed == 0) {
      record.digest = *entry.old_digest;
      record.sums = known_sums(out.job.parent, out.job.tensors[piece].view, record.box);
      if (!record.sums && wants_sums(record)) {
        const PublishTensor* const tensor = &out.job.tensors[piece];
        DW_ASSIGN_OR_RETURN(std::vector<Sums> sums, out.job.device->sums({&tensor, 1}));
        record.sums = std::move(sums[0]);
      }
      continue;
    }
    record.digest = entry.new_digest = coded.new_digest.value();
    if (const auto sums = all.sums.find(i); sums != all.sums.end()) record.sums = sums->second;
    entry.codec = find_codec(coded.codec)->id();
    entry.num_changed = coded.num_changed;
    DW_RETURN_IF_ERROR(out.add(piece, 0, items[i].before->size_bytes(), std::move(entry),
                               out.job.device->own(std::move(coded.payload))));
  }
  out.stream->expect_no_more();
  return {};
}

}  // namespace

Status diff_on_device(const DiffSink& out, ThreadPool* pool) {
  const DiffJob& job = out.job;
  std::vector<size_t> pieces;
  std::vector<Item> items;
  uint64_t total = 0, done = 0;
  for (size_t piece = 0; piece < job.tensors.size(); ++piece) {
    const PublishTensor& tensor = job.tensors[piece];
    if (!on_device(tensor) || taken_as_unchanged(job, tensor)) continue;
    DW_ASSIGN_OR_RETURN(std::optional<OldPiece> old, job.old.find(tensor.view, tensor.box));
    pieces.push_back(piece);
    if (old) {
      items.push_back({piece, old->on_device});
      total += old->on_device->size_bytes();
    } else if (!tensor.box.whole()) {
      out.diff->needs_full = box_of_new_tensor(tensor.view.name);
      return {};
    } else {
      DW_RETURN_IF_ERROR(add_whole(out, piece).at("tensor " + quote(tensor.view.name)));
    }
  }
  for (size_t begin = 0; begin < items.size();) {
    size_t end = begin;
    uint64_t bytes = 0;
    while (end < items.size() && (end == begin || bytes < job.device->wave_bytes())) {
      bytes += items[end++].before->size_bytes();
    }
    const auto report = [&](uint64_t so_far) -> Status {
      if (!job.progress || job.progress(so_far, total)) return {};
      return cancelled("stopped on request");
    };
    const auto wave = std::span<const Item>(items).subspan(begin, end - begin);
    DW_RETURN_IF_ERROR(diff_wave(out, wave, pool, [&] { return report(done + bytes / 2); }));
    done += bytes;
    begin = end;
    DW_RETURN_IF_ERROR(report(done));
  }
  return look_again(out, pieces);
}

}  // namespace deltawire
