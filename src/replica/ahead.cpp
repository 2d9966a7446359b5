#include "replica/ahead.h"

#include <atomic>

#include "base/log.h"
#include "base/waves.h"
#include "replica/stage.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// An entry that can be decoded without others, and the tensor that it patches.
struct AheadStep {
  Delta::Entry item;
  const TensorView* held;
};

std::vector<AheadStep> steps_of(DeltaPart part, const HeldNow& held) {
  std::vector<AheadStep> steps;
  for (PayloadView& view : part.entries) {
    const TensorView* const tensor = find_tensor(held.tensors, view.entry.tensor);
    const bool fits = tensor != nullptr && same_form(view.entry, *tensor) && view.entry.old_digest;
    if (fits) steps.push_back({{std::move(view.entry), view.payload, quote(tensor->name)}, tensor});
  }
  return steps;
}

}  // namespace

void Ahead::erase(Tensors::iterator at) {
  used_ -= at->second.size_bytes;
  tensors_.erase(at);
}

// When a version is sent again, it replaces the attempt that was never committed.
bool Ahead::keep(const std::string& tensor, Decoded decoded) {
  for (const RedoEntry& entry : decoded.entries) decoded.size_bytes += entry.payload.size();
  const std::lock_guard lock(mutex_);
  if (const auto found = tensors_.find(tensor); found != tensors_.end()) erase(found);
  if (decoded.size_bytes > memory_bytes_ - used_) return false;
  used_ += decoded.size_bytes;
  tensors_.emplace(tensor, std::move(decoded));
  return true;
}

uint64_t Ahead::add(uint64_t version, Bytes part, const HeldNow& held, ThreadPool* pool) {
  {
    const std::lock_guard lock(mutex_);
    if (version_ != version) tensors_.clear(), used_ = 0;
    version_ = version;
  }
  Result<DeltaPart> parsed = parse_part(part);
  if (!parsed.ok()) return 0;  // a whole version, a side file or damaged data
  const std::vector<AheadStep> steps = steps_of(std::move(*parsed), held);
  std::vector<uint64_t> sizes;
  for (const AheadStep& step : steps) sizes.push_back(step.held->bytes.size());
  std::atomic<uint64_t> count = 0;
  const auto decode = [&](size_t i, ThreadPool* inner) -> Status {
    const AheadStep& step = steps[i];
    const DeltaEntry& entry = step.item.entry;
    const CheckpointTensor from{*step.held, 0, 0};
    const TensorSteps one{0, &from, {&step.item}};
    Manifest manifest;  // only the digest is known
    manifest.digests = {entry.new_digest};
    const Schema schema;
    const Target target{manifest, schema};
    const std::filesystem::path no_scratch;
    const StageJob job{one, target, step.item.place, *step.held, no_scratch, held.memory};
    if (!is_one_proven_step(job)) return {};
    Decoded decoded{*entry.old_digest, entry.new_digest, {}};
    const Status status = stage_tensor(job, inner, [&](RedoEntry redo) {
      decoded.entries.push_back(std::move(redo));
      return Status();
    });
    // Errors are ignored here: they are reported when the version is committed, if it ever is.
    if (status.ok() && keep(entry.tensor, std::move(decoded))) ++count;
    return {};
  };
  (void)Waves(std::move(sizes), Waves::Inside::kShared, pool, {}, held.memory.wave_bytes)
      .run(decode);
  log_event(LogLevel::kDebug, "replica.ahead", {{"version", version}, {"tensors", count.load()}});
  return count;
}

std::optional<std::vector<RedoEntry>> Ahead::take(std::string_view tensor, const Digest& before,
                                                  const Digest& after) {
  const std::lock_guard lock(mutex_);
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) return {};
  if (found->second.before != before || found->second.after != after) return {};
  std::vector<RedoEntry> entries = std::move(found->second.entries);
  erase(found);
  ++num_taken_;
  return entries;
}

void Ahead::drop_up_to(uint64_t version) {
  const std::lock_guard lock(mutex_);
  if (!version_ || *version_ > version) return;
  tensors_.clear();
  used_ = 0;
}

uint64_t Ahead::num_taken() const {
  const std::lock_guard lock(mutex_);
  return num_taken_;
}

}  // namespace deltawire
