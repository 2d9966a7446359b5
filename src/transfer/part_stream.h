// Entries in, parts of a version in the store out, while the next entries are still being encoded.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/store.h"
#include "format/delta_part.h"
#include "format/manifest.h"
#include "transfer/upload_queue.h"

namespace deltawire {

// Bytes of an entry: owned, or of a tensor that outlives the stream.
struct Payload {
  Bytes bytes;                                // of a tensor: only their number counts
  std::shared_ptr<const void> owner;          // null: a tensor's
  std::shared_ptr<const Body> contents = {};  // of a tensor: the same bytes at every read

  static Payload of(std::shared_ptr<const Body> contents, Bytes bytes) {
    return {bytes, nullptr, std::move(contents)};
  }
  static Payload own(std::vector<uint8_t> bytes) {
    auto owner = std::make_shared<const std::vector<uint8_t>>(std::move(bytes));
    return {*owner, owner};
  }
};

struct PartStreamOptions {
  std::string folder;  // where the parts go, with its '/': see part_folder()
  Digest base;         // state digest
  // Maximum size; a larger payload has its own part. The first parts are smaller, so that uploads
  // start early and little is left to upload when the last tensor is encoded.
  uint64_t part_bytes = uint64_t{64} << 20;
  uint64_t memory_bytes = uint64_t{512} << 20;  // of payloads being uploaded
  // At once: each is hashed and written by one thread.
  unsigned uploads = std::clamp(usable_cores(), 4U, 16U);
  // Called for every part that was put, from an upload thread; may be empty.
  std::function<Status(const std::string& name, const Body& body)> keep;
};

// Puts a part as soon as it is full. If finish() has not succeeded, the destructor removes the
// parts from the store, as far as the store allows it. For one thread.
class PartStream {
 public:
  PartStream(Store& store, PartStreamOptions options, PublishClock clock,
             UploadQueue::KeepGoing keep_going);
  ~PartStream();

  // Blocks while too many bytes are being uploaded.
  Status add(DeltaEntry entry, Payload payload);
  // Announces that this many bytes of payloads come next, all at once. They are split over as many
  // parts as are uploaded in parallel, because hashing a part takes one thread.
  void expect(uint64_t payload_bytes) {
    burst_limit_ = (payload_bytes + options_.uploads - 1) / options_.uploads;
  }
  void expect_no_more() { burst_limit_ = UINT64_MAX; }  // from now on payloads come one by one

  // The last part holds the names of removed tensors. Without them and without entries there is no
  // part.
  Status finish(std::vector<std::string> removed);
  // Removes all parts from the store, since the version will not be committed.
  void abandon();

  uint64_t payload_bytes() const noexcept { return payload_bytes_; }  // so far
  std::vector<PartRef> parts() const;                                 // after finish()
  std::optional<Phase> upload_phase() const {
    return queue_ ? queue_->phase("upload") : std::optional<Phase>();
  }

 private:
  struct Part;
  uint64_t part_limit() const;
  Status close_part(std::vector<std::string> removed);

  Store& store_;
  const PartStreamOptions options_;
  std::shared_ptr<Part> open_;
  std::vector<std::shared_ptr<PartRef>> refs_;  // filled in when a part is put
  uint64_t payload_bytes_ = 0;
  uint64_t burst_limit_ = UINT64_MAX;  // of a part
  bool finished_ = false;
  std::unique_ptr<UploadQueue> queue_;
};

}  // namespace deltawire
