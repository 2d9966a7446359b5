// The tensors of a publish that are on a GPU: compared and encoded there, many in one go.
#include "format/layout.h"
#include "sync/publisher/diff.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Of weights: enough to keep the device busy, few enough for the network to have work early.
constexpr uint64_t kWaveBytes = uint64_t{4} << 30;

// A tensor that the device holds in its committed state too.
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
  DW_ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, fetch(out.job.device, tensor));
  DeltaEntry entry = entry_of(out, piece);
  entry.codec = CodecId::kRaw;
  entry.num_changed = entry.num_elements();
  entry.new_digest = digest_of(out.job.parent.manifest->digest_kind, bytes);
  out.diff->record.pieces[piece].digest = entry.new_digest;
  const uint64_t size = bytes.size();
  return out.add(piece, 0, size, std::move(entry), Payload::own(std::move(bytes)));
}

// Codecs that no GPU has: fetched and left to the CPU, one tensor at a time.
Result<std::vector<cuda::Coded>> encode_on_host(const DiffSink& out, std::span<const Item> items,
                                                ThreadPool* pool) {
  const Codec& codec = *find_codec(out.job.options.codec);
  std::vector<cuda::Coded> all;
  for (const Item& item : items) {
    const PublishTensor& tensor = out.job.tensors[item.piece];
    std::vector<uint8_t> before(item.before->size_bytes());
    DW_RETURN_IF_ERROR(item.before->read(before));
    DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> after, fetch(out.job.device, tensor));
    DW_ASSIGN_OR_RETURN(Encoded encoded,
                        codec.encode(layout_of(tensor.view.dtype), before, after, pool));
    all.push_back({std::string(codec.name()), std::move(encoded.payload), encoded.num_changed});
  }
  return all;
}

Result<std::vector<cuda::Coded>> encode(const DiffSink& out, std::span<const Item> items,
                                        ThreadPool* pool) {
  const std::string& codec = out.job.options.codec;
  if (!cuda::has_codec(codec)) return encode_on_host(out, items, pool);
  std::vector<PublishDevice::Comparison> comparisons;
  for (const Item& item : items) {
    comparisons.push_back({item.before.get(), &out.job.tensors[item.piece]});
  }
  return out.job.device->encode(codec, comparisons);
}

Status diff_wave(const DiffSink& out, std::span<const Item> items, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(std::vector<cuda::Coded> coded, encode(out, items, pool));
  std::vector<const PublishTensor*> changed;
  for (size_t i = 0; i < items.size(); ++i) {
    if (coded[i].num_changed != 0) changed.push_back(&out.job.tensors[items[i].piece]);
  }
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                      out.job.device->digests(out.job.parent.manifest->digest_kind, changed));
  size_t next = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t piece = items[i].piece;
    PieceRecord& record = out.diff->record.pieces[piece];
    DeltaEntry entry = entry_of(out, piece);
    record.num_elements = entry.num_elements();
    entry.old_digest = known_digest(out.job.parent, out.job.tensors[piece].view, record.box);
    if (coded[i].num_changed == 0) {
      if (entry.old_digest) record.digest = *entry.old_digest;
      continue;
    }
    if (!entry.old_digest) {  // boxes that were cut otherwise before
      std::vector<uint8_t> before(items[i].before->size_bytes());
      DW_RETURN_IF_ERROR(items[i].before->read(before));
      entry.old_digest = digest_of(out.job.parent.manifest->digest_kind, before);
    }
    record.digest = entry.new_digest = digests[next++];
    entry.codec = find_codec(coded[i].codec)->id();
    entry.num_changed = coded[i].num_changed;
    DW_RETURN_IF_ERROR(out.add(piece, 0, items[i].before->size_bytes(), std::move(entry),
                               Payload::own(std::move(coded[i].payload))));
  }
  return {};
}

}  // namespace

Status diff_on_device(const DiffSink& out, ThreadPool* pool) {
  const DiffJob& job = out.job;
  std::vector<Item> items;
  uint64_t total = 0, done = 0;
  for (size_t piece = 0; piece < job.tensors.size(); ++piece) {
    const PublishTensor& tensor = job.tensors[piece];
    if (!on_device(tensor) || taken_as_unchanged(job, tensor)) continue;
    DW_ASSIGN_OR_RETURN(std::optional<OldPiece> old, job.snapshot.find(tensor.view, tensor.box));
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
    while (end < items.size() && (end == begin || bytes < kWaveBytes)) {
      bytes += items[end++].before->size_bytes();
    }
    DW_RETURN_IF_ERROR(
        diff_wave(out, std::span<const Item>(items).subspan(begin, end - begin), pool));
    done += bytes;
    begin = end;
    if (job.options.progress && !job.options.progress(done, total)) {
      return cancelled("stopped on request");
    }
  }
  return {};
}

}  // namespace deltawire
