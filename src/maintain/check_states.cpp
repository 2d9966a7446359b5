
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/thread_pool.h"
#include "chain/fsck.h"
#include "chain/hop_records.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "chain/trash.h"
#include "deltawire/maintain.h"
#include "maintain/walk_parts.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Here a delta that does not fit its base counts as damage, too.
bool is_found(const Status& status) {
  return is_damage(status) || status.code() == Code::kInvalidArgument ||
         status.code() == Code::kBaseMismatch;
}

std::string version_text(uint64_t version) { return "version " + std::to_string(version); }

class Walk {
 public:
  Walk(const Chain& chain, const WorkOptions& options, Allocate allocate)
      : chain_(chain),
        store_(chain.store()),
        options_(options),
        allocate_(std::move(allocate)),
        pool_(options.threads) {}

  Result<StateCheckReport> run() {
    DW_RETURN_IF_ERROR(list());
    for (const uint64_t version : versions_) DW_RETURN_IF_ERROR(visit(version));
    DW_RETURN_IF_ERROR(forget_going());
    say_unreached();
    return std::move(report_);
  }

 private:
  Status list() {
    DW_RETURN_IF_ERROR(list_all(store_, "", "", [&](const ObjectInfo& object) {
      if (const auto version = version_of_manifest(object.name)) versions_.insert(*version);
      if (const auto hop = parse_hop_name(object.name)) {
        (hop->base ? merged_ : anchors_).emplace(hop->base.value_or(hop->version), *hop);
      }
      return true;
    }));
    return {};
  }

  // Damage is noted; other failures of the store end the walk.
  Status note(const std::string& place, const WalkStep& step) {
    if (!step) return {};
    if (!is_found(step->status)) return step->status;
    if (!step->said) {
      report_.problems.push_back(Status(step->status).at(store_.url() + ": " + place).to_string());
    }
    return {};
  }

  Status visit(uint64_t version) {
    const Result<VersionRecord> record = chain_.version(version);
    const Result<Schema> schema =
        record.ok() ? chain_.schema(record->manifest) : Result<Schema>(record.status());
    if (!schema.ok()) {
      DW_RETURN_IF_ERROR(note("", FailedStep{schema.status(), true}));
      at_.reset();
      return {};
    }
    DW_RETURN_IF_ERROR(step_to(record->manifest, *schema));
    const auto [first, last] = anchors_.equal_range(version);
    for (auto it = first; it != last; ++it) {
      DW_RETURN_IF_ERROR(check_anchor(it->second, *record, *schema));
    }
    if (at_ != version) DW_RETURN_IF_ERROR(go_around(record->manifest, *schema));
    if (at_ != version) {
      unreached_.push_back(version);
      return {};
    }
    ++report_.num_versions;
    const auto [from, to] = merged_.equal_range(version);
    for (auto it = from; it != to; ++it) DW_RETURN_IF_ERROR(check_merged(it->second));
    return {};
  }

  // Advances the walk to `manifest` if the version's own parts lead there.
  Status step_to(const Manifest& manifest, const Schema& schema) {
    const uint64_t version = manifest.version;
    const bool whole = manifest.kind == VersionKind::kFull;
    if (!whole && (!manifest.base || at_ != *manifest.base)) {
      at_.reset();
      return {};
    }
    at_.reset();
    TensorNames touched;
    WalkStep step;
    if (whole) {
      state_.clear();
      step = parts_.add_files(manifest.parts, &state_);
    } else {
      const auto apply = [&](const PayloadView& view) {
        return apply_entry(view.entry, view.payload, allocate_, &state_, &pool_);
      };
      step = parts_.apply_parts(manifest.parts, &touched, apply,
                                [&](const std::string& tensor) { state_.erase(tensor); });
    }
    if (!step) {
      Status status = check_state(manifest, schema, state_, whole ? nullptr : &touched, &pool_);
      if (!status.ok()) step = FailedStep{std::move(status)};
    }
    if (!step && !whole) step = untouched_are_same(manifest, schema, touched);
    if (!step) {
      at_ = version;
      keep_digests(manifest, schema);
    }
    return note(version_text(version), step);
  }

