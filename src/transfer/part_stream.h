// Entries in, parts of a version in the store out, while the next entries are still being encoded.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deltawire/store.h"
#include "format/delta_part.h"
#include "format/manifest.h"
#include "transfer/upload_queue.h"

namespace deltawire {

// Bytes of an entry: its own, or a tensor's that outlives the stream.
struct Payload {
  Bytes bytes;                        // of a tensor: only their number counts
  std::shared_ptr<const void> owner;  // null: a tensor's
  std::shared_ptr<const Body> contents =
      {};  // of a tensor: gives the same however often it is read

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
  // The most; a larger payload has a part of its own. The first parts are smaller, so that the
  // network has work early and little is left for it when the last tensor is encoded.
  uint64_t part_bytes = uint64_t{64} << 20;
  uint64_t memory_bytes = uint64_t{512} << 20;  // of payloads on their way
  unsigned uploads = 4;                         // at once
  // Told of every part that was put, from an upload thread; may be empty.
  std::function<Status(const std::string& name, const Body& body)> keep;
};

// A part is finished and put as soon as it is full. Destroyed before finish() has succeeded, it
// takes back what it had put, as far as the store lets it. One thread.
class PartStream {
 public:
  PartStream(Store& store, PartStreamOptions options, PublishClock clock,
             UploadQueue::KeepGoing keep_going);
  ~PartStream();

  // Blocks while too much is on its way.
  Status add(DeltaEntry entry, Payload payload);
  // So many bytes of payloads come next, all at once: shared out to as many parts as are put side
  // by side. To hash a part takes one thread, and nobody is left to be waited for.
  void expect(uint64_t payload_bytes) {
    burst_limit_ = (payload_bytes + options_.uploads - 1) / options_.uploads;
  }
  void expect_no_more() { burst_limit_ = UINT64_MAX; }  // from now on they come one by one

  // Names of removed tensors stand in the last part. Without them and without entries there is
  // none.
  Status finish(std::vector<std::string> removed);
  // Takes back everything that was put: the version will not be.
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
