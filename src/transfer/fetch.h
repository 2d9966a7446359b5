// Downloads objects of a chain to local files, several at once, and checks each against the record
// that names it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "deltawire/progress.h"
#include "deltawire/status.h"
#include "deltawire/store.h"
#include "format/manifest.h"
#include "transfer/fetch_sink.h"

namespace deltawire {

// How many objects are transferred at once: enough to hide the latency of a distant store and to
// hash on every core.
unsigned objects_at_once();

// Whether an object could not be fetched because it is damaged or missing. Anything else (the
// network, the disk) says nothing about it.
bool is_damaged_or_gone(const Status& status) noexcept;

struct FetchItem {
  PartRef part;
  std::filesystem::path to;
  // Makes a follower that consumes the object while it arrives; `to` is then only a temporary file.
  std::function<std::unique_ptr<Follower>()> follow = {};
};

// Its threads start downloading at construction, in the order of the items. An object that is
// truncated or does not match its sha-256 is fetched once more before it is an error. The
// destructor stops the downloads.
class Fetch {
 public:
  Fetch(Store& store, std::vector<FetchItem> items);
  ~Fetch();
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  // Waits for the next complete and verified item and returns its number; none when all were
  // returned. Corruption and NotFound name the object. `progress` is called with bytes now and
  // then.
  Result<std::optional<size_t>> next(const Progress& progress);
  // Waits for all.
  Status finish(const Progress& progress);
  // The item whose object is damaged or missing, if that is why next() failed.
  std::optional<size_t> bad_item();

  const std::vector<FetchItem>& items() const noexcept { return items_; }
  uint64_t total_bytes() const noexcept { return total_bytes_; }
  uint64_t received_bytes() const noexcept { return std::min(received_.load(), total_bytes_); }
  // When the last item was completed.
  std::chrono::steady_clock::time_point last_arrival();

 private:
  void work();
  Status fetch_item(const FetchItem& item);
  Status fetch_once(const FetchItem& item);

  Store& store_;
  const std::vector<FetchItem> items_;
  uint64_t total_bytes_ = 0;
  std::atomic<uint64_t> received_{0};
  std::atomic<bool> stop_{false};
  std::atomic<size_t> taken_{0};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> ready_;
  size_t returned_ = 0;
  Status failure_;
  std::optional<size_t> bad_item_;
  std::chrono::steady_clock::time_point last_arrival_ = std::chrono::steady_clock::now();
  std::vector<std::thread> threads_;
};

}  // namespace deltawire
