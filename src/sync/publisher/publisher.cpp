#include "deltawire/publisher.h"

#include <algorithm>
#include <future>

#include "base/sync_point.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "chain/plan.h"
#include "codec/guard.h"
#include "deltawire/checkpoint.h"
#include "sync/delta/delta_reader.h"
#include "sync/publisher/commit.h"
#include "sync/publisher/impl.h"
#include "sync/publisher/snapshot_file.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

Status check_options(const PublishOptions& options, bool has_folder) {
  if (options.part_bytes == 0) return invalid_argument("a part must have a size");
  if (options.memory_limit < kLeastMemory) {
    return invalid_argument("the memory limit must be " + std::to_string(kLeastMemory >> 20) +
                            " MiB or more");
  }
  if (options.world > 1 && has_folder) {
    return invalid_argument("ranks keep their boxes of the snapshot in memory, not in a folder");
  }
  if (options.world == 0 || options.rank >= options.world) {
    return invalid_argument("rank " + std::to_string(options.rank) + " of " +
                            std::to_string(options.world) + ": ranks count from 0");
  }
  if (state_digest_kind(options.digest) != options.digest) {
    return invalid_argument(std::string(digest_name(options.digest)) +
                            " is too weak to prove a version; use xxh3-128 or blake3");
  }
  return check_encode_options(options.codec, options.digest);
}

}  // namespace

uint64_t bytes_of(std::span<const PublishTensor> tensors) {
  uint64_t bytes = 0;
  for (const PublishTensor& tensor : tensors) bytes += tensor.view.bytes.size();
  return bytes;
}

std::string dense_reason(uint64_t payload_bytes, uint64_t model_bytes) {
  return "dense: a delta would take over " + std::to_string(payload_bytes) + " of the model's " +
         std::to_string(model_bytes) + " bytes";
}

Result<std::vector<FullFile>> FullSource::files() const {
  DW_ASSIGN_OR_RETURN(std::vector<FullFile> own, weights());
  DW_RETURN_IF_ERROR(add_extra_files(extra_files, &own));
  return own;
}

void Draft::abandon() {
  if (stream) stream->abandon();
  if (upload) upload->abandon();
}

std::vector<ObjectAtHand> Draft::at_hand() const {
  std::vector<ObjectAtHand> objects;
  if (!upload) return objects;
  for (size_t i = 0; i < upload->files().size(); ++i) {
    objects.push_back({manifest.parts[i].name, upload->files()[i].body});
  }
  return objects;
}

Status Publisher::Impl::open() {
  DW_RETURN_IF_ERROR(check_options(options, !folder.empty()));
  DW_ASSIGN_OR_RETURN(keys, chain_options(options.sign_key, options.trust_key));
  DW_ASSIGN_OR_RETURN(const Capabilities can, store->capabilities());
  if (!can.put_if_absent && !options.single_writer) {
    return unsupported(store->url() +
                       ": this store cannot put an object only if it is absent, so two publishers "
                       "could overwrite each other; say --single-writer if there will only be one");
  }
  Result<Chain> opened = Chain::open(store, keys);
  if (!opened.ok() && opened.status().code() == Code::kNotFound) return {};
  DW_RETURN_IF_ERROR(Status(opened.status()));
  chain = std::move(*opened);
  DW_RETURN_IF_ERROR(read_head());
  if (options.rank != 0) {  // what failed before this process came is not its business
    DW_ASSIGN_OR_RETURN(past_attempts,
                        RankExchange(*chain, next_version(), options).ended_attempts());
  }
  // Ranks learn which boxes they hold when they publish.
  return head && !options.full && options.world == 1 ? ensure_snapshot({}) : Status();
}

Status Publisher::Impl::read_head() {
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> version, chain->head());
  std::optional<VersionRecord> found;
  if (version) {
    DW_ASSIGN_OR_RETURN(found, chain->version(*version));
  }
  const bool same = head && found && head->digest == found->digest;
  if (!same) {
    snapshot = nullptr;
    head.reset();
    schema = {};
    if (found) {
      DW_ASSIGN_OR_RETURN(schema, chain->schema(found->manifest));
      DW_RETURN_IF_ERROR(states_of(schema, found->manifest).status());
      DW_ASSIGN_OR_RETURN(anchor, newest_anchor(*chain, found->manifest));
      head = std::move(found);
    }
  }
  uncertain = false;
  return {};
}

