// From two checkpoints to a delta.
#include <algorithm>
#include <optional>

#include "base/thread_pool.h"
#include "codec/choose.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "format/layout.h"
#include "format/state_digest.h"
#include "sync/delta_reader.h"
#include "sync/delta_writer.h"
#include "sync/waves.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// One tensor of the new checkpoint, and what it was before if that can be compared.
struct Item {
  TensorChange change;
  bool comparable = false;
};

struct Outcome {
  DeltaEntry entry;
  std::vector<uint8_t> payload;
  Digest old_digest;
  bool changed = false;
};

Result<const Codec*> codec_named(const std::string& name) {
  if (name == "auto") return nullptr;
  const Codec* codec = find_codec(name);
  if (codec != nullptr) return codec;
  std::string known = "auto";
  for (const Codec* one : all_codecs()) known += ", " + std::string(one->name());
  return invalid_argument("codec " + quote(name) + " is not known; known: " + known);
}

Status encode_item(const Item& item, const Codec* codec, DigestKind digest, ThreadPool* pool,
                   Outcome* out) {
  const TensorChange& change = item.change;
  DeltaEntry& entry = out->entry;
  entry.tensor = change.name;
  entry.dtype = change.dtype;
  entry.shape = change.shape;
  entry.box = change.box;
  // Old and new are hashed by two threads when the tensor has the pool to itself.
  parallel_for(pool, item.comparable ? 2 : 1, [&](size_t which, unsigned) {
    if (which == 0) entry.new_digest = digest_of(digest, change.new_bytes);
    if (which == 1) out->old_digest = digest_of(digest, change.old_bytes);
  });
  if (!item.comparable) {
    entry.codec = CodecId::kRaw;
    entry.num_changed = change.new_bytes.size() / layout_of(change.dtype).width;
    out->payload.assign(change.new_bytes.begin(), change.new_bytes.end());
    out->changed = true;
    return {};
  }
  const Layout layout = layout_of(change.dtype);
  Choice choice;
  if (codec == nullptr) {
    DW_ASSIGN_OR_RETURN(choice, encode_smallest(layout, change.old_bytes, change.new_bytes, pool));
  } else {
    choice.codec = codec->id();
    DW_ASSIGN_OR_RETURN(choice.encoded,
                        codec->encode(layout, change.old_bytes, change.new_bytes, pool));
  }
  entry.codec = choice.codec;
  entry.num_changed = choice.encoded.num_changed;
  entry.old_digest = out->old_digest;
  out->payload = std::move(choice.encoded.payload);
  out->changed = entry.num_changed != 0;
  return {};
}

// Encodes all items in waves and hands each outcome to `take`, in order.
Status encode_items(const std::vector<Item>& items, const DiffOptions& options,
                    const std::function<Status(Outcome)>& take) {
  DW_ASSIGN_OR_RETURN(const Codec* codec, codec_named(options.codec));
  if (!digest_available(options.digest)) {
    return unsupported("this build has no " + std::string(digest_name(options.digest)));
  }
  ThreadPool pool(options.threads);
  std::vector<uint64_t> sizes;
  for (const Item& item : items) sizes.push_back(item.change.new_bytes.size());
  std::vector<std::optional<Outcome>> outcomes(items.size());
  return Waves(std::move(sizes), Waves::Inside::kShared, &pool, options.progress)
      .run(
          [&](size_t i, ThreadPool* inner) {
            outcomes[i].emplace();
            return encode_item(items[i], codec, options.digest, inner, &*outcomes[i])
                .at("tensor " + quote(items[i].change.name));
          },
          [&](size_t i) -> Status {
            Outcome outcome = std::move(*outcomes[i]);
            outcomes[i].reset();
            return take(std::move(outcome));
          });
}

Result<Checkpoint> open_checkpoint(const std::filesystem::path& path) {
  if (looks_like_delta(path))
    return invalid_argument(path.string() + ": a delta, not a checkpoint");
  return Checkpoint::open(path);
}

