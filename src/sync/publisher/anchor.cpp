#include "sync/publisher/anchor.h"

#include <algorithm>

#include "base/sync_point.h"
#include "chain/edges.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "chain/part_reader.h"
#include "sync/compact/shortcut.h"

namespace deltawire {
namespace {

constexpr size_t kAttemptDigits = 12;
constexpr size_t kPages = 4;  // of edges since the last anchor that the head knows

// Every part as the record has it, byte for byte: to read it costs less than to make it anew.
Result<bool> are_sound(Store& store, const std::vector<PartRef>& parts, const Progress& progress) {
  uint64_t done = 0, total = 0;
  for (const PartRef& part : parts) total += part.size_bytes;
  const auto keep_going = [&](uint64_t bytes) {
    done += bytes;
    return !progress || progress(done, total);
  };
  for (const PartRef& part : parts) {
    const Status status = check_part(store, part, keep_going);
    if (is_damage(status)) return false;
    DW_RETURN_IF_ERROR(Status(status));
  }
  return true;
}

// By itself, or by a shortcut from nothing.
// Shortcuts that have damaged parts, though all their sizes are right, are added to `damaged`.
Result<bool> is_stored_whole(const Chain& chain, const VersionRecord& record,
                             const Progress& progress, std::vector<EdgeName>* damaged) {
  const uint64_t version = record.manifest.version;
  if (record.manifest.kind == VersionKind::kFull) {
    DW_ASSIGN_OR_RETURN(const bool sound,
                        are_sound(chain.store(), record.manifest.parts, progress));
    if (sound) return true;
  }
  DW_ASSIGN_OR_RETURN(const auto edges, list_edges(chain, version, version, SIZE_MAX));
  for (const EdgeName& name : edges) {
    if (name.base) continue;
    DW_ASSIGN_OR_RETURN(const bool usable, is_usable(chain, name));
    if (!usable) continue;
    DW_ASSIGN_OR_RETURN(const Edge edge, read_edge(chain, name));
    DW_ASSIGN_OR_RETURN(const bool sound, are_sound(chain.store(), edge.parts, progress));
    if (sound) return true;
    damaged->push_back(name);
  }
  return false;
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
                            std::vector<FullFile> files, const SideFiles& sides, PublishClock clock,
                            const Progress& progress, bool replace) {
  const uint64_t bytes = total_bytes(files);
  FullUpload upload(chain.store(),
                    full_folder(version.manifest.version, random_hex(kAttemptDigits)),
                    std::move(files), clock, progress);
  DW_ASSIGN_OR_RETURN(std::vector<PartRef> parts, upload.finish());
  if (Status status = sides.check_copies(parts); !status.ok()) {
    upload.abandon();
    return status;
  }
  DW_SYNC_POINT("anchor: files put");
  DW_ASSIGN_OR_RETURN(const Shortcut shortcut,
                      add_shortcut(chain, nullptr, version, parts, replace));
  if (shortcut == Shortcut::kThere) upload.abandon();
  return bytes;
}

Result<AnchorReport> make_anchor(std::shared_ptr<Store> store, std::optional<uint64_t> version,
                                 const WorkOptions& options) {
  const PublishClock clock;
  DW_ASSIGN_OR_RETURN(ChainOptions keys,
                      chain_options(options.sign_key, options.trust_key, options.change_key));
  DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store, std::move(keys)));
  if (!version) {
    DW_ASSIGN_OR_RETURN(version, chain.head());
  }
  if (!version) return not_found(store->url() + ": nothing was published yet");
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(*version));
  DW_RETURN_IF_ERROR(check_key(chain, record.manifest));
  AnchorReport report;
  report.run = chain.run();
  report.version = *version;
  std::vector<EdgeName> damaged;
  DW_ASSIGN_OR_RETURN(const bool there, is_stored_whole(chain, record, options.progress, &damaged));
  if (!there) {
    DW_ASSIGN_OR_RETURN(const WorkFolder work, WorkFolder::make(options.folder));
    DW_ASSIGN_OR_RETURN(ChainState state, ChainState::open(store, work.path() / "state", options));
    DW_ASSIGN_OR_RETURN(const Checkpoint* checkpoint, state.bring_to(*version));
    DW_ASSIGN_OR_RETURN(std::vector<FullFile> files, files_of_checkpoint(*checkpoint));
    DW_ASSIGN_OR_RETURN(const auto sides, SideFiles::gather({}, &record.manifest, store));
    for (FullFile& copy : sides->copies()) files.push_back(std::move(copy));
    report.num_files = files.size();
    DW_ASSIGN_OR_RETURN(report.bytes, add_anchor(chain, record, std::move(files), *sides, clock,
                                                 options.progress, true));
    report.made = true;
    for (const EdgeName& name : damaged) {
      if (name.bytes != report.bytes) DW_RETURN_IF_ERROR(store->remove(edge_name(name)));
    }
  }
  report.seconds = clock.now();
  return report;
}

}  // namespace deltawire
