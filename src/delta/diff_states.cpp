
#include <map>
#include <set>

#include "base/thread_pool.h"
#include "delta/delta_writer.h"
#include "delta/encode_items.h"
#include "delta/tracker.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "format/state_digest.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

std::vector<EncodeItem> pair_up(std::span<const TensorView> old_state,
                                std::span<const TensorView> new_state) {
  std::vector<EncodeItem> items;
  for (const TensorView& tensor : new_state) {
    const TensorView* before = find_tensor(old_state, tensor.name);
    EncodeItem item;
    item.change = {tensor, {}, {}, tensor.bytes};
    item.comparable = before != nullptr && same_form(*before, tensor);
    if (item.comparable) item.change.old_bytes = before->bytes;
    items.push_back(std::move(item));
  }
  return items;
}

// Tensors of the old state without a counterpart are part of the base's digest.
void add_unpaired(std::span<const TensorView> old_state, std::span<const TensorView> new_state,
                  std::vector<TensorState>* base, std::vector<std::string>* removed) {
  for (const TensorView& tensor : old_state) {
    const TensorView* after = find_tensor(new_state, tensor.name);
    if (after != nullptr && same_form(*after, tensor)) continue;
    base->push_back({tensor, digest_of(DigestKind::kSum128, tensor.bytes)});
    if (after == nullptr) removed->push_back(tensor.name);
  }
}

void count_entry(const DeltaEntry& entry, bool comparable, bool changed, DiffReport* report) {
  ++report->num_tensors;
  if (comparable) {
    report->num_elements += entry.num_elements();
    report->num_changed += entry.num_changed;
    report->num_changed_tensors += changed;
  } else {
    ++report->num_added;
    report->whole_bytes += entry.box_bytes();
  }
  report->weights_bytes += entry.box_bytes();
}

}  // namespace

Result<DeltaSummary> diff_states(
    std::span<const TensorView> old_state, std::span<const TensorView> new_state,
    const DiffOptions& options, const Progress& progress, ThreadPool* pool,
    const std::function<Status(DeltaEntry entry, std::vector<uint8_t> payload)>& add) {
  const std::vector<EncodeItem> items = pair_up(old_state, new_state);
  DeltaSummary diff;
  std::vector<TensorState> base, target;
  const auto take = [&](size_t i, EncodedItem outcome) -> Status {
    const bool comparable = items[i].comparable;
    const DeltaEntry& entry = outcome.entry;
    count_entry(entry, comparable, outcome.changed, &diff.report);
    if (comparable) base.push_back({entry.tensor, entry.dtype, entry.shape, outcome.old_digest});
    target.push_back({entry.tensor, entry.dtype, entry.shape, entry.new_digest});
    if (!outcome.changed) return {};
    return add(std::move(outcome.entry), std::move(outcome.payload));
  };
  DW_RETURN_IF_ERROR(
      encode_items(items, {options.codec, Hashing::kAll, UINT64_MAX, progress}, pool, take));
  add_unpaired(old_state, new_state, &base, &diff.info.removed);
  diff.info.base = diff.report.base = state_digest(std::move(base));
  diff.info.target = diff.report.target = state_digest(std::move(target));
  diff.report.num_removed = diff.info.removed.size();
  return diff;
}

// From two checkpoints to a delta.

namespace {

std::vector<TensorView> views_of(const Checkpoint& checkpoint) {
  std::vector<TensorView> views;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) views.push_back(tensor.view);
  return views;
}

// The keys of `__metadata__` whose values differ, in any of the files.
std::vector<std::string> different_metadata(const Checkpoint& a, const Checkpoint& b) {
  const auto values_of = [](const Checkpoint& checkpoint) {
    std::map<std::string, std::set<std::string>> values;
    for (const CheckpointFile& file : checkpoint.files()) {
      for (const auto& [key, value] : file.metadata) values[key].insert(value);
    }
    return values;
  };
  const auto left = values_of(a), right = values_of(b);
  std::set<std::string> keys;
  for (const auto& [key, values] : left) {
    const auto found = right.find(key);
    if (found == right.end() || found->second != values) keys.insert(key);
  }
  for (const auto& [key, values] : right) {
    if (!left.contains(key)) keys.insert(key);
  }
  return {keys.begin(), keys.end()};
}