  // Used where versions in between were removed, or where a merged delta avoids damage.
  Status go_around(const Manifest& manifest, const Schema& schema) {
    const uint64_t version = manifest.version;
    const bool gap = !manifest.base || !versions_.contains(*manifest.base);
    const bool merged = std::any_of(merged_.begin(), merged_.end(),
                                    [&](const auto& hop) { return hop.second.version == version; });
    if (!gap && !merged) return {};
    state_.clear();
    Result<MemoryState> state = fetch_state(chain_, version, &pool_, options_.progress, allocate_);
    if (!state.ok()) return note("", FailedStep{state.status(), true});
    state_ = std::move(*state);
    at_ = version;
    keep_digests(manifest, schema);
    return {};
  }

  // Checks an anchor file by file in separate memory. If the walk has no current state, the anchor
  // becomes the state.
  Status check_anchor(const HopName& name, const VersionRecord& record, const Schema& schema) {
    const Result<HopRecord> hop = read_hop(chain_, name);
    if (!hop.ok()) return note("", FailedStep{hop.status(), true});
    const bool lost = at_ != name.version;
    MemoryState found;
    TensorNames seen;
    WalkStep step;
    for (const PartRef& part : hop->parts) {
      if (step) break;
      MemoryState own;
      step = parts_.add_files({part}, &own);
      if (!step) step = check_some(record.manifest, schema, own);
      for (auto& [tensor, held] : own) seen.insert(tensor);
      if (lost) found.merge(own);
    }
    if (!step && seen.size() != schema.tensors.size()) {
      step = FailedStep{corruption("expected " + std::to_string(schema.tensors.size()) +
                                   " tensors, got " + std::to_string(seen.size()))};
    }
    if (!step) ++report_.num_hops;
    if (!step && lost) {
      state_ = std::move(found);
      at_ = name.version;
      keep_digests(record.manifest, schema);
    }
    return note("anchor of " + version_text(name.version), step);
  }

  // Checks the tensors of one file of a version.
  WalkStep check_some(const Manifest& manifest, const Schema& schema, const MemoryState& some) {
    Schema part;
    Manifest described;
    described.boxes = manifest.boxes;
    for (size_t i = 0; i < schema.tensors.size(); ++i) {
      if (!some.contains(schema.tensors[i].name)) continue;
      part.tensors.push_back(schema.tensors[i]);
      described.digests.push_back(manifest.digests[i]);
    }
    Status status = check_state(described, part, some, nullptr, &pool_);
    return status.ok() ? WalkStep() : FailedStep{std::move(status)};
  }

  // Starts from the current state, which is not changed.
  Status check_merged(const HopName& name) {
    const Result<HopRecord> hop = read_hop(chain_, name);
    const Result<VersionRecord> target = chain_.version(name.version);
    const Result<Schema> schema =
        target.ok() ? chain_.schema(target->manifest) : Result<Schema>(target.status());
    for (const Status& status : {hop.status(), schema.status()}) {
      if (!status.ok()) return note("", FailedStep{status, true});
    }
    const Manifest& manifest = target->manifest;
    MemoryState scratch;
    TensorNames touched;
    // A tensor in one piece is checked and released at once. Of a tensor in boxes the last entry is
    // not known.
    const auto apply = [&](const PayloadView& view) -> Status {
      const DeltaEntry& entry = view.entry;
      const auto held = state_.find(entry.tensor);
      if (entry.old_digest && !scratch.contains(entry.tensor) && held != state_.end()) {
        MemoryTensor copy = held->second;
        DW_ASSIGN_OR_RETURN(const auto owner, allocate_(copy.bytes.size()));
        std::copy(copy.bytes.begin(), copy.bytes.end(), owner.get());
        copy.bytes = {owner.get(), copy.bytes.size()};
        copy.owner = owner;
        scratch[entry.tensor] = std::move(copy);
      }
      DW_RETURN_IF_ERROR(apply_entry(entry, view.payload, allocate_, &scratch, &pool_));
      if (!entry.box.whole()) return {};
      MemoryState one;
      one[entry.tensor] = std::move(scratch[entry.tensor]);
      scratch.erase(entry.tensor);
      const WalkStep checked = check_some(manifest, *schema, one);
      return checked ? checked->status : Status();
    };
    WalkStep step = parts_.apply_parts(hop->parts, &touched, apply, [](const std::string&) {});
    if (!step) step = check_some(manifest, *schema, scratch);
    if (!step) step = untouched_are_same(manifest, *schema, touched);
    if (!step) ++report_.num_hops;
    return note(
        "merged delta from " + version_text(*name.base) + " to " + version_text(name.version),
        step);
  }

