#include "chain/fsck.h"

#include <algorithm>
#include <map>
#include <set>

#include "chain/fsck_parts.h"
#include "chain/heartbeat.h"
#include "chain/hop_records.h"
#include "chain/names.h"
#include "chain/retention.h"
#include "chain/trash.h"
#include "format/part_check.h"
#include "store/probe.h"

namespace deltawire {
namespace {

// The data that is kept of a checked version.
struct Seen {
  Digest digest;
  uint64_t chain_bytes = 0;
  bool full = false, sound = false;  // sound: the record can be relied upon
  bool reachable = false;
};

class Checker {
 public:
  Checker(const Chain& chain, const ObjectCheck& options)
      : chain_(chain), store_(chain.store()), options_(options) {}

  Result<FsckReport> run() {
    DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain_.head());
    DW_RETURN_IF_ERROR(list_everything());
    DW_RETURN_IF_ERROR(check_notes());
    if (head) out_.report.head = *head;
    for (const uint64_t version : names_.versions) DW_RETURN_IF_ERROR(check_version(version));
    for (const HopName& hop : names_.hops) DW_RETURN_IF_ERROR(check_hop(hop));
    check_reachable();
    DW_RETURN_IF_ERROR(check_hint(head));
    DW_RETURN_IF_ERROR(check_small_objects());
    check_others(head);
    out_.report.num_versions = names_.versions.size();
    out_.report.num_hops = names_.hops.size();
    return std::move(out_.report);
  }

 private:
  // ---- names

  Status list_everything() {
    return list_all(store_, "", "", [&](const ObjectInfo& object) {
      objects_[object.name] = object;
      if (const auto version = version_of_manifest(object.name)) {
        names_.versions.insert(*version);
      } else if (const auto hop = parse_hop_name(object.name)) {
        names_.hops.push_back(*hop);
      }
      return true;
    });
  }

  Status check_notes() {
    DW_ASSIGN_OR_RETURN(const auto listed, read_notes());
    for (const ListedTrash& own : listed) {
      if (!own.trash.ok()) out_.problem(own.trash.status());
    }
    return {};
  }
  Result<std::vector<ListedTrash>> read_notes() {
    DW_ASSIGN_OR_RETURN(auto listed, list_trash(store_));
    for (const ListedTrash& own : listed) {
      if (!own.trash.ok()) continue;
      for (const TrashedObject& object : own.trash->objects) noted_.insert(object.name);
      going_.insert(going_.end(), own.trash->versions.begin(), own.trash->versions.end());
    }
    return listed;
  }
  // Whether a gc has announced that this version goes: then parts of it may be gone.
  bool is_going(uint64_t version) const {
    return std::any_of(going_.begin(), going_.end(),
                       [&](const VersionRange& range) { return range.contains(version); });
  }

  // ---- versions

  Status check_version(uint64_t version) {
    Result<VersionRecord> record = chain_.version(version);
    Seen& seen = seen_[version];
    if (!record.ok()) {
      previous_.reset();
      if (record.status().code() == Code::kNotFound) {  // it was there when the store was listed
        DW_RETURN_IF_ERROR(read_notes().status());
        if (is_going(version)) return {};
      }
      return out_.note(record.status());
    }
    const Manifest& m = record->manifest;
    seen = {record->digest, m.chain_bytes, m.kind == VersionKind::kFull, true, false};
    const std::string name = manifest_name(version);
    check_links(name, *record);
    DW_ASSIGN_OR_RETURN(const Schema* schema, schema_of(m));
    if (schema != nullptr) {
      Status status = check_state(*schema, m).at(out_.place(name));
      if (!status.ok()) schema = nullptr;
      DW_RETURN_IF_ERROR(out_.note(std::move(status)));
    }
    const bool follows = previous_ && m.base && previous_->record.manifest.version == *m.base;
    const DescribedState base =
        follows ? DescribedState{previous_->schema, &previous_->record.manifest} : DescribedState{};
    DW_RETURN_IF_ERROR(
        parts_.check_parts(name, m.kind == VersionKind::kFull, m.parts, base, {schema, &m}));
    DW_RETURN_IF_ERROR(parts_.check_files(name, m));
    if (m.kind == VersionKind::kFull) parts_.check_copies(name, m.files, m.parts);
    if (schema == nullptr) {
      previous_.reset();
    } else {
      previous_ = Previous{std::move(*record), schema};
    }
    return {};
  }

