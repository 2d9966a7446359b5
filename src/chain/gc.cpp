// Removes what retention does not keep. docs/protocol.md, "Retention".
#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "base/sync_point.h"
#include "chain/chain.h"
#include "chain/heartbeat.h"
#include "chain/hop_records.h"
#include "chain/named_objects.h"
#include "chain/names.h"
#include "chain/read_records.h"
#include "chain/retention.h"
#include "chain/sweep.h"
#include "store/temporary_file.h"

namespace deltawire {
namespace {

constexpr size_t kBatch = 500;         // versions that are announced and removed together
constexpr size_t kMostNoted = 10'000;  // objects in one note
constexpr int64_t kForgetSeconds = 30 * 24 * 3600;  // a replica that has not been seen for so long
constexpr int64_t kTemporarySeconds = 24 * 3600;    // no writer leaves a file alone for so long
constexpr int64_t kRemoveSeconds = kBelievedSeconds / 2;  // what was announced is gone, or stays

class Collector {
 public:
  Collector(const Chain& chain, const GcOptions& options)
      : chain_(chain), store_(chain.store()), options_(options) {}

  Result<GcReport> run() {
    if (options_.keep == 0) return invalid_argument("gc keeps at least one version");
    if (options_.grace_seconds < 0) return invalid_argument("a grace period is not negative");
    DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain_.head());
    if (!head) return std::move(report_);
    report_.head = *head;
    DW_ASSIGN_OR_RETURN(const VersionRecord newest, chain_.version(*head));
    DW_RETURN_IF_ERROR(check_may_remove(manifest_name(*head), newest.manifest.signed_by));
    DW_RETURN_IF_ERROR(read_clock());
    DW_ASSIGN_OR_RETURN(claims_, list_claims(store_, now_));
    DW_ASSIGN_OR_RETURN(names_, list_names(chain_));
    // A listing may be behind the head; nothing is newer than the head as far as this run goes.
    names_.versions.insert(*head);
    names_.versions.erase(names_.versions.upper_bound(*head), names_.versions.end());
    std::erase_if(names_.hops, [&](const HopName& hop) { return hop.version > *head; });
    DW_ASSIGN_OR_RETURN(kept_, what_to_keep(chain_, names_, *head, options_.keep, claims_));
    report_.kept = kept_.ranges;
    report_.reasons = kept_.reasons;
    report_.notes.insert(report_.notes.end(), kept_.notes.begin(), kept_.notes.end());
    report_.notes.insert(report_.notes.end(), claims_.unreadable.begin(), claims_.unreadable.end());
    DW_RETURN_IF_ERROR(sweep_trash({store_, options_, now_, names_.versions, claims_}, &named_,
                                   &noted_, &report_));
    DW_RETURN_IF_ERROR(remove_records());
    DW_RETURN_IF_ERROR(note_orphans());
    DW_ASSIGN_OR_RETURN(report_.num_forgotten,
                        forget_replicas(store_, now_ - kForgetSeconds, options_.dry_run));
    remove_temporaries();
    return std::move(report_);
  }

 private:
  // That of this machine must not decide what is old; but who may only read the store can still ask
  // what would be done. Without a grace period nothing need be old.
  Status read_clock() {
    const Result<int64_t> now = store_time(store_);
    const bool timeless = now.status().code() == Code::kUnsupported && options_.grace_seconds == 0;
    if (!now.ok() && !timeless && !options_.dry_run) return now.status();
    now_ = now.ok() ? *now : timeless ? 0 : unix_seconds();
    began_ = std::chrono::steady_clock::now();
    if (!now.ok() && !timeless) {
      report_.notes.push_back(
          "using the clock of this machine, because the store's cannot be read: " +
          now.status().to_string());
    }
    return {};
  }

  // Of this instant, by the store's clock; now_ is when the run began.
  int64_t now() const {
    const auto since = std::chrono::steady_clock::now() - began_;
    return now_ + std::chrono::duration_cast<std::chrono::seconds>(since).count();
  }

  // A stranger's unsigned version on top must not decide that the signed ones below it are old.
  Status check_may_remove(const std::string& record, const std::string& signed_by) const {
    if (signed_by.empty() || keys_of(chain_).trust || options_.signed_too) return {};
    return invalid_argument(store_.url() + "/" + record + ": is signed with key " + signed_by +
                            ", so gc must check signatures before it removes anything");
  }

