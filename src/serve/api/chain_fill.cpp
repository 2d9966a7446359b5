// Reads what a chain held before the ChainWatch started: manifests, newest first, and headers of
// parts on demand.
#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "chain/chain.h"
#include "chain/read_records.h"
#include "serve/api/chain_watch.h"

namespace deltawire {
namespace {

constexpr uint64_t kBatch = 512;        // manifests that are read at once
constexpr size_t kHeaders = 16;         // versions whose headers are
constexpr uint64_t kToldVersions = 50;  // earlier publishes among the events

}  // namespace

void ChainWatch::fill() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (!chain_ || (wanted_.empty() && wanted_one_ulp_.empty() && !next_)) {
      work_.wait_for(lock, std::chrono::seconds(1));
      continue;
    }
    if (!wanted_.empty()) {
      fill_shares(lock);
    } else if (!wanted_one_ulp_.empty()) {
      fill_one_ulp(lock);
    } else {
      fill_history(lock);
    }
  }
}

void ChainWatch::fill_history(std::unique_lock<std::mutex>& lock) {
  const Chain chain = *chain_;
  const uint64_t last = *next_, left = last < floor_ ? 0 : last - floor_ + 1;
  const uint64_t count = std::min(kBatch, left);
  lock.unlock();
  std::vector<Result<VersionRecord>> records(size_t(count), not_found(""));
  request_in_parallel(records.size(), [&](size_t i) {
    if (ending_) return;
    records[i] = chain.version(last - i);
    if (records[i].ok()) {
      records[i]->manifest.digests = {};
      records[i]->manifest.boxes.clear();
    }
  });
  std::optional<uint64_t> before;  // this stretch
  if (count < left) before = last - count;
  if (count == kBatch && std::none_of(records.begin(), records.end(),
                                      [](const auto& record) { return record.ok(); })) {
    const Result<std::vector<uint64_t>> there = chain.versions();  // a pinned one, far below
    if (there.ok() && before) {
      const auto end = std::upper_bound(there->begin(), there->end(), *before);
      before = end == there->begin() ? std::nullopt : std::optional(*std::prev(end));
    }
  }
  const bool is_down = std::any_of(records.begin(), records.end(), [](const auto& record) {
    return !record.ok() && !is_damage(record.status());
  });
  lock.lock();
  if (ending_ || chain_->run() != chain.run()) return;
  if (is_down) {
    work_.wait_for(lock, std::chrono::seconds(1));
    return;
  }
  for (const Result<VersionRecord>& record : records) {
    if (record.ok()) add(*record, false);
  }
  next_ = count == 0 ? std::nullopt : before;
  if (!told_history_) {
    told_history_ = true;
    for (uint64_t i = std::min(count, kToldVersions); i-- > 0;) {
      const auto& record = records[size_t(i)];
      if (record.ok()) {
        tell_published(record->manifest, double(created(record->manifest, false)));
      }
    }
    if (head_->version == last + 1) tell_published(*head_, double(head_created().value_or(0)));
  }
  ++changes_;
  changed_.notify_all();
}

void ChainWatch::fill_shares(std::unique_lock<std::mutex>& lock) {
  const Chain chain = *chain_;
  std::vector<uint64_t> batch;
  while (!wanted_.empty() && batch.size() < kHeaders) {
    batch.push_back(wanted_.back());
    wanted_.pop_back();
  }
  const PartRef schema = head_->schema;
  lock.unlock();
  struct Read {
    Status status;
    bool is_delta = false;
    std::vector<EntryRecord> entries;
  };
  std::vector<Read> read(batch.size());
  request_in_parallel(batch.size(), [&](size_t i) {
    const Result<VersionRecord> record = chain.version(batch[i]);
    if (!(read[i].status = record.status()).ok()) return;
    read[i].is_delta = record->manifest.kind == VersionKind::kDelta;
    if (!read[i].is_delta) return;
    Result<std::vector<EntryRecord>> entries = read_entries(chain.store(), record->manifest);
    read[i].status = entries.status();
    read[i].is_delta = entries.ok();
    if (entries.ok()) read[i].entries = std::move(*entries);
  });
  lock.lock();
  if (chain_->run() != chain.run()) return;
  bool is_down = false;
  for (size_t i = 0; i < batch.size(); ++i) {
    // Damaged or missing versions give no data and are not read again.
    if (read[i].status.code() == Code::kUnavailable) {
      is_down = true;
    } else {
      layers_.add(batch[i], schema, read[i].is_delta, read[i].entries);
    }
  }
  if (is_down) work_.wait_for(lock, std::chrono::seconds(1));
}

void ChainWatch::fill_one_ulp(std::unique_lock<std::mutex>& lock) {
  const Chain chain = *chain_;
  const std::string tensor = one_ulp_of_;
  const std::vector<uint64_t> versions = std::exchange(wanted_one_ulp_, {});
  lock.unlock();
  std::vector<Result<std::optional<double>>> shares(versions.size(), not_found(""));
  request_in_parallel(versions.size(), [&](size_t i) {
    if (ending_) return;
    const Result<VersionRecord> record = chain.version(versions[i]);
    shares[i] = record.ok() ? read_one_ulp(chain.store(), record->manifest, tensor)
                            : Result<std::optional<double>>(record.status());
  });
  lock.lock();
  if (ending_ || chain_->run() != chain.run()) return;
  bool is_down = false;
  for (size_t i = 0; i < versions.size(); ++i) {
    if (shares[i].status().code() == Code::kUnavailable) {
      is_down = true;
    } else {
      layers_.add_one_ulp(tensor, versions[i], shares[i].ok() ? *shares[i] : std::nullopt);
    }
  }
  if (is_down) work_.wait_for(lock, std::chrono::seconds(1));
}

}  // namespace deltawire