  void check_links(const std::string& name, const VersionRecord& record) {
    const Manifest& m = record.manifest;
    if (m.base && *m.base + 1 != m.version) {
      out_.bad(name, "base: expected " + std::to_string(m.version - 1) + ", got " +
                         std::to_string(*m.base));
    }
    const auto before = m.version == 0 ? seen_.end() : seen_.find(m.version - 1);
    if (before == seen_.end() || !before->second.sound) return;
    if (*m.parent != before->second.digest) {
      out_.bad(name,
               "parent: expected " + before->second.digest.hex() + ", got " + m.parent->hex());
    }
    if (m.chain_bytes != before->second.chain_bytes + m.part_bytes()) {
      out_.bad(name, "chain_bytes: expected " +
                         std::to_string(before->second.chain_bytes + m.part_bytes()) + ", got " +
                         std::to_string(m.chain_bytes));
    }
  }

  // Null when it is damaged, which is reported once.
  Result<const Schema*> schema_of(const Manifest& m) {
    const std::string& name = m.schema.name;
    const auto known = schemas_.find(name);
    if (known != schemas_.end()) return known->second ? &*known->second : nullptr;
    std::optional<Schema>& kept = schemas_[name];
    Result<Schema> schema = chain_.schema(m);
    if (schema.ok()) {
      kept = std::move(*schema);
      return &*kept;
    }
    DW_RETURN_IF_ERROR(out_.note(schema.status()));
    return nullptr;
  }

  // ---- hop records

  Status check_hop(const HopName& name) {
    const std::string object = hop_name(name);
    Result<HopRecord> hop = read_hop(chain_, name);
    if (!hop.ok()) return out_.note(hop.status());
    DW_ASSIGN_OR_RETURN(const bool target_fits,
                        check_end(object, name.version, hop->manifest, name.chain_bytes));
    bool base_fits = false;
    if (name.base) {
      DW_ASSIGN_OR_RETURN(
          base_fits, check_end(object, *name.base, *hop->base_manifest, name.base_chain_bytes));
    }
    // Records again: there may be too many to keep them all.
    std::optional<VersionRecord> target, base;
    const Schema *target_schema = nullptr, *base_schema = nullptr;
    DW_RETURN_IF_ERROR(describe(target_fits, name.version, &target, &target_schema));
    if (name.base) DW_RETURN_IF_ERROR(describe(base_fits, *name.base, &base, &base_schema));
    sound_hops_.push_back(name);
    if (target && !name.base) parts_.check_copies(object, target->manifest.files, hop->parts);
    return parts_.check_parts(object, !name.base, hop->parts,
                              {base_schema, base ? &base->manifest : nullptr},
                              {target_schema, target ? &target->manifest : nullptr});
  }

  // Whether the version at one end of a hop record is the one it means.
  Result<bool> check_end(const std::string& object, uint64_t version, const Digest& digest,
                         uint64_t chain_bytes) {
    const auto seen = seen_.find(version);
    if (seen == seen_.end()) {
      if (!is_going(version)) {
        out_.bad(object, "version " + std::to_string(version) + " is missing");
      }
      return false;
    }
    if (!seen->second.sound) return false;
    if (digest != seen->second.digest) {
      out_.bad(object, "manifest of version " + std::to_string(version) + ": expected " +
                           seen->second.digest.hex() + ", got " + digest.hex());
      return false;
    }
    if (chain_bytes != seen->second.chain_bytes) {
      out_.bad(object, "chain_bytes of version " + std::to_string(version) + ": expected " +
                           std::to_string(seen->second.chain_bytes) + ", got " +
                           std::to_string(chain_bytes));
      return false;
    }
    return true;
  }

  Status describe(bool fits, uint64_t version, std::optional<VersionRecord>* record,
                  const Schema** schema) {
    if (!fits) return {};
    DW_ASSIGN_OR_RETURN(*record, chain_.version(version));
    DW_ASSIGN_OR_RETURN(const Schema* found, schema_of((*record)->manifest));
    if (found != nullptr && check_state(*found, (*record)->manifest).ok()) *schema = found;
    return {};
  }

  // ---- paths

