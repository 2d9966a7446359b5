#include "live/spool.h"

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/folder.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "chain/names.h"
#include "format/manifest.h"
#include "format/part_check.h"
#include "replica/local_state.h"
#include "replica/plan_pull.h"
#include "store/bodies.h"
#include "store/directory_store.h"
#include "transfer/fetch.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

fs::path ranges_of(fs::path part) { return part += kRangesSuffix; }

fs::path covered_path(const fs::path& root, uint64_t version) {
  return root / "boxes" / std::to_string(version);
}

fs::path spool_of(const fs::path& local) { return LocalLayout{local}.spool(); }

// Writes a file that appears complete or not at all. Does not sync it.
Status write_record(const fs::path& path, std::string_view text) {
  const fs::path temporary = temporary_path(path);
  DW_RETURN_IF_ERROR(make_folder(path.parent_path()));
  errno = 0;
  std::ofstream file(temporary, std::ios::binary);
  file.write(text.data(), std::streamsize(text.size()));
  file.close();
  Status status = file ? rename_path(temporary, path) : errno_status(path, "cannot write");
  std::error_code error;
  if (!status.ok()) fs::remove(temporary, error);
  return status;
}

bool is_delta_of_one(const Manifest& manifest) {
  return manifest.kind == VersionKind::kDelta && manifest.base &&
         *manifest.base + 1 == manifest.version;
}

}  // namespace

Spool::Spool(Chain chain, std::shared_ptr<OverlayStore> store, fs::path root, SpoolOptions options)
    : chain_(std::move(chain)),
      store_(std::move(store)),
      root_(std::move(root)),
      options_(std::move(options)),
      ranged_(std::make_unique<RangedFetch>(*store_, options_.gap)) {}

Status Spool::want(const std::optional<WorkerLayouts>& layouts) {
  std::set<std::string> workers;
  std::optional<WantedBoxes> wanted;
  if (layouts) {
    wanted.emplace();
    for (const auto& [digest, text] : *layouts) workers.insert(digest);
    if (wanted_ && workers == workers_) return {};
    for (const auto& [digest, text] : *layouts) {
      DW_RETURN_IF_ERROR(add_boxes(text, &*wanted));
    }
  }
  wanted_ = std::move(wanted);
  workers_ = std::move(workers);
  return {};
}

Result<Spool> Spool::open(std::shared_ptr<Store> store, fs::path local, SpoolOptions options) {
  auto overlay = std::make_shared<OverlayStore>(std::move(store));
  DW_ASSIGN_OR_RETURN(Chain chain, open_chain(overlay, options.accept));
  fs::path root = spool_of(local);
  DW_RETURN_IF_ERROR(remove_tree(root));
  DW_RETURN_IF_ERROR(make_folder(root / kManifestPrefix));
  DW_ASSIGN_OR_RETURN(const std::string run, overlay->get(kRunName, kMaxHintBytes));
  DW_RETURN_IF_ERROR(write_record(root / kRunName, run));
  return Spool(std::move(chain), std::move(overlay), std::move(root), std::move(options));
}

Result<std::optional<Identity>> Spool::fetch_new(std::optional<uint64_t> held,
                                                 std::optional<uint64_t> needed) {
  DW_RETURN_IF_ERROR(complete());
  DW_ASSIGN_OR_RETURN(const Chain::Newest newest, find_newest(chain_, version_of(newest_)));
  if (newest_ && newest.version.value_or(0) < newest_->version) {
    const std::string now =
        newest.version ? "its newest version is " + std::to_string(*newest.version) : "is empty";
    return not_found(store_->url() + ": " + now + ", but it held " + to_string(*newest_) +
                     " before");
  }
  if (!newest.version) return newest_;
  const uint64_t head = *newest.version;
  // Of the versions that workers and LOCAL are at, only the record is needed, for proofs. A
  // checkpoint that is too far behind is pulled to the newest version instead.
  const auto near = [&](std::optional<uint64_t> version) {
    return version && *version + options_.keep_at_most >= head ? *version : head;
  };
  const uint64_t oldest = std::min({head, near(held), near(needed)});
  uint64_t next = newest_ ? newest_->version + 1 : oldest;
  if (held && *held < next && !versions_.contains(*held)) (void)add(*held, false);
  if (head - std::min(next, head) > options_.keep_at_most) next = head;
  for (uint64_t version = next; version <= head; ++version) {
    DW_RETURN_IF_ERROR(add(version, version > oldest));
  }
  prune(held, needed);
  return newest_;
}

