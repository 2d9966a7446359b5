#include "delta/encode_items.h"
#include "deltawire/delta.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "base/waves.h"
#include "codec/changes.h"
#include "codec/codec.h"
#include "delta/apply_plan.h"
#include "delta/delta_reader.h"
#include "delta/delta_writer.h"
#include "delta/tracker.h"
#include "digest/parallel.h"
#include "format/layout.h"
#include "format/state_digest.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Sorts by name. InvalidArgument if a size is wrong or a name appears twice.
Result<std::vector<TensorView>> sorted_state(std::span<const TensorView> state) {
  std::vector<TensorView> sorted(state.begin(), state.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const TensorView& a, const TensorView& b) { return a.name < b.name; });
  for (size_t i = 0; i < sorted.size(); ++i) {
    const std::string place = "tensor " + quote(sorted[i].name);
    const Result<uint64_t> size = tensor_size_bytes(sorted[i].dtype, sorted[i].shape);
    if (!size.ok()) return Status(size.status()).at(place);
    if (*size != sorted[i].bytes.size()) {
      return invalid_argument(place + ": expected " + std::to_string(*size) + " bytes, got " +
                              std::to_string(sorted[i].bytes.size()));
    }
    if (i > 0 && sorted[i].name == sorted[i - 1].name) {
      return invalid_argument(place + ": is given twice");
    }
  }
  return sorted;
}

}  // namespace

struct TensorDelta::Impl {
  Delta delta;
  std::vector<std::vector<uint8_t>> payloads;  // of entries that do not come from a file
  std::vector<TensorDeltaEntry> entries;

  void summarise() {  // fills `entries` from `delta`
    for (const Delta::Entry& item : delta.entries) {
      const DeltaEntry& entry = item.entry;
      entries.push_back({entry.tensor, entry.dtype, entry.shape, entry.box,
                         std::string(find_codec(entry.codec)->name()), !entry.old_digest,
                         entry.num_changed, entry.num_elements(), item.payload.size()});
    }
  }
};