Status Publisher::Impl::ensure_chain() {
  if (chain) return {};
  if (options.rank != 0) return wait_for_chain();
  Result<Chain> made = Chain::create(store, keys, options.single_writer);
  // Another publisher may have made it meanwhile; who of us publishes the seed is then decided by
  // the commit.
  if (!made.ok() && made.status().code() == Code::kConflict) {
    made = Chain::open(store, keys);
  }
  DW_RETURN_IF_ERROR(Status(made.status()));
  DW_SYNC_POINT("publish: run made");
  chain = std::move(*made);
  return read_head();
}

// Rank 0 makes the run.
Status Publisher::Impl::wait_for_chain() {
  DW_ASSIGN_OR_RETURN(const bool came,
                      poll_until(options, options.rank_timeout_seconds, [&]() -> Result<bool> {
                        Result<Chain> opened = Chain::open(store, keys);
                        if (opened.ok()) chain = std::move(*opened);
                        if (chain || opened.status().code() == Code::kNotFound) return bool(chain);
                        return opened.status();
                      }));
  if (!came) {
    return unavailable(store->url() + ": rank " + std::to_string(options.rank) +
                       " waits for rank 0 to make a run here, in vain");
  }
  return read_head();
}

Status Publisher::Impl::ensure_snapshot(Tensors tensors) {
  // Ranks may hold other boxes than last time.
  for (const PublishTensor& tensor : tensors) {
    if (!snapshot) break;
    const auto found = snapshot->find(tensor.view, tensor.box);
    if (found.ok()) continue;
    if (found.status().code() != Code::kNotFound) return found.status();
    snapshot = nullptr;
  }
  if (snapshot) return {};
  if (!folder.empty()) {
    DW_ASSIGN_OR_RETURN(
        snapshot, FileSnapshot::open(store, snapshot_folder(), head->manifest.version, options));
    return {};
  }
  DW_ASSIGN_OR_RETURN(MemoryState state,
                      fetch_state(*chain, head->manifest.version, &pool, options.progress));
  auto made = std::make_unique<MemorySnapshot>(std::move(state), &pool);
  const bool boxes = std::any_of(tensors.begin(), tensors.end(),
                                 [](const PublishTensor& tensor) { return !tensor.box.whole(); });
  if (boxes || options.world > 1) DW_RETURN_IF_ERROR(made->narrow(tensors));
  snapshot = std::move(made);
  return {};
}

// Another publisher's version is better found before the commit than by it.
Status Publisher::Impl::check_free() const {
  const Result<VersionRecord> other = chain->version(next_version());
  if (!other.ok() && other.status().code() == Code::kNotFound) return {};
  if (!other.ok()) return Status(other.status());
  return conflict(store->url() + ": version " + std::to_string(next_version()) +
                  " was published by another: " + other->manifest.publisher + " at " +
                  other->manifest.created);
}