// Fetches the parts before the record, so that a version appears complete or not at all.
Status Spool::add(uint64_t version, bool with_parts) {
  DW_ASSIGN_OR_RETURN(const std::string text,
                      store_->get(manifest_name(version), kMaxManifestBytes));
  DW_ASSIGN_OR_RETURN(const VersionRecord record, read_version(chain_, version, text));
  const Manifest& manifest = record.manifest;
  if (manifest.schema.name != schema_name(manifest.schema.sha256.hex())) {
    return corruption(store_->url() + "/" + manifest_name(version) + ": names no schema");
  }
  Version own{manifest, {}, {}, {}, {}};
  DW_RETURN_IF_ERROR(fetch_objects({manifest.schema}));
  if (with_parts && is_delta_of_one(manifest)) {
    own.parts = manifest.parts;
    DW_ASSIGN_OR_RETURN(own.schema, chain_.schema(manifest));
    DW_RETURN_IF_ERROR(fetch_parts(version, &own));
  }
  versions_[version] = std::move(own);
  DW_SYNC_POINT("spool: parts fetched");
  DW_RETURN_IF_ERROR(write_record(root_ / manifest_name(version), text));
  DW_SYNC_POINT("spool: version there");
  if (!newest_ || version > newest_->version) newest_ = record.identity();
  return {};
}

Status Spool::fetch_parts(uint64_t version, Version* own) {
  std::vector<PartRef> whole;
  for (const PartRef& part : own->parts) {
    DW_RETURN_IF_ERROR(make_folder((root_ / part.name).parent_path()));
    if (!wanted_ || link(part)) {
      whole.push_back(part);
    } else {
      own->have[part.name];
    }
  }
  DW_RETURN_IF_ERROR(fetch_objects(whole));
  return own->have.empty() ? Status() : fetch_ranges(version, own);
}

// Fetches what is missing of the parts. Afterwards the version is complete for the current workers.
Status Spool::fetch_ranges(uint64_t version, Version* own) {
  const auto before = versions_.find(version - 1);
  const bool known = before != versions_.end() && !before->second.schema.tensors.empty();
  const DescribedState target{&own->schema, &own->manifest};
  const DescribedState base =
      known ? DescribedState{&before->second.schema, &before->second.manifest} : DescribedState{};
  for (const PartRef& part : own->parts) {
    const auto have = own->have.find(part.name);
    if (have == own->have.end()) continue;
    const auto check = [&](const DeltaPart& parsed) {
      return DeltaPartsCheck(base, target).add(parsed);
    };
    DW_RETURN_IF_ERROR(
        ranged_->fetch(part, *wanted_, check, ranges_of(root_ / part.name), &have->second));
    if (options_.progress && !options_.progress(0, 0)) return cancelled("stopped on request");
  }
  own->covered.insert(workers_.begin(), workers_.end());
  std::string lines;
  for (const std::string& worker : own->covered) lines += worker + "\n";
  return write_record(covered_path(root_, version), lines);
}

// Fetches missing ranges of older versions for new workers, oldest first. If the store has dropped
// a version, it stays available to the other workers.
Status Spool::complete() {
  if (!wanted_) return {};
  for (auto& [version, own] : versions_) {
    if (own.have.empty() || std::ranges::includes(own.covered, workers_)) continue;
    const Status status = fetch_ranges(version, &own);
    if (!status.ok() && !is_damaged_or_gone(status)) return status;
  }
  return {};
}

// Objects of a folder store are never modified, and their contents are proven when they are
// applied. Not used if signatures matter, because a linked file could still be changed.
bool Spool::link(const PartRef& object) {
  const fs::path folder = store_->local_folder();
  if (folder.empty() || !options_.accept.trust.empty()) return false;
  std::error_code error;
  fs::create_hard_link(folder / object.name, root_ / object.name, error);
  return !error || error == std::errc::file_exists;
}

Status Spool::fetch_objects(const std::vector<PartRef>& objects) {
  std::vector<FetchItem> items;
  for (const PartRef& object : objects) {
    const fs::path to = root_ / object.name;
    std::error_code error;
    if (fs::exists(to, error)) continue;  // versions may share a schema
    DW_RETURN_IF_ERROR(make_folder(to.parent_path()));
    if (!link(object)) items.push_back({object, to});
  }
  {
    Fetch fetch(*store_, std::move(items));
    const Status status = fetch.finish(options_.progress);
    if (!status.ok()) {
      std::error_code error;
      for (const FetchItem& item : fetch.items()) fs::remove(item.to, error);
      return status;
    }
  }
  for (const PartRef& object : objects) {
    DW_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(root_ / object.name));
    store_->offer(object.name, file_body(std::move(file)));
  }
  return {};
}

