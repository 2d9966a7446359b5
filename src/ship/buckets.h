// Objects on their way to a group: cut into pieces, gathered in buckets of a bounded size.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/manifest.h"
#include "deltawire/store.h"

namespace deltawire {

// Some bytes of an object; they lie in the bucket in the order of its pieces.
struct BucketPiece {
  std::string name;
  uint64_t object_bytes = 0;
  uint64_t offset = 0, length = 0;
};

// A publish of a version, as far as is known. One that is given up is followed by another, often of
// the same version.
struct ShipAttempt {
  uint64_t version = 0, number = 0;
  bool operator==(const ShipAttempt&) const = default;
};

// A version that is committed: said behind the bytes that were gathered before it.
struct CommitWord {
  std::string run;
  uint64_t version = 0;
  std::vector<PartRef> parts;  // and files beside the weights
};

struct Bucket {
  ShipAttempt of;  // all pieces
  std::vector<uint8_t> bytes;
  std::vector<BucketPiece> pieces;
  std::vector<CommitWord> commits;

  bool empty() const noexcept { return pieces.empty() && commits.empty(); }
};

// One bucket is filled while another is sent. Who adds waits while it is full: memory is bounded by
// two buckets. add() and commit() from any thread, take() from one.
class BucketQueue {
 public:
  explicit BucketQueue(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Copies the object. Does nothing once the queue is closed.
  Status add(const ShipAttempt& of, const std::string& name, const Body& body);
  void commit(CommitWord word);

  // The next bucket into `out`, whose memory is used again; false: closed, and nothing is left.
  bool take(Bucket* out);
  // From then on: what the receivers of the next buckets can take.
  void set_limit(uint64_t limit_bytes);
  void close();
  bool idle() const;  // nothing waits, and nothing is being sent
  // Until it is; false when the time is over.
  bool wait_idle(double timeout_seconds);

 private:
  Status append(const ShipAttempt& of, const std::string& name, uint64_t object_bytes,
                uint64_t offset, std::span<const uint8_t> bytes);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t limit_bytes_;
  Bucket filling_;
  bool closed_ = false, sending_ = false;
};

}  // namespace deltawire
