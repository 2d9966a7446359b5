#include "chain/sweep.h"

#include <algorithm>
#include <vector>

#include "base/sync_point.h"
#include "chain/names.h"
#include "chain/read_records.h"
#include "chain/trash.h"

namespace deltawire {
namespace {

class Sweep {
 public:
  Sweep(const SweepContext& context, NamedObjects* named, std::set<std::string>* noted,
        GcReport* report)
      : context_(context), named_(*named), noted_(*noted), report_(*report) {}

  Status run() {
    DW_ASSIGN_OR_RETURN(const auto listed, list_trash(context_.store));
    for (const ListedTrash& own : listed) {
      if (!own.trash.ok()) {
        report_.notes.push_back(own.trash.status().to_string());
        continue;
      }
      for (const TrashedObject& object : own.trash->objects) noted_.insert(object.name);
      // When it was put, by the store's clock: that of who put it may have been wrong.
      const int64_t age = context_.now - own.object.modified;
      if (age < context_.options.grace_seconds) {
        for (const TrashedObject& object : own.trash->objects) {
          wait_for(object,
                   {"grace period", "", own.object.modified + context_.options.grace_seconds});
        }
        continue;
      }
      DW_RETURN_IF_ERROR(sweep(own.object.name, *own.trash, age));
    }
    return {};
  }

 private:
  void wait_for(const TrashedObject& object, const KeptBecause& because) {
    auto at = std::find_if(
        report_.waiting.begin(), report_.waiting.end(), [&](const KeptObjects& waiting) {
          return waiting.because.why == because.why && waiting.because.replica == because.replica;
        });
    if (at == report_.waiting.end()) at = report_.waiting.insert(at, KeptObjects{because});
    at->because.until = std::max(at->because.until, because.until);
    ++at->num_objects;
    at->bytes += object.size_bytes;
    ++report_.num_waiting;
  }

  // Whether another gc may still be about to remove versions that it has announced: a pin must be
  // able to see that.
  bool is_announcement(const Trash& trash, int64_t age) const {
    if (age > kBelievedSeconds) return false;
    return std::any_of(trash.versions.begin(), trash.versions.end(),
                       [&](const VersionRange& range) {
                         const auto at = context_.versions.lower_bound(range.first);
                         return at != context_.versions.end() && *at <= range.last;
                       });
  }

  Status sweep(const std::string& name, const Trash& trash, int64_t age) {
    std::vector<const TrashedObject*> due;
    size_t waiting = 0;
    for (const TrashedObject& object : trash.objects) {
      const uint64_t version = attempt_folder(object.name)->version;
      DW_ASSIGN_OR_RETURN(const bool needed, named_.is_needed(object, version));
      if (needed) continue;  // its record is still there, or came: this note is void
      DW_ASSIGN_OR_RETURN(std::optional<KeptBecause> because, at_work_on(object, version));
      if (!because) because = context_.claims.read_by(version);
      if (because) {
        wait_for(object, *because);
        ++waiting;
      } else {
        due.push_back(&object);
      }
    }
    report_.num_deleted += due.size();
    for (const TrashedObject* object : due) report_.deleted_bytes += object->size_bytes;
    if (context_.options.dry_run) return {};
    std::vector<std::string> names;
    for (const TrashedObject* object : due) names.push_back(object->name);
    DW_RETURN_IF_ERROR(remove_all(context_.store, names));
    DW_SYNC_POINT("gc: objects deleted");
    // Objects that are still being read stay noted.
    return waiting == 0 && !is_announcement(trash, age) ? context_.store.remove(name) : Status();
  }

