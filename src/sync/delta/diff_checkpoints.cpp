// From two checkpoints to a delta.
#include <map>
#include <set>

#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "format/state_digest.h"
#include "sync/delta/delta_writer.h"
#include "sync/delta/encode_items.h"
#include "sync/delta/open_checkpoint.h"
#include "sync/delta/output.h"
#include "sync/delta/tracker.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

EncodeOptions encode_options(const DiffOptions& options, Tracker* tracker) {
  return {options.codec, options.digest, Hashing::kAll, UINT64_MAX, tracker->stage()};
}

bool same_form(const TensorView& a, const TensorView& b) {
  return a.dtype == b.dtype && a.shape == b.shape;
}

std::vector<EncodeItem> pair_up(const Checkpoint& old_checkpoint,
                                const Checkpoint& new_checkpoint) {
  std::vector<EncodeItem> items;
  for (const CheckpointTensor& tensor : new_checkpoint.tensors()) {
    const CheckpointTensor* before = old_checkpoint.find(tensor.view.name);
    EncodeItem item;
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
                     digest_of(state_digest_kind(digest), tensor.view.bytes)});
    if (after == nullptr) removed->push_back(tensor.view.name);
  }
  return {};
}

// The keys of `__metadata__` whose values are not the same in both, whichever file they stand in.
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

void count(const EncodedItem& outcome, bool comparable, DiffReport* report) {
  ++report->num_tensors;
  if (comparable) {
    report->num_elements += outcome.entry.num_elements();
    report->num_changed += outcome.entry.num_changed;
    report->num_changed_tensors += outcome.changed;
  } else {
    ++report->num_added;
    report->whole_bytes += outcome.entry.box_bytes();
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
  DW_RETURN_IF_ERROR(refuse_checkpoint_as_output(out, old_checkpoint));
  DW_RETURN_IF_ERROR(refuse_checkpoint_as_output(out, new_checkpoint));
  Tracker tracker(options.progress, new_checkpoint.data_bytes());
  DW_ASSIGN_OR_RETURN(DeltaWriter writer,
                      DeltaWriter::create(out, options.part_bytes, tracker.poll()));
  const std::vector<EncodeItem> items = pair_up(old_checkpoint, new_checkpoint);
  DiffReport report;
  report.metadata_changed = different_metadata(old_checkpoint, new_checkpoint);
  std::vector<TensorState> base, target;
  const auto take = [&](size_t i, EncodedItem outcome) -> Status {
    const bool comparable = items[i].comparable;
    const DeltaEntry& entry = outcome.entry;
    count(outcome, comparable, &report);
    if (comparable) base.push_back({entry.tensor, entry.dtype, entry.shape, outcome.old_state});
    target.push_back({entry.tensor, entry.dtype, entry.shape, outcome.new_state});
    if (!outcome.changed) return {};
    if (!comparable) {
      outcome.payload.assign(items[i].change.new_bytes.begin(), items[i].change.new_bytes.end());
    }
    return writer.add(std::move(outcome.entry), std::move(outcome.payload));
  };
  ThreadPool pool(options.threads);
  DW_RETURN_IF_ERROR(encode_items(items, encode_options(options, &tracker), &pool, take));
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
    count(outcome, true, &report);
    if (!outcome.changed) return {};
    return writer.add(std::move(outcome.entry), std::move(outcome.payload));
  };
  ThreadPool pool(options.threads);
  DW_RETURN_IF_ERROR(encode_items(items, encode_options(options, &tracker), &pool, take));
  report.base = base;
  report.target = target;
  DW_RETURN_IF_ERROR(writer.finish({options.digest, base, target, {}}));
  report.delta_bytes = writer.bytes_written();
  report.num_parts = writer.num_parts();
  return report;
}

}  // namespace deltawire
