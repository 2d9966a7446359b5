#include "transfer/part_stream.h"

#include <algorithm>

#include "base/sync_point.h"
#include "format/delta_part.h"
#include "store/bodies.h"

namespace deltawire {

struct PartStream::Part {
  DeltaInfo info;
  std::vector<EntryRecord> records;
  std::vector<Payload> payloads;
  uint64_t bytes = 0;        // of payloads
  uint64_t owned_bytes = 0;  // of those that take memory

  static std::shared_ptr<const Body> body_of(const Payload& payload) {
    return payload.contents ? payload.contents : std::make_shared<MemoryBody>(payload.bytes);
  }

  // Header, checksum, sha-256, put. On an upload thread: encoding goes on meanwhile.
  Status put(Store& store, const PartStreamOptions& options, const std::atomic<bool>& stop,
             PartRef* ref) {
    for (size_t i = 0; i < records.size(); ++i) {
      const std::shared_ptr<const Body> body = body_of(payloads[i]);
      DW_ASSIGN_OR_RETURN(records[i].payload_digest, digest_of_body(DigestKind::kXxh3_128, *body));
    }
    DW_ASSIGN_OR_RETURN(const std::string header, serialise_part_header(info, records));
    std::vector<std::shared_ptr<const Body>> bodies = {std::make_shared<MemoryBody>(header)};
    for (const Payload& payload : payloads) bodies.push_back(body_of(payload));
    const JoinedBody body(std::move(bodies));
    const StoppableBody stoppable(body, stop);
    HashingBody hashing(stoppable);
    DW_SYNC_POINT("part: before put");
    DW_RETURN_IF_ERROR(store.put(ref->name, hashing));
    DW_SYNC_POINT("part: after put");
    DW_ASSIGN_OR_RETURN(ref->sha256, hashing.sha256());
    ref->size_bytes = body.size();
    return options.keep ? options.keep(ref->name, body) : Status();
  }
};

PartStream::PartStream(Store& store, PartStreamOptions options, PublishClock clock,
                       UploadQueue::KeepGoing keep_going)
    : store_(store),
      options_(std::move(options)),
      queue_(std::make_unique<UploadQueue>("uploading", options_.uploads, options_.memory_bytes,
                                           clock, std::move(keep_going))) {}

PartStream::~PartStream() {
  if (!finished_) abandon();
}

// Proportional to the payloads so far, so that the same entries give the same parts at any speed.
uint64_t PartStream::part_limit() const {
  constexpr uint64_t kFirst = uint64_t{1} << 20, kShare = 4;
  const uint64_t limit = std::min(payload_bytes_ / kShare, burst_limit_);
  return std::min(options_.part_bytes, std::max(kFirst, limit));
}

Status PartStream::add(DeltaEntry entry, Payload payload) {
  const uint64_t bytes = payload.bytes.size();
  if (open_ && open_->bytes + bytes > part_limit()) DW_RETURN_IF_ERROR(close_part({}));
  if (!open_) {
    open_ = std::make_shared<Part>();
    open_->info.base = options_.base;
  }
  open_->bytes += bytes;
  if (payload.owner) open_->owned_bytes += bytes;
  payload_bytes_ += bytes;
  open_->records.push_back({std::move(entry), bytes, {}});
  open_->payloads.push_back(std::move(payload));
  if (open_->bytes < part_limit()) return {};
  return close_part({});
}

Status PartStream::close_part(std::vector<std::string> removed) {
  std::shared_ptr<Part> part = std::move(open_);
  open_ = nullptr;
  part->info.removed = std::move(removed);
  auto ref = std::make_shared<PartRef>();
  ref->name = options_.folder + part_name(refs_.size());
  refs_.push_back(ref);
  const uint64_t bytes = part->owned_bytes;
  return queue_->push(bytes, [this, part, ref, stop = &queue_->stopping()] {
    return part->put(store_, options_, *stop, ref.get());
  });
}

Status PartStream::finish(std::vector<std::string> removed) {
  if (!open_ && !removed.empty()) {
    open_ = std::make_shared<Part>();
    open_->info.base = options_.base;
  }
  if (open_) DW_RETURN_IF_ERROR(close_part(std::move(removed)));
  DW_RETURN_IF_ERROR(queue_->finish());
  finished_ = true;
  return {};
}

void PartStream::abandon() {
  queue_.reset();  // waits for what is being put
  for (const auto& ref : refs_) (void)store_.remove(ref->name);
  refs_.clear();
  finished_ = true;
}

std::vector<PartRef> PartStream::parts() const {
  std::vector<PartRef> parts;
  for (const auto& ref : refs_) parts.push_back(*ref);
  return parts;
}

}  // namespace deltawire