TensorDelta::TensorDelta(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<TensorDelta> TensorDelta::diff(std::span<const TensorView> old_state,
                                      std::span<const TensorView> new_state,
                                      const DiffOptions& options) {
  DW_ASSIGN_OR_RETURN(const std::vector<TensorView> before, sorted_state(old_state));
  DW_ASSIGN_OR_RETURN(const std::vector<TensorView> after, sorted_state(new_state));
  auto impl = std::make_shared<Impl>();
  ThreadPool pool(options.threads);
  const auto add = [&](DeltaEntry entry, std::vector<uint8_t> payload) -> Status {
    impl->payloads.push_back(std::move(payload));
    std::string place = "tensor " + quote(entry.tensor);
    impl->delta.entries.push_back({std::move(entry), impl->payloads.back(), std::move(place)});
    return {};
  };
  DW_ASSIGN_OR_RETURN(DeltaSummary diff,
                      diff_states(before, after, options, options.progress, &pool, add));
  impl->delta.info = std::move(diff.info);
  impl->summarise();
  return TensorDelta(std::move(impl));
}

Result<TensorDelta> TensorDelta::open(const std::filesystem::path& path) {
  auto impl = std::make_shared<Impl>();
  DW_ASSIGN_OR_RETURN(impl->delta, open_delta(path));
  impl->summarise();
  return TensorDelta(std::move(impl));
}

Status TensorDelta::save(const std::filesystem::path& out, const DiffOptions& options) const {
  if (options.part_bytes == 0) return invalid_argument("a part must have a size");
  Tracker tracker(options.progress, payload_bytes());
  DW_ASSIGN_OR_RETURN(DeltaWriter writer,
                      DeltaWriter::create(out, options.part_bytes, tracker.poll()));
  for (const Delta::Entry& item : impl_->delta.entries) {
    DW_RETURN_IF_ERROR(writer.add(item.entry, {item.payload.begin(), item.payload.end()}));
  }
  return writer.finish(impl_->delta.info);
}

const std::vector<TensorDeltaEntry>& TensorDelta::entries() const noexcept {
  return impl_->entries;
}
const std::vector<std::string>& TensorDelta::removed() const noexcept {
  return impl_->delta.info.removed;
}
const Digest& TensorDelta::base() const noexcept { return impl_->delta.info.base; }
const Digest& TensorDelta::target() const noexcept { return impl_->delta.info.target; }

uint64_t TensorDelta::payload_bytes() const noexcept {
  uint64_t bytes = 0;
  for (const Delta::Entry& item : impl_->delta.entries) bytes += item.payload.size();
  return bytes;
}

// Applying a delta to tensors in memory: everything is proven before anything is written.

namespace {

// A tensor and its new values: as pairs or, if those would be larger, as a whole.
struct Patched {
  std::span<const Delta::Entry> entries;
  MutableBytes bytes;
  Changes changes;
  std::vector<uint8_t> whole;
  Digest state;
};

bool fits_pairs(const Patched& tensor) {
  const DeltaEntry& first = tensor.entries[0].entry;
  return first.box.whole() &&
         first.num_changed * (sizeof(uint64_t) + layout_of(first.dtype).width) <=
             tensor.bytes.size();
}

Status stage_pairs(Patched* tensor, ThreadPool* pool) {
  const Delta::Entry& item = tensor->entries[0];
  const Layout layout = item.entry.layout();
  auto changes = find_codec(item.entry.codec)->decode(layout, item.payload, tensor->bytes, pool);
  if (!changes.ok()) return std::move(changes).status().at(item.place);
  tensor->changes = std::move(changes).value();
  tensor->state = digests_around(sums_of(tensor->bytes, 0, pool), layout.width, tensor->bytes,
                                 {tensor->changes.positions, tensor->changes.values}, pool)
                      .after;
  return check_new_digest(item, tensor->state);
}

Status stage_whole(Patched* tensor, ThreadPool* pool) {
  tensor->whole.assign(tensor->bytes.begin(), tensor->bytes.end());
  for (const Delta::Entry& item : tensor->entries) {
    DW_RETURN_IF_ERROR(apply_checked(item, tensor->whole, pool));
  }
  tensor->state = digest_of(DigestKind::kSum128, tensor->whole);
  return {};
}

Status write(const Patched& tensor, ThreadPool* pool) {
  if (tensor.whole.empty()) {
    const unsigned width = layout_of(tensor.entries[0].entry.dtype).width;
    return scatter_changes(width, tensor.changes, tensor.bytes, pool);
  }
  std::copy(tensor.whole.begin(), tensor.whole.end(), tensor.bytes.begin());
  return {};
}

Status refuse_other_forms(const Delta& delta) {
  for (const Delta::Entry& item : delta.entries) {
    if (!item.entry.old_digest) {
      return invalid_argument(
          item.place +
          ": the delta adds this tensor; tensors in memory can be patched, but not added");
    }
  }
  if (delta.info.removed.empty()) return {};
  return invalid_argument(
      "tensor " + quote(delta.info.removed[0]) +
      ": the delta removes this tensor; tensors in memory can be patched, but not removed");
}

std::vector<CheckpointTensor> sorted_views(std::span<const LiveTensor> state) {
  std::vector<CheckpointTensor> views;
  for (const LiveTensor& tensor : state) {
    views.push_back({{tensor.name, tensor.dtype, tensor.shape, tensor.bytes}, 0, 0});
  }
  std::sort(views.begin(), views.end(), [](const CheckpointTensor& a, const CheckpointTensor& b) {
    return a.view.name < b.view.name;
  });
  return views;
}

// Entries of one tensor are adjacent. The base was checked, so every entry has its tensor.
std::vector<Patched> collect(const Delta& delta, std::span<const CheckpointTensor> views) {
  std::vector<Patched> tensors;
  for (size_t begin = 0; begin < delta.entries.size();) {
    size_t end = begin;
    const std::string& name = delta.entries[begin].entry.tensor;
    while (end < delta.entries.size() && delta.entries[end].entry.tensor == name) ++end;
    const std::span<const uint8_t> bytes = find_tensor(views, name)->view.bytes;
    Patched tensor;
    tensor.entries = std::span(delta.entries).subspan(begin, end - begin);
    // the memory belongs to a LiveTensor
    tensor.bytes = {const_cast<uint8_t*>(bytes.data()), bytes.size()};
    tensors.push_back(std::move(tensor));
    begin = end;
  }
  return tensors;
}

Digest state_after(std::vector<TensorState> states, const std::vector<Patched>& tensors) {
  for (const Patched& tensor : tensors) {
    find_tensor(states, tensor.entries[0].entry.tensor)->digest = tensor.state;
  }
  return state_digest(std::move(states));
}

}  // namespace

Result<ApplyReport> TensorDelta::apply(std::span<const LiveTensor> state,
                                       const ApplyOptions& options) const {
  const Delta& delta = impl_->delta;
  for (const LiveTensor& tensor : state) {
    if (tensor.memory == Memory::kHost) continue;
    return unsupported("tensor " + quote(tensor.name) + ": not in host memory");
  }
  DW_RETURN_IF_ERROR(refuse_other_forms(delta));
  const std::vector<CheckpointTensor> views = sorted_views(state);
  ApplyReport report;
  for (const CheckpointTensor& tensor : views) report.weights_bytes += tensor.view.bytes.size();
  ThreadPool pool(options.threads);
  Tracker tracker(options.progress, 2 * report.weights_bytes);
  DW_ASSIGN_OR_RETURN(std::vector<TensorState> before,
                      check_base("the tensors given", views, delta, &pool, tracker.stage()));
  tracker.finish_stage(report.weights_bytes);

  std::vector<Patched> tensors = collect(delta, views);
  std::vector<uint64_t> sizes;
  for (const Patched& tensor : tensors) sizes.push_back(tensor.bytes.size());
  DW_RETURN_IF_ERROR(Waves(std::move(sizes), Waves::Inside::kShared, &pool, tracker.stage())
                         .run([&](size_t i, ThreadPool* inner) {
                           Patched& tensor = tensors[i];
                           return fits_pairs(tensor) ? stage_pairs(&tensor, inner)
                                                     : stage_whole(&tensor, inner);
                         }));
  report.num_tensors = views.size();
  report.num_patched = tensors.size();
  report.target = state_after(std::move(before), tensors);
  report.target_known = delta.info.has_target();
  if (report.target_known && report.target != delta.info.target) {
    return corruption("state after the patch: expected " + delta.info.target.hex() + ", got " +
                      report.target.hex());
  }
  for (const Delta::Entry& item : delta.entries) report.num_changed += item.entry.num_changed;
  for (const Patched& tensor : tensors) DW_RETURN_IF_ERROR(write(tensor, &pool));
  return report;
}

}  // namespace deltawire