// Best effort: the next process removes what is left.
void Spool::prune(std::optional<uint64_t> held, std::optional<uint64_t> needed) {
  if (!newest_) return;
  const uint64_t head = newest_->version;
  const uint64_t oldest = std::min(held.value_or(head), needed.value_or(head));
  std::error_code error;
  for (auto it = versions_.begin(); it != versions_.end();) {
    const uint64_t behind = head - it->first;
    const bool is_wanted = behind < options_.keep || it->first >= oldest || it->first == held;
    if (is_wanted && (behind < options_.keep_at_most || it->first == held)) {
      ++it;
      continue;
    }
    fs::remove(root_ / manifest_name(it->first), error);
    fs::remove(covered_path(root_, it->first), error);
    for (const PartRef& part : it->second.parts) {
      store_->withdraw(part.name);
      fs::remove(root_ / part.name, error);
      fs::remove(ranges_of(root_ / part.name), error);
      fs::remove((root_ / part.name).parent_path(), error);  // if it is empty
    }
    it = versions_.erase(it);
  }
}

namespace {

Result<Chain> open_spool(const fs::path& local) {
  return open_with_keys(std::make_shared<DirectoryStore>(spool_of(local)), {});
}

bool is_there_for(const fs::path& local, uint64_t version, std::string_view layout) {
  std::ifstream covered(covered_path(spool_of(local), version));
  if (!covered) return true;  // whole parts
  std::string line;
  while (std::getline(covered, line)) {
    if (line == layout) return true;
  }
  return false;
}

// NotFound if the number belongs to another version.
Result<VersionRecord> spooled_version(const Chain& chain, const Identity& wanted) {
  DW_ASSIGN_OR_RETURN(VersionRecord record, chain.version(wanted.version));
  if (record.identity() != wanted) {
    return not_found(chain.store().url() + ": " + to_string(wanted) + " is not in it, but " +
                     to_string(record.identity()));
  }
  return record;
}

}  // namespace

std::optional<Identity> newest_spooled(const fs::path& local, std::string_view layout) {
  const Result<Chain> chain = open_spool(local);
  if (!chain.ok()) return {};
  const Result<std::vector<uint64_t>> versions = chain->versions();
  if (!versions.ok()) return {};
  for (auto version = versions->rbegin(); version != versions->rend(); ++version) {
    if (!is_there_for(local, *version, layout)) continue;
    const Result<VersionRecord> record = chain->version(*version);
    if (!record.ok()) return {};
    return record->identity();
  }
  return {};
}

Result<std::vector<std::vector<PartFile>>> spooled_deltas(const fs::path& local,
                                                          const Identity& from, const Identity& to,
                                                          std::string_view layout) {
  DW_ASSIGN_OR_RETURN(const Chain chain, open_spool(local));
  std::vector<std::vector<PartFile>> deltas;
  for (Identity at = to; at != from;) {
    DW_ASSIGN_OR_RETURN(const VersionRecord record, spooled_version(chain, at));
    const Manifest& manifest = record.manifest;
    if (at.version <= from.version || at.run != from.run || !is_delta_of_one(manifest) ||
        !manifest.parent) {
      return not_found(local.string() + ": no deltas lead from " + to_string(from) + " to " +
                       to_string(to));
    }
    if (!is_there_for(local, at.version, layout)) {
      return not_found(local.string() + ": " + to_string(at) +
                       " was fetched for workers that hold other boxes");
    }
    std::vector<PartFile>& parts = deltas.emplace_back();
    for (const PartRef& part : manifest.parts) {
      fs::path path = spool_of(local) / part.name;
      std::error_code error;
      const bool is_whole = fs::exists(path, error);
      if (!is_whole) path = ranges_of(std::move(path));
      parts.push_back({path, part.name, is_whole ? PartContents::kAll : PartContents::kSome});
    }
    at = {at.run, at.version - 1, manifest.parent->hex()};
  }
  std::reverse(deltas.begin(), deltas.end());
  return deltas;
}

Result<std::map<std::string, Digest>> spooled_digests(const fs::path& local,
                                                      const Identity& version) {
  return guard_memory("reading a manifest", [&]() -> Result<std::map<std::string, Digest>> {
    DW_ASSIGN_OR_RETURN(const Chain chain, open_spool(local));
    DW_ASSIGN_OR_RETURN(const VersionRecord record, spooled_version(chain, version));
    const Manifest& manifest = record.manifest;
    DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(manifest));
    DW_ASSIGN_OR_RETURN(const std::vector<TensorState> states, states_of(schema, manifest));
    if (state_digest(states) != manifest.state) {
      return corruption(chain.store().url() + ": the digests of " + to_string(version) +
                        " do not match its state digest");
    }
    std::map<std::string, Digest> digests;
    for (size_t i = 0; i < schema.tensors.size(); ++i) {
      const std::string& name = schema.tensors[i].name;
      if (boxes_hashed(manifest, name) == nullptr) digests.emplace(name, manifest.digests[i]);
    }
    return digests;
  });
}

}  // namespace deltawire