  bool is_kept(uint64_t version) const { return kept_.contains(version); }
  bool is_kept(const HopName& hop) const {
    return is_kept(hop.version) && (!hop.base || is_kept(*hop.base));
  }

  // ---- records

  Status remove_records() {
    std::vector<uint64_t> versions;
    for (const uint64_t version : names_.versions) {
      if (!is_kept(version)) versions.push_back(version);
    }
    std::vector<HopName> hops;
    for (const HopName& hop : names_.hops) {
      if (!is_kept(hop)) hops.push_back(hop);
    }
    // Each hop record goes with the older of its ends that goes, so that none outlives a version it
    // begins at or leads to.
    const auto goes_with = [&](const HopName& hop) {
      return hop.base && !is_kept(*hop.base) ? *hop.base : hop.version;
    };
    std::sort(hops.begin(), hops.end(),
              [&](const HopName& a, const HopName& b) { return goes_with(a) < goes_with(b); });
    auto hop = hops.begin();
    for (size_t begin = 0; begin < versions.size() || hop != hops.end(); begin += kBatch) {
      const size_t end = std::min(begin + kBatch, versions.size());
      std::vector<uint64_t> batch;
      if (begin < end)
        batch.assign(versions.begin() + ptrdiff_t(begin), versions.begin() + ptrdiff_t(end));
      auto last = hops.end();
      if (end < versions.size()) {
        last = std::find_if(hop, hops.end(),
                            [&](const HopName& e) { return goes_with(e) >= versions[end]; });
      }
      DW_ASSIGN_OR_RETURN(const bool done, remove_batch(batch, {hop, last}));
      if (!done) return {};
      hop = last;
    }
    return {};
  }

  // False when somebody has claimed one of them meanwhile.
  Result<bool> remove_batch(const std::vector<uint64_t>& versions,
                            const std::vector<HopName>& hops) {
    Trash trash;
    trash.created = now();  // of this batch: the run may have begun long ago
    trash.versions = ranges_of(versions);
    DW_RETURN_IF_ERROR(note_objects(versions, hops, &trash));
    if (!options_.dry_run) {
      DW_ASSIGN_OR_RETURN(const std::string announced, put_trash(store_, trash));
      DW_SYNC_POINT("gc: announced");
      DW_ASSIGN_OR_RETURN(const bool claimed, is_claimed_now(versions));
      if (claimed) {
        report_.notes.push_back("a pin or lease was added meanwhile; the next gc considers it");
        DW_RETURN_IF_ERROR(store_.remove(announced));
        return false;
      }
    }
    count(trash);
    report_.num_versions += versions.size();
    report_.num_hops += hops.size();
    if (options_.dry_run) return true;
    std::vector<std::string> names;
    for (const HopName& hop : hops) names.push_back(hop_name(hop));
    DW_RETURN_IF_ERROR(remove_all(store_, names));
    DW_SYNC_POINT("gc: hops removed");
    for (const uint64_t version : versions) {
      if (now() - trash.created > kRemoveSeconds) {
        report_.notes.push_back(
            "gc took so long that new pins may have been missed; the next gc continues");
        return false;
      }
      DW_RETURN_IF_ERROR(store_.remove(manifest_name(version)));
      DW_SYNC_POINT("gc: manifest removed");
    }
    return true;
  }

  Result<bool> is_claimed_now(const std::vector<uint64_t>& versions) {
    DW_ASSIGN_OR_RETURN(const Claims claims, list_claims(store_, now()));
    if (claims == claims_) return false;
    DW_ASSIGN_OR_RETURN(const Kept kept,
                        what_to_keep(chain_, names_, report_.head, options_.keep, claims));
    return std::any_of(versions.begin(), versions.end(),
                       [&](uint64_t version) { return kept.contains(version); });
  }

  // What the records of a batch name. One that cannot be read leaves its objects to the search for
  // orphans.
  Status note_objects(const std::vector<uint64_t>& versions, const std::vector<HopName>& hops,
                      Trash* trash) {
    DW_ASSIGN_OR_RETURN(const auto records, read_records(chain_, versions, hops, &report_.notes));
    for (const ReadRecord& record : records) {
      DW_RETURN_IF_ERROR(check_may_remove(record.name, record.signed_by));
      for (const PartRef& part : record.parts) {
        if (!attempt_folder(part.name)) continue;
        noted_.insert(part.name);
        trash->objects.push_back({part.name, part.size_bytes, record.name});
      }
    }
    return note_side_objects(records, trash);
  }