  // An anchor must lead to every version, except those that gc is about to remove.
  void check_reachable() {
    std::multimap<uint64_t, HopName> hops;
    for (const HopName& hop : sound_hops_) hops.emplace(hop.version, hop);
    std::optional<uint64_t> unreached;  // the first of several in a row
    for (auto& [version, seen] : seen_) {
      const auto is_reached = [&](uint64_t base) {
        const auto found = seen_.find(base);
        return found != seen_.end() && found->second.reachable;
      };
      seen.reachable = seen.sound && (seen.full || (version != 0 && is_reached(version - 1)));
      const auto [begin, end] = hops.equal_range(version);
      for (auto it = begin; it != end; ++it) {
        seen.reachable |= seen.sound && (!it->second.base || is_reached(*it->second.base));
      }
      if (seen.reachable || is_going(version)) {
        unreached.reset();
        continue;
      }
      if (!unreached && seen.sound) {
        out_.bad(manifest_name(version), "no anchor leads to this version");
      }
      unreached = version;
    }
  }

  // ---- everything else

  Status check_hint(std::optional<uint64_t> head) {
    if (!head) return {};
    const Result<std::string> text = store_.get(kHeadName, kMaxHintBytes);
    if (!text.ok() && !is_damage(text.status())) return text.status();
    const std::string expected = std::to_string(*head) + "\n";
    if (!text.ok()) {
      out_.warn(out_.place(kHeadName) + ": the hint is missing; the newest version is " +
                std::to_string(*head));
    } else if (*text != expected) {
      out_.warn(out_.place(kHeadName) + ": the hint does not name the newest version, " +
                std::to_string(*head));
    }
    return {};
  }

  Status check_small_objects() {
    DW_ASSIGN_OR_RETURN(const auto heartbeats, list_heartbeats(store_));
    for (const ListedHeartbeat& listed : heartbeats) {
      if (!listed.heartbeat.ok()) out_.warn(listed.heartbeat.status().to_string());
    }
    for (const auto& [name, object] : objects_) {
      const auto pin = version_of_pin(name);
      if (!pin) continue;
      if (!names_.versions.contains(*pin))
        out_.warn(out_.place(name) + ": there is no such version");
      if (object.size_bytes != 0) out_.warn(out_.place(name) + ": is not empty");
    }
    return {};
  }

  // Objects that nothing above accounts for.
  void check_others(std::optional<uint64_t> head) {
    for (const auto& [name, object] : objects_) {
      if (name == kRunName || name == kHeadName || parts_.is_named(name) ||
          name.starts_with(kTrashPrefix) || name.starts_with(kReplicaPrefix) ||
          name.starts_with(kProbePrefix) || version_of_pin(name) || version_of_manifest(name) ||
          parse_hop_name(name)) {
        continue;
      }
      if (schemas_.contains(name)) {
        ++out_.report.num_schemas;
        continue;
      }
      const auto attempt = attempt_folder(name);
      if (noted_.contains(name) || (attempt && (!head || attempt->version > *head))) {
        ++out_.report.num_waiting;
        out_.report.waiting_bytes += object.size_bytes;
        continue;
      }
      ++out_.report.num_orphans;
      out_.report.orphan_bytes += object.size_bytes;
      if (attempt) {
        out_.warn(out_.place(name) + ": an orphan: no record names it");
      } else if (name.starts_with(kSchemaPrefix)) {
        out_.warn(out_.place(name) + ": no version has this schema");
      } else {
        out_.warn(out_.place(name) + ": not an object of a chain");
      }
    }
  }

  struct Previous {
    VersionRecord record;
    const Schema* schema;
  };

  const Chain& chain_;
  Store& store_;
  const ObjectCheck& options_;
  FsckFindings out_{store_};

  std::map<std::string, ObjectInfo> objects_;
  FsckParts parts_{options_, objects_, &out_};
  ChainNames names_;
  std::map<uint64_t, Seen> seen_;
  std::optional<Previous> previous_;
  std::map<std::string, std::optional<Schema>> schemas_;  // by name
  std::vector<HopName> sound_hops_;
  std::set<std::string> noted_;  // objects that gc will delete
  std::vector<VersionRange> going_;
};

}  // namespace

Result<FsckReport> check_chain(const Chain& chain, const ObjectCheck& options) {
  // A handle of its own: the chain may remember a schema, and fsck is to look.
  DW_ASSIGN_OR_RETURN(const Chain own, open_with_keys(chain.shared_store(), keys_of(chain)));
  return Checker(own, options).run();
}

}  // namespace deltawire