  // Whether somebody may be at work on it: a note that is genuine is younger than what it notes.
  Result<std::optional<KeptBecause>> at_work_on(const TrashedObject& object, uint64_t version) {
    std::optional<KeptBecause> recent = KeptBecause{"recent", "", 0};
    if (version > report_.head) return recent;
    const Result<ObjectInfo> info = context_.store.stat(object.name);
    if (!info.ok() && info.status().code() != Code::kNotFound) return info.status();
    if (!info.ok() || context_.now - info->modified >= context_.options.grace_seconds) {
      return std::optional<KeptBecause>();
    }
    recent->until = info->modified + context_.options.grace_seconds;
    return recent;
  }

  const SweepContext& context_;
  NamedObjects& named_;
  std::set<std::string>& noted_;
  GcReport& report_;
};

}  // namespace

Status sweep_trash(const SweepContext& context, NamedObjects* named, std::set<std::string>* noted,
                   GcReport* report) {
  return Sweep(context, named, noted, report).run();
}

Status remove_all(Store& store, const std::vector<std::string>& names) {
  std::vector<Status> outcomes(names.size());
  request_in_parallel(names.size(), [&](size_t i) {
    outcomes[i] = store.remove(names[i]);
    DW_SYNC_POINT("gc: object removed");
  });
  for (Status& outcome : outcomes) DW_RETURN_IF_ERROR(std::move(outcome));
  return {};
}

namespace {

using Folders = std::map<std::string, std::vector<ObjectInfo>>;

Status find_in_folders(const OrphanSearch& search, uint64_t version, const Folders& folders,
                       NamedObjects* named, const TakeOrphan& take) {
  for (const auto& [folder, objects] : folders) {
    const bool old = std::all_of(objects.begin(), objects.end(), [&](const ObjectInfo& object) {
      return object.modified < search.before;
    });
    const bool all_noted = std::all_of(objects.begin(), objects.end(), [&](const auto& object) {
      return search.noted.contains(object.name);
    });
    if (!old || all_noted) continue;
    DW_ASSIGN_OR_RETURN(const auto* parts, named->parts_at(version));
    if (parts == nullptr) continue;
    for (const ObjectInfo& object : objects) {
      if (parts->contains(object.name) || search.noted.contains(object.name)) continue;
      DW_RETURN_IF_ERROR(take(object));
    }
  }
  return {};
}

}  // namespace

Status find_orphans(const OrphanSearch& search, const std::map<uint64_t, size_t>& records,
                    NamedObjects* named, const TakeOrphan& take) {
  std::map<uint64_t, Folders> found;
  for (const std::string_view prefix : {kPartPrefix, kFullPrefix, kPendingPrefix}) {
    DW_RETURN_IF_ERROR(list_all(search.store, prefix, "", [&](const ObjectInfo& object) {
      const auto attempt = attempt_folder(object.name);
      if (attempt && attempt->version <= search.head) {
        found[attempt->version][std::string(attempt->folder)].push_back(object);
      }
      return true;
    }));
  }
  for (const auto& [version, folders] : found) {
    // A record names one folder: where there are no more folders than records, all are named.
    const auto there = records.find(version);
    if (there != records.end() && folders.size() <= there->second) continue;
    DW_RETURN_IF_ERROR(find_in_folders(search, version, folders, named, take));
  }
  return {};
}

Status find_side_orphans(const OrphanSearch& search, NamedObjects* named, const TakeOrphan& take) {
  std::vector<ObjectInfo> found;
  DW_RETURN_IF_ERROR(list_all(search.store, kFilePrefix, "", [&](const ObjectInfo& object) {
    const auto attempt = attempt_folder(object.name);
    if (attempt && attempt->version <= search.head && object.modified < search.before &&
        !search.noted.contains(object.name)) {
      found.push_back(object);
    }
    return true;
  }));
  for (const ObjectInfo& object : found) {
    const uint64_t version = attempt_folder(object.name)->version;
    DW_ASSIGN_OR_RETURN(const bool is_named, named->is_named_side(object.name, version));
    if (!is_named) DW_RETURN_IF_ERROR(take(object));
  }
  return {};
}

}  // namespace deltawire
