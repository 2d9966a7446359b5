#include "ship/upkeep.h"

#include "base/log.h"
#include "deltawire/chain.h"
#include "deltawire/maintain.h"

namespace deltawire {
namespace {

// `every` times 1, 2, 4, 8 ...: who stays away for long costs ever fewer merges.
bool is_doubling(uint64_t missed, uint64_t every) {
  if (every == 0 || missed % every != 0 || missed == 0) return false;
  const uint64_t times = missed / every;
  return (times & (times - 1)) == 0;
}

// For most codecs two states of the model lie in the folder for temporary files meanwhile. A
// trainer needs its disk, and its time: a late replica of a large model reads every delta.
Status check_room(uint64_t model_bytes) {
  constexpr uint64_t kMostBytes = uint64_t{16} << 30, kTimes = 6;
  std::error_code error;
  const auto folder = std::filesystem::temp_directory_path(error);
  const auto space = std::filesystem::space(folder, error);
  if (model_bytes <= kMostBytes && !error && space.available / kTimes >= model_bytes) return {};
  return unsupported("the model is too large for " + folder.string());
}

}  // namespace

Upkeep::Upkeep(std::shared_ptr<Store> store, const ShipOptions& options)
    : store_(std::move(store)), options_(options), thread_([this] { run(); }) {}

Upkeep::~Upkeep() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Upkeep::committed(uint64_t version, std::set<uint64_t> held) {
  const std::lock_guard lock(mutex_);
  if (options_.merge_after == 0 && options_.keep_versions == 0) return;
  due_ = Work{version, std::move(held)};
  changed_.notify_all();
}

void Upkeep::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || (!due_ && !busy_); });
}

bool Upkeep::stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
}

void Upkeep::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stopping_ || due_; });
    if (stopping_) return;
    const Work work = std::move(*due_);
    due_.reset();
    busy_ = true;
    lock.unlock();
    merge(work);
    if (options_.keep_versions != 0) collect();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Upkeep::merge(const Work& work) {
  for (const uint64_t base : work.held) {
    if (base >= work.version || !is_doubling(work.version - base, options_.merge_after)) continue;
    const Result<MergedDelta> merged = [&]() -> Result<MergedDelta> {
      DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store_, options_.keys));
      DW_ASSIGN_OR_RETURN(const VersionRecord newest, chain.version(work.version));
      DW_RETURN_IF_ERROR(check_room(newest.manifest.anchor_bytes));
      CompactOptions how;
      how.work.progress = [this](uint64_t, uint64_t) { return !stopping(); };
      return merge_versions(chain, base, work.version, how);
    }();
    if (stopping()) return;
    if (!merged.ok()) {
      log_event(LogLevel::kWarning, "ship.merge_failed",
                {{"base", base}, {"version", work.version}, {"error", merged.status()}});
    } else {
      log_event(LogLevel::kInfo, "ship.merged",
                {{"base", base},
                 {"version", work.version},
                 {"bytes", merged->bytes},
                 {"skipped", merged->skipped}});
    }
  }
}

void Upkeep::collect() {
  const Result<GcReport> report = [&]() -> Result<GcReport> {
    DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store_, options_.keys));
    GcOptions how;
    how.keep = options_.keep_versions;
    how.grace_seconds = options_.keep_grace_seconds;
    return chain.collect_garbage(how);
  }();
  if (!report.ok()) {
    log_event(LogLevel::kWarning, "ship.gc_failed", {{"error", report.status()}});
  }
}

}  // namespace deltawire
