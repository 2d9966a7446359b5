#include "transfer/fetch.h"

#include "base/guard.h"
#include "base/sync_point.h"
#include "base/thread_pool.h"
#include "transfer/fetch_sink.h"

namespace deltawire {
unsigned objects_at_once() { return std::clamp(usable_cores(), 8U, 16U); }

bool is_damaged_or_gone(const Status& status) noexcept {
  return status.code() == Code::kCorruption || status.code() == Code::kNotFound;
}

Fetch::Fetch(Store& store, std::vector<FetchItem> items) : store_(store), items_(std::move(items)) {
  for (const FetchItem& item : items_) total_bytes_ += item.part.size_bytes;
  start_threads(
      std::min<size_t>(objects_at_once(), items_.size()), [this](size_t) { work(); }, &threads_);
}

Fetch::~Fetch() {
  stop_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Fetch::work() {
  while (!stop_) {
    const size_t index = taken_++;
    if (index >= items_.size()) return;
    Status status = guard_memory("fetching", [&]() -> Status { return fetch_item(items_[index]); });
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      ready_.push_back(index);
      last_arrival_ = std::chrono::steady_clock::now();
    } else {
      if (failure_.ok()) {
        if (is_damaged_or_gone(status)) bad_item_ = index;
        failure_ = std::move(status);
      }
      stop_ = true;
    }
    changed_.notify_all();
  }
}

Status Fetch::fetch_item(const FetchItem& item) {
  Status status = fetch_once(item);
  if (status.code() == Code::kCorruption) status = fetch_once(item);
  return status;
}

Status Fetch::fetch_once(const FetchItem& item) {
  const std::string place = store_.url() + "/" + item.part.name;
  const std::unique_ptr<Follower> follower = item.follow ? item.follow() : nullptr;
  DW_ASSIGN_OR_RETURN(const auto sink, FetchSink::create(item.to, item.part.size_bytes, &received_,
                                                         &stop_, follower.get()));
  // An object that is not there, or ends early, is named by the store.
  DW_RETURN_IF_ERROR(store_.download(item.part.name, item.part.size_bytes, sink.get()));
  DW_ASSIGN_OR_RETURN(const Digest got, sink->finish());
  if (got != item.part.sha256) {
    return corruption(place + ": sha-256: expected " + item.part.sha256.hex() + ", got " +
                      got.hex());
  }
  if (follower != nullptr) {
    DW_RETURN_IF_ERROR(sink->followed().at(place));
    std::error_code error;
    std::filesystem::remove(item.to, error);  // not needed any more; its folder is removed later
  }
  DW_SYNC_POINT("replica: part fetched");
  return {};
}

Result<std::optional<size_t>> Fetch::next(const Progress& progress) {
  if (threads_.empty()) work();  // no threads available: do all work here
  std::unique_lock lock(mutex_);
  while (true) {
    if (!failure_.ok()) return failure_;
    if (!ready_.empty()) {
      const size_t index = ready_.front();
      ready_.pop_front();
      ++returned_;
      return std::optional(index);
    }
    if (returned_ == items_.size()) return std::optional<size_t>();
    changed_.wait_for(lock, std::chrono::milliseconds(100));
    if (progress) {
      lock.unlock();
      if (!progress(received_bytes(), total_bytes_)) {
        stop_ = true;
        return cancelled("stopped on request");
      }
      lock.lock();
    }
  }
}

std::chrono::steady_clock::time_point Fetch::last_arrival() {
  const std::lock_guard lock(mutex_);
  return last_arrival_;
}

std::optional<size_t> Fetch::bad_item() {
  const std::lock_guard lock(mutex_);
  return bad_item_;
}

Status Fetch::finish(const Progress& progress) {
  while (true) {
    DW_ASSIGN_OR_RETURN(const std::optional<size_t> index, next(progress));
    if (!index) return {};
  }
}

}  // namespace deltawire