  // Files of these versions that none of those which stay has.
  Status note_side_objects(const std::vector<ReadRecord>& records, Trash* trash) {
    std::set<uint64_t> stay;
    for (const uint64_t version : names_.versions) {
      if (is_kept(version)) stay.insert(version);
    }
    NamedSideObjects named(chain_, stay);
    std::set<std::string> seen;
    for (const ReadRecord& record : records) {
      for (const SideFile& file : record.files) {
        const PartRef object = side_object(file);
        if (!seen.insert(object.name).second) continue;
        DW_ASSIGN_OR_RETURN(const bool needed,
                            named.is_named(object.name, attempt_folder(object.name)->version));
        if (needed) continue;
        noted_.insert(object.name);
        trash->objects.push_back({object.name, object.size_bytes, ""});
      }
    }
    return {};
  }

  void count(const Trash& trash) {
    report_.num_noted += trash.objects.size();
    for (const TrashedObject& object : trash.objects) report_.noted_bytes += object.size_bytes;
  }

  // ---- orphans

  Status note_orphans() {
    std::map<uint64_t, size_t> records;
    for (const uint64_t version : names_.versions) records[version] += is_kept(version);
    for (const HopName& hop : names_.hops) records[hop.version] += is_kept(hop);
    Trash trash;
    trash.created = now_;
    const auto take = [&](const ObjectInfo& object) -> Status {
      ++report_.num_orphans;
      trash.objects.push_back({object.name, object.size_bytes, ""});
      return trash.objects.size() >= kMostNoted ? put(&trash) : Status();
    };
    const OrphanSearch search{store_, report_.head, now_ - options_.grace_seconds, noted_};
    DW_RETURN_IF_ERROR(find_orphans(search, records, &named_, take));
    DW_RETURN_IF_ERROR(put(&trash));
    DW_RETURN_IF_ERROR(find_side_orphans(search, &named_, take));
    return put(&trash);
  }

  Status put(Trash* trash) {
    count(*trash);
    if (!trash->objects.empty() && !options_.dry_run) {
      DW_RETURN_IF_ERROR(put_trash(store_, *trash).status());
      DW_SYNC_POINT("gc: orphans noted");
    }
    trash->objects.clear();
    return {};
  }

  // ---- files left by killed writers in a folder

  void remove_temporaries() {
    const std::string folder = store_.local_folder();
    if (folder.empty()) return;
    const int64_t age = std::max(kTemporarySeconds, options_.grace_seconds);
    const Result<uint64_t> removed = remove_left_temporaries(folder, now_ - age, options_.dry_run);
    if (removed.ok()) {
      report_.num_temporaries = *removed;
    } else {  // another user's, say: nothing depends on them
      report_.notes.push_back(removed.status().to_string());
    }
  }

  const Chain& chain_;
  Store& store_;
  const GcOptions options_;
  std::chrono::steady_clock::time_point began_;
  int64_t now_ = 0;

  Claims claims_;
  ChainNames names_;
  Kept kept_;
  std::set<std::string> noted_;  // objects that are in some note
  NamedObjects named_{chain_, names_.versions};
  GcReport report_;
};

}  // namespace

// First deletes the objects that earlier calls noted and that are not needed any more. Then notes
// the objects that are no longer referenced and removes their records: hop records, then manifests
// from the oldest. It may be killed at any time and may run beside publishers, readers and another
// gc: it removes only objects that are older than those in use, notes them first, and deletes them
// a grace period after their records. Schemas are small and shared, so they stay.
//
// Readers without a lease must finish within the grace period, and so must compactions. Only the
// store's clock counts. If its objects have no times and there is a grace period, the result is
// Unsupported and nothing is removed. A heartbeat that cannot be read may hold a lease: no objects
// are deleted until it is a day old, and a note says so.
//
// Records decide what goes, and anyone who can write to the store can forge some. So before signed
// records are removed, the chain must trust keys, unless `signed_too` says that it is no longer
// signed. Notes in trash/ are hints: an object that a record names stays, and so does one that is
// younger than the grace period or above the head.
Result<GcReport> Chain::collect_garbage(const GcOptions& options) const {
  return Collector(*this, options).run();
}

}  // namespace deltawire