Status refuse_checkpoint_as_output(const std::filesystem::path& out, const Checkpoint& input) {
  std::vector<std::filesystem::path> files;
  for (const CheckpointFile& file : input.files()) files.push_back(file.path);
  return refuse_input(out, input.path(), files);
}

}  // namespace

Result<DiffReport> diff_checkpoints(const std::filesystem::path& old_path,
                                    const std::filesystem::path& new_path,
                                    const std::filesystem::path& out, const DiffOptions& options) {
  if (options.part_bytes == 0) return invalid_argument("a part must have a size");
  DW_ASSIGN_OR_RETURN(const Checkpoint old_checkpoint, open_checkpoint(old_path));
  DW_ASSIGN_OR_RETURN(const Checkpoint new_checkpoint, open_checkpoint(new_path));
  DW_RETURN_IF_ERROR(refuse_checkpoint_as_output(out, old_checkpoint));
  DW_RETURN_IF_ERROR(refuse_checkpoint_as_output(out, new_checkpoint));
  Tracker tracker(options.progress, new_checkpoint.data_bytes());
  DW_ASSIGN_OR_RETURN(DeltaWriter writer,
                      DeltaWriter::create(out, options.part_bytes, tracker.poll()));
  ThreadPool pool(options.threads);
  DW_ASSIGN_OR_RETURN(
      DeltaSummary diff,
      diff_states(views_of(old_checkpoint), views_of(new_checkpoint), options, tracker.stage(),
                  &pool, [&](DeltaEntry entry, std::vector<uint8_t> payload) {
                    return writer.add(std::move(entry), std::move(payload));
                  }));
  DW_RETURN_IF_ERROR(old_checkpoint.check_unchanged());
  DW_RETURN_IF_ERROR(new_checkpoint.check_unchanged());
  DW_RETURN_IF_ERROR(writer.finish(diff.info));
  DiffReport report = std::move(diff.report);
  report.metadata_changed = different_metadata(old_checkpoint, new_checkpoint);
  report.delta_bytes = writer.bytes_written();
  report.num_parts = writer.num_parts();
  return report;
}

Result<DiffReport> write_part(const std::filesystem::path& out,
                              const std::vector<TensorChange>& changes, const Digest& base,
                              const Digest& target, const DiffOptions& options) {
  if (!is_single_part(out)) {
    return invalid_argument(out.string() + ": a part's name ends in .safetensors");
  }
  std::vector<EncodeItem> items;
  uint64_t total = 0;
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
    items.push_back({change, true, {}});
    total += size;
  }
  Tracker tracker(options.progress, total);
  DW_ASSIGN_OR_RETURN(DeltaWriter writer, DeltaWriter::create(out, UINT64_MAX, tracker.poll()));
  DiffReport report;
  const auto take = [&](size_t, EncodedItem outcome) -> Status {
    count_entry(outcome.entry, true, outcome.changed, &report);
    if (!outcome.changed) return {};
    return writer.add(std::move(outcome.entry), std::move(outcome.payload));
  };
  ThreadPool pool(options.threads);
  DW_RETURN_IF_ERROR(encode_items(
      items, {options.codec, Hashing::kAll, UINT64_MAX, tracker.stage()}, &pool, take));
  report.base = base;
  report.target = target;
  DW_RETURN_IF_ERROR(writer.finish({base, target, {}}));
  report.delta_bytes = writer.bytes_written();
  report.num_parts = writer.num_parts();
  return report;
}

}  // namespace deltawire