std::unique_ptr<PartStream> Publisher::Impl::open_stream(Tensors tensors, PublishClock clock) {
  const MemoryShares shares = share_memory(options.memory_limit, options.part_bytes);
  PartStreamOptions parts;
  parts.folder = part_folder(next_version(), random_hex(kAttemptDigits));
  parts.digest_kind = digest_kind();
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

Result<Draft> Publisher::Impl::draft_delta(Tensors tensors, PublishClock clock,
                                           std::string* full_reason, PublishReport* report) {
  Draft draft;
  draft.stream = open_stream(tensors, clock);
  const uint64_t model_bytes = bytes_of(tensors);
  const DiffJob job{tensors, *snapshot, parent(), options,
                    uint64_t(kDenseShare * double(model_bytes))};
  const double begin = clock.now();
  DW_ASSIGN_OR_RETURN(StateDiff diff, diff_state(job, &pool, draft.stream.get()));
  report->phases.push_back({"diff+encode", begin, clock.now()});
  if (diff.dense) *full_reason = dense_reason(diff.payload_bytes, model_bytes);
  if (!diff.needs_full.empty()) *full_reason = diff.needs_full;
  if (!full_reason->empty()) return draft;

  std::vector<PublishRecord> records(1);
  records[0] = std::move(diff.record);
  for (const PieceRecord& piece : records[0].pieces) draft.changed.push_back(piece.changed);
  DW_ASSIGN_OR_RETURN(draft.state, join_pieces(records, parent()));
  DW_RETURN_IF_ERROR(draft.stream->finish(draft.state.removed));
  add_phase(draft.stream->upload_phase(), report);
  draft.manifest.kind = VersionKind::kDelta;
  draft.manifest.base = head->manifest.version;
  draft.manifest.parts = draft.stream->parts();
  return draft;
}

// A snapshot on disk that is not what the chain says is made anew, once.
Result<Draft> Publisher::Impl::draft_delta_or_rebuild(Tensors tensors, PublishClock clock,
                                                      std::string* full_reason,
                                                      PublishReport* report) {
  DW_RETURN_IF_ERROR(ensure_snapshot(tensors));
  Result<Draft> draft = draft_delta(tensors, clock, full_reason, report);
  if (draft.ok() || draft.status().code() != Code::kBaseMismatch || folder.empty()) return draft;
  report->warnings.push_back("the snapshot was damaged and was made anew from the chain: " +
                             draft.status().message());
  snapshot = nullptr;
  DW_RETURN_IF_ERROR(FileSnapshot::discard(snapshot_folder()));
  DW_RETURN_IF_ERROR(ensure_snapshot(tensors));
  return draft_delta(tensors, clock, full_reason, report);
}

Result<Draft> Publisher::Impl::draft_full(Tensors tensors, const FullSource& source,
                                          std::string reason, PublishClock clock,
                                          PublishReport* report) {
  Draft draft;
  DW_ASSIGN_OR_RETURN(std::vector<FullFile> own, source.files());
  const auto begin_upload = [&] {
    draft.upload = std::make_unique<FullUpload>(
        *store, full_folder(next_version(), random_hex(kAttemptDigits)), std::move(own), clock,
        options.progress);
  };
  // Files go on their way while tensors are hashed, unless it may turn out that nothing changed.
  const bool surely = !head || !options.full;
  if (surely) begin_upload();
  const double begin = clock.now();
  std::vector<PublishRecord> records(1);
  DW_ASSIGN_OR_RETURN(records[0], hash_state(tensors, parent(), digest_kind(), &pool, {}));
  report->phases.push_back({"hash", begin, clock.now()});
  for (const PieceRecord& piece : records[0].pieces) draft.changed.push_back(piece.changed);
  DW_ASSIGN_OR_RETURN(draft.state, join_pieces(records, parent()));
  if (draft.state.unchanged) return draft;
  if (!surely) begin_upload();
  DW_ASSIGN_OR_RETURN(draft.manifest.parts, draft.upload->finish());
  add_phase(draft.upload->upload_phase(), report);
  draft.manifest.kind = VersionKind::kFull;
  draft.manifest.reason = std::move(reason);
  return draft;
}

// Everything that a manifest says beside its parts.
Status Publisher::Impl::complete(Draft* draft, PublishClock clock) {
  Manifest& manifest = draft->manifest;
  manifest.run = chain->run();
  manifest.version = next_version();
  if (head) manifest.parent = head->digest;
  manifest.created = utc_now();
  manifest.publisher = process_name();
  if (head && draft->state.schema == schema) {
    manifest.schema = head->manifest.schema;  // it is there: the head names it
  } else {
    DW_ASSIGN_OR_RETURN(manifest.schema, chain->put_schema(draft->state.schema));
  }
  manifest.digest_kind = digest_kind();
  describe_state(draft->state, &manifest);
  manifest.codec = options.codec;
  const uint64_t bytes = manifest.part_bytes();
  manifest.chain_bytes = (head ? head->manifest.chain_bytes : 0) + bytes;
  const bool full = manifest.kind == VersionKind::kFull;
  manifest.anchor = full ? manifest.version : anchor.version;
  manifest.anchor_bytes = full ? bytes : anchor.bytes;
  manifest.milliseconds = uint64_t(clock.now() * 1000);
  return {};
}

Status Publisher::Impl::commit(Draft* draft, PublishClock clock, PublishReport* report) {
  const double begin = clock.now();
  CommitResult result;
  result.status = complete(draft, clock);
  if (result.status.ok()) result = commit_version(*chain, draft->manifest, options);
  report->phases.push_back({"commit", begin, clock.now()});
  if (result.outcome == Outcome::kNot) {
    draft->abandon();
    return std::move(result.status);
  }
  if (result.outcome == Outcome::kUnknown) {
    uncertain = true;
    return std::move(result.status)
        .at("version " + std::to_string(draft->manifest.version) +
            " may or may not be committed; the next publish finds out");
  }
  head = std::move(result.record);
  schema = draft->state.schema;
  const Manifest& manifest = head->manifest;
  if (manifest.kind == VersionKind::kFull) {
    anchor = {manifest.version, manifest.anchor_bytes, manifest.chain_bytes};
  }
  return {};
}

// The version stands whatever happens here; a snapshot that could not follow is read again.
void Publisher::Impl::advance(Tensors tensors, const Draft& draft, PublishClock clock,
                              PublishReport* report) {
  const uint64_t version = head->manifest.version;
  // What was not needed to publish is not made now, but for the seed: it is what comes next.
  if (!snapshot && (options.full || version != 0)) return;
  const double begin = clock.now();
  const auto follow = [&]() -> Status {
    if (!snapshot && !folder.empty()) {
      DW_ASSIGN_OR_RETURN(snapshot, FileSnapshot::open(store, snapshot_folder(), version, options,
                                                       draft.at_hand()));
      return {};
    }
    if (!snapshot) snapshot = std::make_unique<MemorySnapshot>(&pool);
    return snapshot->advance({version, tensors, draft.changed, draft.at_hand()});
  };
  const Status status = guard_memory(follow);  // out of memory is no reason to fail either
  DW_SYNC_POINT("publish: snapshot advanced");
  report->phases.push_back({"advance", begin, clock.now()});
  if (status.ok()) return;
  snapshot = nullptr;
  report->warnings.push_back(
      "the snapshot could not follow and is read from the chain next time: " + status.to_string());
}

// The version stands without it; if it cannot be made now it is still due next time.
void Publisher::Impl::add_anchor_if_due(const FullSource& source, PublishClock clock,
                                        PublishReport* report) {
  const Manifest& manifest = head->manifest;
  if (manifest.kind == VersionKind::kFull || !anchor_due(options, manifest, anchor)) return;
  const double begin = clock.now();
  const auto add = [&]() -> Result<uint64_t> {
    DW_ASSIGN_OR_RETURN(std::vector<FullFile> files, source.files());
    return add_anchor(*chain, *head, std::move(files), clock, options.progress);
  };
  const Result<uint64_t> bytes = add();
  report->phases.push_back({"anchor", begin, clock.now()});
  report->anchored = bytes.ok();
  if (bytes.ok()) {
    anchor = {manifest.version, *bytes, manifest.chain_bytes};
  } else {
    report->warnings.push_back("the version could not be stored whole too, as is due: " +
                               bytes.status().to_string());
  }
}

void Publisher::Impl::describe_head(PublishReport* report) const {
  const Manifest& manifest = head->manifest;
  report->version = manifest.version;
  report->full = manifest.kind == VersionKind::kFull;
  report->reason = manifest.reason;
  report->bytes = manifest.part_bytes();
  report->num_parts = manifest.parts.size();
}

Result<PublishReport> Publisher::Impl::publish_alone(Tensors tensors, const FullSource& source,
                                                     PublishClock clock) {
  PublishReport report;
  // Asked while the work goes on: a distant store takes its time to answer.
  std::future<Status> is_free = std::async(std::launch::async, [this] { return check_free(); });
  std::string full_reason = !head ? "seed" : options.full ? "mode" : "";
  std::optional<Draft> draft;
  if (full_reason.empty()) {
    DW_ASSIGN_OR_RETURN(draft, draft_delta_or_rebuild(tensors, clock, &full_reason, &report));
    if (!full_reason.empty()) draft->abandon();
  }
  if (!full_reason.empty()) {
    DW_ASSIGN_OR_RETURN(draft, draft_full(tensors, source, full_reason, clock, &report));
  }
  if (Status status = is_free.get(); !status.ok()) {
    draft->abandon();
    return status;
  }
  const NewState& state = draft->state;
  report.num_tensors = state.schema.tensors.size();
  report.num_changed_tensors = state.num_changed_tensors;
  report.num_elements = state.num_elements;
  report.num_changed = state.num_changed;
  report.committed = !state.unchanged;
  if (state.unchanged) {
    report.version = head->manifest.version;
    return report;
  }
  DW_RETURN_IF_ERROR(commit(&*draft, clock, &report));
  describe_head(&report);
  advance(tensors, *draft, clock, &report);
  add_anchor_if_due(source, clock, &report);
  return report;
}

Result<PublishReport> Publisher::Impl::publish(Tensors given, const FullSource& source) {
  const PublishClock clock;
  DW_ASSIGN_OR_RETURN(const std::vector<PublishTensor> tensors, check_tensors(given));
  DW_RETURN_IF_ERROR(ensure_chain());
  if (uncertain) DW_RETURN_IF_ERROR(read_head());
  if (options.world != 1) DW_RETURN_IF_ERROR(check_free());
  DW_ASSIGN_OR_RETURN(PublishReport report, options.world == 1
                                                ? publish_alone(tensors, source, clock)
                                                : publish_with_others(tensors, source, clock));
  report.run = chain->run();
  report.weights_bytes = bytes_of(tensors);
  report.seconds = clock.now();
  return report;
}

Result<Publisher> Publisher::open(std::shared_ptr<Store> store, std::filesystem::path snapshot,
                                  PublishOptions options) {
  auto impl = std::make_unique<Impl>(std::move(store), std::move(snapshot), std::move(options));
  DW_RETURN_IF_ERROR(impl->open());
  return Publisher(std::move(impl));
}

Publisher::Publisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Publisher::~Publisher() = default;
Publisher::Publisher(Publisher&&) noexcept = default;
Publisher& Publisher::operator=(Publisher&&) noexcept = default;

const std::string& Publisher::run() const noexcept {
  static const std::string none;
  return impl_->chain ? impl_->chain->run() : none;
}

Result<PublishReport> Publisher::publish(std::span<const PublishTensor> tensors,
                                         const std::vector<std::filesystem::path>& extra_files) {
  const auto weights = [&] {
    std::map<std::string, WholeTensor> by_name;
    for (const PublishTensor& tensor : tensors) {
      const TensorView& view = tensor.view;
      WholeTensor& whole = by_name[view.name];
      whole.spec = {view.name, view.dtype, view.shape};
      whole.pieces.push_back({tensor.box, std::make_shared<MemoryBody>(view.bytes)});
    }
    std::vector<WholeTensor> wholes;
    for (auto& [name, whole] : by_name) wholes.push_back(std::move(whole));
    return lay_out_checkpoint(std::move(wholes));
  };
  return impl_->publish(tensors, {weights, extra_files});
}

Result<PublishReport> Publisher::publish_checkpoint(const std::filesystem::path& path) {
  if (looks_like_delta(path)) {
    return invalid_argument(path.string() + ": a delta, not a checkpoint");
  }
  DW_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(path));
  std::vector<PublishTensor> tensors;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) tensors.push_back({tensor.view, {}});
  return impl_->publish(
      tensors, {[&] { return files_of_checkpoint(checkpoint); }, companions_of(checkpoint)});
}

}  // namespace deltawire