  // Tensors that a step does not touch must keep their digests.
  WalkStep untouched_are_same(const Manifest& manifest, const Schema& schema,
                              const TensorNames& touched) {
    for (size_t i = 0; i < schema.tensors.size(); ++i) {
      const std::string& name = schema.tensors[i].name;
      if (touched.contains(name)) continue;
      const auto before = digests_.find(name);
      if (before != digests_.end() && before->second == manifest.digests[i]) continue;
      // The same bytes may have another digest if they are cut into other boxes.
      const auto held = state_.find(name);
      if (held != state_.end()) {
        MemoryState one;
        one[name] = held->second;
        if (WalkStep step = check_some(manifest, schema, one)) return step;
        continue;
      }
      return FailedStep{corruption("tensor " + quote(name) + ": no part brings its change to " +
                                   manifest.digests[i].hex())};
    }
    return {};
  }

  void keep_digests(const Manifest& manifest, const Schema& schema) {
    digests_.clear();
    for (size_t i = 0; i < schema.tensors.size(); ++i) {
      digests_[schema.tensors[i].name] = manifest.digests[i];
    }
  }

  // Versions that gc will remove need not be complete.
  Status forget_going() {
    DW_ASSIGN_OR_RETURN(const auto notes, list_trash(store_));
    for (const ListedTrash& listed : notes) {
      if (!listed.trash.ok()) continue;
      for (const VersionRange& range : listed.trash->versions) {
        std::erase_if(unreached_, [&](uint64_t version) { return range.contains(version); });
      }
    }
    return {};
  }

  void say_unreached() {
    for (size_t i = 0; i < unreached_.size();) {
      size_t end = i + 1;
      while (end < unreached_.size() && unreached_[end] == unreached_[end - 1] + 1) ++end;
      const bool one = end == i + 1;
      report_.problems.push_back(
          corruption(store_.url() + ": " +
                     (one ? version_text(unreached_[i]) + " could not be decoded"
                          : "versions " + std::to_string(unreached_[i]) + " to " +
                                std::to_string(unreached_[end - 1]) + " could not be decoded"))
              .to_string());
      i = end;
    }
  }

  const Chain& chain_;
  Store& store_;
  const WorkOptions& options_;
  const Allocate allocate_;
  ThreadPool pool_;
  WalkParts parts_{store_, allocate_, options_.progress};

  std::set<uint64_t> versions_;
  std::multimap<uint64_t, HopName> anchors_, merged_;  // by version; by base
  std::optional<uint64_t> at_;                         // the version that `state_` is
  MemoryState state_;
  std::map<std::string, Digest, std::less<>> digests_;  // of the version that `state_` is
  std::vector<uint64_t> unreached_;
  StateCheckReport report_;
};

// Allocates memory in files, whose pages the kernel can evict.
Allocate allocate_in(const std::filesystem::path& folder) {
  return [folder](uint64_t size) -> Result<std::shared_ptr<uint8_t[]>> {
    DW_ASSIGN_OR_RETURN(MutableFile made, MutableFile::create(folder / "state", size));
    const auto file = std::make_shared<MutableFile>(std::move(made));
    return std::shared_ptr<uint8_t[]>(file, file->bytes().data());
  };
}

}  // namespace

Result<StateCheckReport> check_states(const Chain& chain, const WorkOptions& options) {
  if (options.folder.empty()) return Walk(chain, options, allocate_bytes).run();
  DW_ASSIGN_OR_RETURN(const WorkFolder work, WorkFolder::make(options.folder));
  return Walk(chain, options, allocate_in(work.path())).run();
}

// The two halves of fsck: records and objects, then decoding.
Result<FsckReport> fsck_chain(const Chain& chain, const FsckOptions& options) {
  // Without trusted keys, signatures must still be valid, whoever made them.
  const Chain strict = keys_of(chain).trust
                           ? chain
                           : with_other_keys(chain, {.sign = {}, .trust = check_signatures_only()});
  const WorkOptions& work = options.work;
  DW_ASSIGN_OR_RETURN(FsckReport report,
                      check_chain(strict, {!options.quick, work.threads, work.progress}));
  if (options.quick) return report;
  DW_ASSIGN_OR_RETURN(const StateCheckReport decoded, check_states(strict, work));
  report.num_decoded = decoded.num_versions;
  report.problems.insert(report.problems.end(), decoded.problems.begin(), decoded.problems.end());
  return report;
}

}  // namespace deltawire