bool same_form(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

std::vector<Item> pair_up(const Checkpoint& old_checkpoint, const Checkpoint& new_checkpoint) {
  std::vector<Item> items;
  for (const CheckpointTensor& tensor : new_checkpoint.tensors()) {
    const CheckpointTensor* before = old_checkpoint.find(tensor.view.name);
    Item item;
    item.change = {tensor.view.name, tensor.view.dtype, tensor.view.shape, {}, {},
                   tensor.view.bytes};
    item.comparable = before != nullptr && same_form(before->view, tensor.view);
    if (item.comparable) item.change.old_bytes = before->view.bytes;
    items.push_back(std::move(item));
  }
  return items;
}

// Tensors of the old checkpoint that have no counterpart still count in the digest of the base.
Status add_unpaired(const Checkpoint& old_checkpoint, const Checkpoint& new_checkpoint,
                    DigestKind digest, std::vector<TensorState>* base,
                    std::vector<std::string>* removed) {
  for (const CheckpointTensor& tensor : old_checkpoint.tensors()) {
    const CheckpointTensor* after = new_checkpoint.find(tensor.view.name);
    if (after != nullptr && same_form(after->view, tensor.view)) continue;
    base->push_back({tensor.view.name, tensor.view.dtype, tensor.view.shape,
                     digest_of(digest, tensor.view.bytes)});
    if (after == nullptr) removed->push_back(tensor.view.name);
  }
  return {};
}

void count(const Outcome& outcome, bool comparable, DiffReport* report) {
  ++report->num_tensors;
  if (comparable) {
    report->num_elements += outcome.entry.num_elements();
    report->num_changed += outcome.entry.num_changed;
    report->num_changed_tensors += outcome.changed;
  } else {
    ++report->num_added;
  }
  report->weights_bytes += outcome.entry.box_bytes();
}

}  // namespace

Result<DiffReport> diff_checkpoints(const std::filesystem::path& old_path,
                                    const std::filesystem::path& new_path,
                                    const std::filesystem::path& out, const DiffOptions& options) {
  if (options.part_bytes == 0) return invalid_argument("a part must have a size");
  DW_ASSIGN_OR_RETURN(const Checkpoint old_checkpoint, open_checkpoint(old_path));
  DW_ASSIGN_OR_RETURN(const Checkpoint new_checkpoint, open_checkpoint(new_path));
  DW_ASSIGN_OR_RETURN(DeltaWriter writer, DeltaWriter::create(out, options.part_bytes));
  const std::vector<Item> items = pair_up(old_checkpoint, new_checkpoint);
  DiffReport report;
  std::vector<TensorState> base, target;
  size_t next = 0;
  DW_RETURN_IF_ERROR(encode_items(items, options, [&](Outcome outcome) -> Status {
    const bool comparable = items[next++].comparable;
    const DeltaEntry& entry = outcome.entry;
    count(outcome, comparable, &report);
    if (comparable) base.push_back({entry.tensor, entry.dtype, entry.shape, outcome.old_digest});
    target.push_back({entry.tensor, entry.dtype, entry.shape, entry.new_digest});
    if (!outcome.changed) return {};
    return writer.add(std::move(outcome.entry), std::move(outcome.payload));
  }));
  DeltaInfo info;
  info.digest_kind = options.digest;
  DW_RETURN_IF_ERROR(
      add_unpaired(old_checkpoint, new_checkpoint, options.digest, &base, &info.removed));
  info.base = report.base = state_digest(std::move(base));
  info.target = report.target = state_digest(std::move(target));
  DW_RETURN_IF_ERROR(writer.finish(info));
  report.num_removed = info.removed.size();
  report.delta_bytes = writer.bytes_written();
  report.num_parts = writer.num_parts();
  return report;
}

Result<DiffReport> write_part(const std::filesystem::path& out,
                              const std::vector<TensorChange>& changes, const Digest& base,
                              const Digest& target, const DiffOptions& options) {
  if (out.extension() != ".safetensors") {
    return invalid_argument(out.string() + ": a part's name ends in .safetensors");
  }
  std::vector<Item> items;
  for (const TensorChange& change : changes) {
    const std::string place = "tensor " + quote(change.name);
    DW_RETURN_IF_ERROR(check_box(change.box, change.dtype, change.shape).at(place));
    DW_ASSIGN_OR_RETURN(const uint64_t size,
                        tensor_size_bytes(change.dtype, box_shape(change.box, change.shape)));
    if (change.old_bytes.size() != size || change.new_bytes.size() != size) {
      return invalid_argument(place + ": expected " + std::to_string(size) +
                              " bytes before and after, got " +
                              std::to_string(change.old_bytes.size()) + " and " +
                              std::to_string(change.new_bytes.size()));
    }
    items.push_back({change, true});
  }
  DW_ASSIGN_OR_RETURN(DeltaWriter writer, DeltaWriter::create(out, UINT64_MAX));
  DiffReport report;
  DW_RETURN_IF_ERROR(encode_items(items, options, [&](Outcome outcome) -> Status {
    count(outcome, true, &report);
    if (!outcome.changed) return {};
    return writer.add(std::move(outcome.entry), std::move(outcome.payload));
  }));
  report.base = base;
  report.target = target;
  DW_RETURN_IF_ERROR(writer.finish({options.digest, base, target, {}}));
  report.delta_bytes = writer.bytes_written();
  report.num_parts = writer.num_parts();
  return report;
}

}  // namespace deltawire
