// Sends buckets to a group of replicas, and makes a new group when who is there has changed. What
// cannot be sent is left: replicas read it.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "carrier/backend.h"
#include "carrier/carrier.h"
#include "carrier/hub.h"
#include "ship/buckets.h"
#include "ship/roster.h"
#include "ship/ship.h"

namespace deltawire {

// What was sent of the newest version, and when, by the steady clock.
struct SentSoFar {
  std::string carrier;
  uint64_t epoch = 0, bytes = 0;
  std::optional<double> begin;
  double end = 0;
};

class Sender {
 public:
  // All outlive it.
  Sender(Hub& hub, Roster& roster, BucketQueue& queue, std::shared_ptr<Backend> backend,
         const ShipOptions& options);

  void run();  // on a thread of its own, until the queue is closed
  void stop();
  SentSoFar sent() const;

 private:
  // A bucket, or as much of it as all receivers take.
  struct Slice {
    std::span<uint8_t> bytes;
    std::vector<BucketPiece> pieces;
  };
  bool begin_version(const ShipAttempt& attempt);  // false: it has begun before
  void send(Bucket& bucket);
  bool send_slice(const Slice& slice);
  void tell_commit(const CommitWord& word);
  // A group of those among `wanted` that answer: the one there is, if it is of the same members.
  void ensure_group(const Roster::Ids& wanted);
  void form(Roster::Ids ids);
  bool try_to_form(Roster::Ids* ids);
  Roster::Ids who_failed(const Roster::Ids& ids, uint64_t round,
                         const std::vector<unsigned>& missing);
  void drop_group();
  void lose_group(const Status& status);
  void tell(uint64_t id, const std::string& message);

  Hub& hub_;
  Roster& roster_;
  BucketQueue& queue_;
  const std::shared_ptr<Backend> backend_;
  const ShipOptions& options_;

  std::mutex carrier_mutex_;  // of the pointer, for stop()
  std::unique_ptr<Carrier> carrier_;
  std::atomic<bool> stopping_{false};
  Roster::Ids group_;
  std::optional<ShipAttempt> begun_;
  uint64_t bucket_number_ = 0;

  mutable std::mutex sent_mutex_;
  SentSoFar sent_;
};

}  // namespace deltawire
