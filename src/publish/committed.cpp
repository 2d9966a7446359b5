// Commits a draft, and does what follows a commit.
#include "base/guard.h"
#include "base/process.h"
#include "base/sync_point.h"
#include "publish/impl.h"
#include "publish/record.h"
#include "publish/snapshot_file.h"

namespace deltawire {

// Fills in the manifest, except for its parts.
Status Publisher::Impl::complete(Draft* draft, PublishClock clock) {
  Manifest& manifest = draft->manifest;
  manifest.run = chain->run();
  manifest.version = next_version();
  if (head) {
    manifest.parent = head->digest;
  } else if (manifest.version != 0) {
    manifest.parent = digest_of(DigestKind::kSha256, {});  // an empty digest: there is no parent
  }
  manifest.origin = options.origin.place;
  manifest.created = utc_now();
  manifest.publisher = process_name();
  if (head && draft->state.schema == schema) {
    manifest.schema = head->manifest.schema;  // already stored: the head names it
  } else {
    DW_ASSIGN_OR_RETURN(manifest.schema, put_schema(*chain, draft->state.schema));
  }
  describe_state(draft->state, &manifest);
  manifest.codec = options.codec;
  manifest.quantization = options.quantization;
  manifest.files = draft->sides->list();
  draft->sides->keep();
  const uint64_t bytes = manifest.part_bytes();
  manifest.chain_bytes = (head ? head->manifest.chain_bytes : 0) + bytes;
  const bool full = manifest.kind == VersionKind::kFull;
  manifest.anchor = full ? manifest.version : anchor.version;
  manifest.anchor_bytes = full ? bytes : anchor.bytes;
  manifest.milliseconds = uint64_t(clock.now() * 1000);
  return {};
}

Status Publisher::Impl::commit(Draft* draft, const FullSource* source, PublishClock clock,
                               PublishReport* report) {
  const double begin = clock.now();
  Commit result;
  // Repeated where this is cheap and where the disk of a folder may have been unmounted.
  result.status = store->local_folder().empty() ? Status() : check_free();
  if (result.status.ok() && !whole_reason.empty()) result.status = remove_lost_hops();
  if (result.status.ok()) result.status = complete(draft, clock);
  if (result.status.ok()) {
    // The objects match the manifest. The source tells whether they are a single state or a mixture
    // of two saves.
    result = commit_version(*chain, draft->manifest, options,
                            [&] { return source ? source->check() : Status(); });
  }
  report->phases.push_back({"commit", begin, clock.now()});
  if (result.outcome == Outcome::kNot) {
    draft->take_back();
    return std::move(result.status);
  }
  if (result.outcome == Outcome::kTooLate) return std::move(result.status);
  if (result.outcome == Outcome::kUnknown) {
    uncertain = true;
    return std::move(result.status)
        .at("version " + std::to_string(draft->manifest.version) +
            " may or may not be committed; the next publish finds out");
  }
  head = VersionRecord{draft->manifest, result.digest};
  schema = draft->state.schema;
  whole_reason.clear();
  note_head();
  DW_SYNC_POINT("publish: version noted");
  const Manifest& manifest = head->manifest;
  if (manifest.kind == VersionKind::kFull) {
    anchor = {manifest.version, manifest.anchor_bytes, manifest.chain_bytes};
  }
  return {};
}

// The version is committed whatever happens here. If the snapshot cannot be advanced, it is read
// again.
void Publisher::Impl::advance(Tensors tensors, bool stay, const Draft& draft, PublishClock clock,
                              PublishReport* report) {
  const uint64_t version = head->manifest.version;
  // A snapshot that this publish did not need is created only from a version stored whole.
  if (!snapshot && (anchors == nullptr || head->manifest.kind != VersionKind::kFull)) return;
  const double begin = clock.now();
  const KeptChanges* const kept = draft.kept && draft.kept->complete() ? &*draft.kept : nullptr;
  const auto advance = [&]() -> Status {
    if (!snapshot && on_disk != nullptr) {
      DW_ASSIGN_OR_RETURN(snapshot, FileSnapshot::open(*chain, snapshot_folder(), version, options,
                                                       draft.at_hand()));
      return {};
    }
    if (!snapshot) snapshot = std::make_unique<MemorySnapshot>(&pool);
    return snapshot->advance(
        {version, tensors, draft.pieces, draft.at_hand(), kept, device.get(), stay});
  };
  const Status status =
      guard_memory("the snapshot", advance);  // running out of memory is not an error here either
  DW_SYNC_POINT("publish: snapshot advanced");
  report->phases.push_back({"advance", begin, clock.now()});
  if (status.ok()) return;
  snapshot = nullptr;
  report->warnings.push_back(
      "the snapshot could not be advanced and is read from the chain next time: " +
      status.to_string());
}

// The version is committed without the anchor. If it fails now, it is due again next time.
void Publisher::Impl::add_anchor_if_due(Tensors tensors, const Draft& draft,
                                        const FullSource& source, PublishClock clock,
                                        PublishReport* report) {
  const Manifest& manifest = head->manifest;
  if (manifest.kind == VersionKind::kFull || anchors == nullptr) return;
  if (!anchor_due(*anchors, manifest, anchor)) return;
  const double begin = clock.now();
  const auto add = [&]() -> Result<uint64_t> {
    const Contents contents = contents_of(tensors, device.get());
    DW_ASSIGN_OR_RETURN(const CodedThere there, code_there(tensors));
    DW_ASSIGN_OR_RETURN(std::vector<FullFile> files, source.files(contents, pack(), there));
    return add_anchor(*chain, *head, std::move(files), *source.sides, clock, options.progress, [&] {
      return check_contents(contents, draft.pieces, &pool, &there.digests);
    });
  };
  const Result<uint64_t> bytes = guard_memory("an anchor", add);
  report->phases.push_back({"anchor", begin, clock.now()});
  report->anchored = bytes.ok();
  if (bytes.ok()) {
    anchor = {manifest.version, *bytes, manifest.chain_bytes};
  } else {
    report->warnings.push_back("an anchor is due but could not be written: " +
                               bytes.status().to_string());
  }
}

void Publisher::Impl::notice_dense(Tensors tensors, PublishReport* report) {
  const bool dense = report->full ? report->reason.starts_with(kDense)
                                  : 2 * report->num_changed > report->num_elements;
  const bool same = report->num_added + report->num_removed + report->num_reshaped == 0;
  const bool is_known = options.codec != "raw";  // which stores all weights, however few changed
  if (!dense || !same || !is_known || reported_dense) return;
  uint64_t float32 = 0, adapter = 0;
  for (const PublishTensor& tensor : tensors) {
    // All weights of a LoRA adapter change in every step, in any dtype.
    const bool is_adapter = tensor.view.name.starts_with("base_model.model.");
    if (is_adapter || tensor.view.dtype == DType::kF32) {
      (is_adapter ? adapter : float32) += published_bytes(tensor);
    }
  }
  if (2 * adapter > bytes_of(tensors)) return;
  reported_dense = true;
  report->dense_float32 = 2 * float32 > bytes_of(tensors);
  if (report->dense_float32) return;
  report->warnings.push_back(
      "most weights changed; if this is another model or the start of another run, publish it to a "
      "store of its own");
}

void Publisher::Impl::describe_head(PublishReport* report) const {
  const Manifest& manifest = head->manifest;
  static_cast<Identity&>(*report) = head->identity();
  report->full = manifest.kind == VersionKind::kFull;
  report->reason = manifest.reason;
  report->codec = manifest.codec;
  report->bytes = manifest.part_bytes();
  report->num_parts = manifest.parts.size();
}

}  // namespace deltawire
