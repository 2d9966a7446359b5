#include "sync/publisher/anchor.h"

#include <algorithm>

#include "base/sync_point.h"
#include "chain/edges.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "codec/guard.h"
#include "sync/compact/shortcut.h"
#include "sync/publisher/bodies.h"
#include "sync/replica/tensors.h"
#include "sync/tensor_digest.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr size_t kAttemptDigits = 12;
constexpr size_t kPages = 4;  // of edges since the last anchor that the head knows

// Corruption, naming the tensor, unless these tensors are the version's.
Status check_version(std::span<const PublishTensor> tensors, const Contents& contents,
                     const Target& version, ThreadPool* pool) {
  const auto& expected = version.schema.tensors;
  if (tensors.size() != expected.size()) {
    return corruption("expected " + std::to_string(expected.size()) + " tensors, got " +
                      std::to_string(tensors.size()));
  }
  return parallel_try(pool, expected.size(), [&](size_t i, unsigned) -> Status {
    const std::string place = "tensor " + quote(expected[i].name);
    if (tensors[i].view.name != expected[i].name) return corruption(place + ": is missing");
    const DigestKind kind = version.manifest.digest_kind;
    const auto boxes = version.manifest.boxes.find(expected[i].name);
    Digest got;
    if (boxes == version.manifest.boxes.end()) {
      DW_ASSIGN_OR_RETURN(got, digest_of_body(kind, *contents[i]));
    } else {  // several runs of bytes each
      std::vector<uint8_t> bytes(contents[i]->size());
      DW_RETURN_IF_ERROR(contents[i]->read(0, bytes));
      got = tensor_digest(kind, expected[i].dtype, expected[i].shape, bytes, &boxes->second);
    }
    if (got == version.manifest.digests[i]) return {};
    return corruption(place + ": expected " + version.manifest.digests[i].hex() + ", got " +
                      got.hex());
  });
}

}  // namespace

Result<AnchorPoint> newest_anchor(const Chain& chain, const Manifest& head) {
  AnchorPoint point{head.anchor, head.anchor_bytes, head.chain_bytes};
  if (head.anchor == head.version) return point;
  DW_ASSIGN_OR_RETURN(const std::vector<EdgeName> edges,
                      list_edges(chain, head.anchor + 1, head.version, kPages));
  for (const EdgeName& edge : edges) {
    if (!edge.base) point = {edge.version, edge.bytes, edge.chain_bytes};
  }
  if (point.version != head.anchor) return point;
  const Result<VersionRecord> record = chain.version(head.anchor);
  if (record.ok()) point.chain_bytes = record->manifest.chain_bytes;
  // Pruned: what it cost since is counted from here.
  if (record.ok() || record.status().code() == Code::kNotFound) return point;
  return record.status();
}

bool anchor_due(const PublishOptions& options, const Manifest& head, const AnchorPoint& newest) {
  const bool by_number =
      options.anchor_every != 0 && head.version - newest.version >= options.anchor_every;
  const bool by_bytes =
      options.anchor_by_bytes && head.chain_bytes - newest.chain_bytes > newest.bytes;
  return by_number || by_bytes;
}

Result<uint64_t> add_anchor(const Chain& chain, const VersionRecord& version,
                            std::vector<FullFile> files, PublishClock clock,
                            const Progress& progress, const std::function<Status()>& prove) {
  const uint64_t bytes = total_bytes(files);
  FullUpload upload(chain.store(),
                    full_folder(version.manifest.version, random_hex(kAttemptDigits)),
                    std::move(files), clock, progress);
  DW_RETURN_IF_ERROR(prove());
  DW_ASSIGN_OR_RETURN(std::vector<PartRef> parts, upload.finish());
  DW_SYNC_POINT("anchor: files put");
  DW_ASSIGN_OR_RETURN(const Shortcut shortcut, add_shortcut(chain, nullptr, version, parts));
  if (shortcut == Shortcut::kThere) upload.abandon();
  return bytes;
}

Result<AnchorReport> make_anchor(std::shared_ptr<Store> store, std::optional<uint64_t> version,
                                 const WorkOptions& options) {
  const PublishClock clock;
  DW_ASSIGN_OR_RETURN(ChainOptions keys, chain_options(options.sign_key, options.trust_key));
  DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store, std::move(keys)));
  if (!version) {
    DW_ASSIGN_OR_RETURN(version, chain.head());
  }
  if (!version) return not_found(store->url() + ": nothing was published yet");
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(*version));
  AnchorReport report;
  report.run = chain.run();
  report.version = *version;
  DW_ASSIGN_OR_RETURN(const auto edges, list_edges(chain, *version, *version, SIZE_MAX));
  const bool there = record.manifest.kind == VersionKind::kFull ||
                     std::any_of(edges.begin(), edges.end(),
                                 [](const EdgeName& edge) { return !edge.base.has_value(); });
  if (!there) {
    DW_ASSIGN_OR_RETURN(const WorkFolder work, WorkFolder::make(options.folder));
    DW_ASSIGN_OR_RETURN(ChainState state, ChainState::open(store, work.path() / "state", options));
    DW_ASSIGN_OR_RETURN(const Checkpoint* checkpoint, state.bring_to(*version));
    const std::vector<PublishTensor> tensors = tensors_of(*checkpoint);
    const Contents contents = contents_of(tensors, nullptr);
    DW_ASSIGN_OR_RETURN(std::vector<FullFile> files, files_of_checkpoint(*checkpoint, contents));
    DW_RETURN_IF_ERROR(add_extra_files(companions_of(*checkpoint), &files));
    report.num_files = files.size();
    DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(record.manifest));
    ThreadPool pool(options.threads);
    const auto prove = [&] {
      return check_version(tensors, contents, {record.manifest, schema}, &pool);
    };
    DW_ASSIGN_OR_RETURN(
        report.bytes, add_anchor(chain, record, std::move(files), clock, options.progress, prove));
    report.made = true;
  }
  report.seconds = clock.now();
  return report;
}

}  // namespace deltawire
