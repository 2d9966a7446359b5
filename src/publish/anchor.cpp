#include "publish/anchor.h"

#include "base/bytes.h"
#include "base/sync_point.h"
#include "chain/hop_records.h"
#include "chain/names.h"

namespace deltawire {
namespace {

constexpr size_t kPages = 4;  // of hop records since the last anchor that the head knows

}  // namespace

Result<AnchorPoint> newest_anchor(const Chain& chain, const Manifest& head) {
  AnchorPoint point{head.anchor, head.anchor_bytes, head.chain_bytes};
  if (head.anchor == head.version) return point;
  DW_ASSIGN_OR_RETURN(const std::vector<HopName> hops,
                      list_hops(chain, head.anchor + 1, head.version, kPages));
  for (const HopName& hop : hops) {
    if (!hop.base) point = {hop.version, hop.bytes, hop.chain_bytes};
  }
  if (point.version != head.anchor) return point;
  const Result<VersionRecord> record = chain.version(head.anchor);
  if (record.ok()) point.chain_bytes = record->manifest.chain_bytes;
  // Pruned: what it cost since is counted from here.
  if (record.ok() || record.status().code() == Code::kNotFound) return point;
  return record.status();
}

bool anchor_due(const Anchors& rule, const Manifest& head, const AnchorPoint& newest) {
  const bool by_number = rule.every != 0 && head.version - newest.version >= rule.every;
  const bool by_bytes = rule.by_bytes && head.chain_bytes - newest.chain_bytes > newest.bytes;
  return by_number || by_bytes;
}

Result<uint64_t> add_anchor(const Chain& chain, const VersionRecord& version,
                            std::vector<FullFile> files, const SideFiles& sides, PublishClock clock,
                            const Progress& progress, const std::function<Status()>& prove,
                            bool replace) {
  const uint64_t bytes = total_bytes(files);
  FullUpload upload(chain.store(),
                    full_folder(version.manifest.version, random_hex(kAttemptDigits)),
                    std::move(files), clock, progress);
  DW_RETURN_IF_ERROR(prove());
  DW_ASSIGN_OR_RETURN(std::vector<PartRef> parts, upload.finish());
  if (Status status = sides.check_copies(parts); !status.ok()) {
    upload.abandon();
    return status;
  }
  DW_SYNC_POINT("anchor: files put");
  DW_ASSIGN_OR_RETURN(const EnsuredHop ensured,
                      ensure_hop(chain, nullptr, version, parts, replace));
  if (ensured == EnsuredHop::kThere) upload.abandon();
  return bytes;
}

}  // namespace deltawire
