// From tensors to what is put for a version: parts of what changed, or all of it.
#include "base/bytes.h"
#include "base/sync_point.h"
#include "chain/names.h"
#include "diff/computed_tensors.h"
#include "publish/impl.h"
#include "publish/snapshot_file.h"

namespace deltawire {
namespace {

constexpr uint64_t kKeptShare = 4;  // of the memory limit

}  // namespace

uint64_t bytes_of(std::span<const PublishTensor> tensors) {
  uint64_t bytes = 0;
  for (const PublishTensor& tensor : tensors) bytes += published_bytes(tensor);
  return bytes;
}

std::string dense_reason(uint64_t payload_bytes, uint64_t model_bytes) {
  return std::string(kDense) + "a delta would take over " + std::to_string(payload_bytes) +
         " of the model's " + std::to_string(model_bytes) + " bytes";
}

Result<std::vector<FullFile>> FullSource::files(const Contents& contents, ThreadPool* pack,
                                                const CodedThere& there) const {
  DW_ASSIGN_OR_RETURN(std::vector<FullFile> own, weights(contents));
  if (pack != nullptr) DW_RETURN_IF_ERROR(pack_files(&own, pack, there));
  if (there.check_unchanged) own.front().check_unchanged = there.check_unchanged;  // of all files
  for (FullFile& copy : sides->copies()) own.push_back(std::move(copy));
  return own;
}

void Draft::abandon() {
  if (stream) stream->abandon();
  if (upload) upload->abandon();
}

void Draft::take_back() {
  abandon();
  if (sides) sides->abandon();
}

std::vector<ObjectAtHand> Draft::at_hand() const {
  std::vector<ObjectAtHand> objects;
  if (sides) {
    for (FullFile& file : sides->new_objects()) objects.push_back({file.name, file.body});
  }
  if (!upload) return objects;
  for (size_t i = 0; i < upload->files().size(); ++i) {
    const FullFile& file = upload->files()[i];
    objects.push_back({manifest.parts[i].name, file.body, file.plain});
  }
  return objects;
}

std::unique_ptr<PartStream> Publisher::Impl::open_stream(Tensors tensors, PublishClock clock) {
  const MemoryShares shares = share_memory(options.limits.memory_bytes, options.part_bytes);
  PartStreamOptions parts;
  parts.folder = part_folder(next_version(), random_hex(kAttemptDigits), options.ranks.rank);
  parts.base = head->manifest.state;
  parts.part_bytes = shares.part_bytes;
  parts.memory_bytes = shares.queue_bytes;
  parts.keep = [this](const std::string& name, const Body& body) {
    return snapshot->keep_part(name, body);
  };
  const auto keep_going = [this, model_bytes = bytes_of(tensors)] {
    return !options.progress || options.progress(model_bytes, model_bytes);
  };
  return std::make_unique<PartStream>(*store, parts, clock, keep_going);
}

// A device's snapshot is advanced by the changes: there is no cheaper way to write only those.
Draft Publisher::Impl::begin_delta(Tensors tensors, bool keep, PublishClock clock) {
  Draft draft;
  draft.stream = open_stream(tensors, clock);
  if (keep || device) draft.kept.emplace(options.limits.memory_bytes / kKeptShare);
  return draft;
}

Result<StateDiff> Publisher::Impl::diff(Tensors tensors, uint64_t give_up_bytes, PublishClock clock,
                                        Draft* draft, PublishReport* report) {
  DiffJob job{tensors,
              *snapshot,
              parent(),
              options.codec,
              share_memory(options.limits.memory_bytes, options.part_bytes),
              options.progress,
              give_up_bytes,
              draft->kept ? &*draft->kept : nullptr,
              device.get()};
  const double begin = clock.now();
  DW_ASSIGN_OR_RETURN(StateDiff diff, diff_state(job, &pool, draft->stream.get()));
  report->phases.push_back({"diff+encode", begin, clock.now()});
  return diff;
}

Result<Draft> Publisher::Impl::draft_delta(Tensors tensors, const FullSource& source, bool keep,
                                           PublishClock clock, std::string* full_reason,
                                           PublishReport* report) {
  Draft draft = begin_delta(tensors, keep, clock);
  draft.sides = source.sides;
  const uint64_t model_bytes = bytes_of(tensors);
  DW_ASSIGN_OR_RETURN(
      StateDiff diff,
      this->diff(tensors, uint64_t(kDenseShare * double(model_bytes)), clock, &draft, report));
  if (diff.dense) *full_reason = dense_reason(diff.payload_bytes, model_bytes);
  if (!diff.needs_full.empty()) *full_reason = diff.needs_full;
  if (!full_reason->empty()) return draft;

  std::vector<PublishRecord> records(1);
  records[0].pieces = std::move(diff.pieces);
  DW_ASSIGN_OR_RETURN(draft.state, join(records, source));
  draft.pieces = std::move(records[0].pieces);
  draft.manifest.kind = VersionKind::kDelta;
  draft.manifest.base = head->manifest.version;
  return draft;
}

// A snapshot on disk that is not what the chain says is made anew, once.
Result<Draft> Publisher::Impl::draft_delta_or_rebuild(Tensors tensors, const FullSource& source,
                                                      bool keep, PublishClock clock,
                                                      std::string* full_reason,
                                                      PublishReport* report) {
  DW_RETURN_IF_ERROR(ensure_snapshot(tensors));
  Result<Draft> draft = draft_delta(tensors, source, keep, clock, full_reason, report);
  if (draft.ok() || draft.status().code() != Code::kBaseMismatch || on_disk == nullptr ||
      options.origin.made_from_snapshot) {
    return draft;
  }
  report->warnings.push_back("the snapshot was damaged and was rebuilt from the chain: " +
                             draft.status().message());
  snapshot = nullptr;
  DW_RETURN_IF_ERROR(FileSnapshot::discard(snapshot_folder()));
  DW_RETURN_IF_ERROR(ensure_snapshot(tensors));
  return draft_delta(tensors, source, keep, clock, full_reason, report);
}

Result<Draft> Publisher::Impl::draft_full(Tensors tensors, const FullSource& source,
                                          std::string reason, PublishClock clock,
                                          PublishReport* report) {
  Draft draft;
  draft.sides = source.sides;
  const Contents contents = contents_of(tensors, device.get());
  DW_ASSIGN_OR_RETURN(const CodedThere there, code_there(tensors));
  DW_ASSIGN_OR_RETURN(std::vector<FullFile> own, source.files(contents, pack(), there));
  const double begin = clock.now();
  std::vector<PublishRecord> records(1);
  if (head && !why_whole().empty()) {  // nothing was compared: it may turn out that nothing changed
    DW_ASSIGN_OR_RETURN(records[0].pieces, hash_state(tensors, parent(), device.get(), &pool));
    DW_ASSIGN_OR_RETURN(draft.state, join(records, source));
    if (draft.state.unchanged) return draft;
  }
  // Files go on their way while tensors are hashed: both read the same, or one of them fails.
  draft.upload =
      std::make_unique<FullUpload>(*store, full_folder(next_version(), random_hex(kAttemptDigits)),
                                   std::move(own), clock, options.progress);
  DW_ASSIGN_OR_RETURN(records[0].pieces,
                      hash_contents(tensors, contents, parent(), &pool, &there.digests));
  report->phases.push_back({"hash", begin, clock.now()});
  DW_ASSIGN_OR_RETURN(draft.state, join_pieces(records, parent()));
  draft.state.unchanged = false;  // it was not a moment ago, or was found too dense
  draft.pieces = std::move(records[0].pieces);
  DW_ASSIGN_OR_RETURN(draft.manifest.parts, draft.upload->finish());
  if (Status status = draft.sides->check_copies(draft.manifest.parts); !status.ok()) {
    draft.abandon();
    return status;
  }
  add_phase(draft.upload->upload_phase(), report);
  draft.manifest.kind = VersionKind::kFull;
  draft.manifest.reason = std::move(reason);
  return draft;
}

}  // namespace deltawire
