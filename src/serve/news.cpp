#include "serve/news.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "chain/names.h"

namespace deltawire {
namespace {

constexpr size_t kMaxParts = 256;  // that are announced

uint64_t microseconds_now() {
  using namespace std::chrono;
  return uint64_t(duration_cast<microseconds>(system_clock::now().time_since_epoch()).count());
}

}  // namespace

News::News(std::shared_ptr<Store> store, double poll_seconds)
    : store_(std::move(store)),
      poll_seconds_(poll_seconds),
      watch_(*store_),
      pushed_(push_source_of(*store_)),
      news_(microseconds_now()),
      thread_([this] { run(); }) {}

News::~News() {
  end();
  watch_.wake();
  thread_.join();
}

void News::end() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  changed_.notify_all();
}

News::Answer News::wait(uint64_t seen, std::optional<uint64_t> seen_part, double seconds) {
  std::unique_lock lock(mutex_);
  const auto is_new = [&](const Part& part) { return seen_part && part.number > *seen_part; };
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
    return ending_ || news_ > seen || (!parts_.empty() && is_new(parts_.back()));
  });
  Answer answer{news_, {}};
  std::copy_if(parts_.begin(), parts_.end(), std::back_inserter(answer.parts), is_new);
  return answer;
}

void News::run() {
  has_changed();
  while (!ending_) {
    const bool is_told = watch_.wait(
        poll_seconds_, [this] { return ending_.load(); }, [this] { look_ahead(); });
    if (ending_ || (!is_told && !has_changed())) continue;
    {
      const std::lock_guard lock(mutex_);
      parts_.clear();
      news_ = std::max(news_ + 1, microseconds_now());
      changed_.notify_all();
    }
    if (is_told) has_changed();  // afterwards, because it may be slow
  }
}

// Announces parts of the version after the newest one.
void News::look_ahead() {
  const std::optional<uint64_t> newest = version_of_manifest(newest_);
  while (pushed_ != nullptr && !ending_) {
    const std::vector<SentObject> sent = pushed_->sent_ahead(seen_ahead_);
    if (sent.empty()) return;
    const std::lock_guard lock(mutex_);
    for (const SentObject& one : sent) {
      seen_ahead_ = one.number;
      const std::optional<AttemptFolder> folder = attempt_folder(one.name);
      if (!one.name.starts_with(kPartPrefix) || !folder) continue;
      if (folder->version != (newest ? *newest + 1 : 0)) continue;
      last_part_ = std::max(last_part_ + 1, microseconds_now());
      parts_.push_back({last_part_, one.name, one.body->size()});
      if (parts_.size() > kMaxParts) parts_.erase(parts_.begin());
    }
    changed_.notify_all();
  }
}

// A store that cannot be read now counts as unchanged.
bool News::has_changed() {
  bool has_changed = false;
  while (!ending_) {
    const auto later = store_->list(kManifestPrefix, newest_, kMaxListed);
    if (!later.ok() || later->empty()) break;
    newest_ = later->back().name;
    has_changed = true;
  }
  return has_changed;
}

}  // namespace deltawire
