#include "deltawire/delta.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "delta/delta_writer.h"
#include "delta/diff_states.h"
#include "delta/tensor_delta_impl.h"
#include "delta/tracker.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// By name; InvalidArgument when a size does not fit, or a name comes twice.
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

TensorDelta::TensorDelta(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

void TensorDelta::Impl::summarise() {
  for (const Delta::Entry& item : delta.entries) {
    const DeltaEntry& entry = item.entry;
    entries.push_back({entry.tensor, entry.dtype, entry.shape, entry.box,
                       std::string(find_codec(entry.codec)->name()), !entry.old_digest,
                       entry.num_changed, entry.num_elements(), item.payload.size()});
  }
}

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

}  // namespace deltawire
