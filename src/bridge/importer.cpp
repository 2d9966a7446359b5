// Imports another project's versions into a chain. The chain decides: its head says which version
// comes next, the publisher's snapshot holds the model at the head, and both survive any crash.
#include <algorithm>

#include "base/sync_point.h"
#include "base/waves.h"
#include "bridge/bridge.h"
#include "bridge/foreign.h"
#include "bridge/import_start.h"
#include "bridge/patch.h"
#include "format/tensor_digest.h"
#include "publish/snapshot_file.h"
#include "tensor/form.h"
#include "transfer/upload_queue.h"

namespace deltawire {

struct Importer::Impl {
  Impl(const Dialect& dialect_, std::shared_ptr<Store> source_, std::shared_ptr<Store> store_,
       ImportOptions options_)
      : dialect(dialect_),
        source(std::move(source_)),
        store(std::move(store_)),
        options(std::move(options_)),
        pool(options.publish.limits.threads) {
    Origin& origin = options.publish.origin;
    origin.place = std::string(dialect.name()) + " " + place_of(*source);
    origin.commit_unchanged = true;
    origin.made_from_snapshot = true;
    options.publish.schema_change = true;  // the source decides
  }

  const Dialect& dialect;
  const std::shared_ptr<Store> source, store;
  ImportOptions options;
  ThreadPool pool;
  std::optional<Publisher> publisher;
  std::optional<Scratch> scratch;
  std::optional<uint64_t> head;
  std::string run;
  bool is_same_source = false;  // checked once

  Result<std::optional<ImportedVersion>> next();
  bool done() const { return head && options.range.to && *head >= *options.range.to; }

 private:
  Status open_publisher();
  Result<bool> open_chain();
  Status check_origin(const Manifest& newest) const;
  Status check_same_source(const CommittedState& state, const std::vector<uint64_t>& versions);
  Result<std::optional<ImportedVersion>> begin();
  Result<std::optional<ImportedVersion>> import_unchanged(const CommittedState& state);
  Result<ImportedVersion> import_one(const ForeignVersion& version);
  Result<ImportedVersion> import_once(const ForeignVersion& version);
  bool is_image_damaged(const CommittedState& state, const ForeignInfo& info);
  Status rebuild_image();
  Status remember(const ForeignInfo& info);
  Status explain(Status status, uint64_t number) const;
};

namespace {

std::string of_source(const Store& source, uint64_t version) {
  return source.url() + ": version " + std::to_string(version);
}

}  // namespace

Status Importer::Impl::open_publisher() {
  DW_ASSIGN_OR_RETURN(Publisher opened, Publisher::open(store, options.publish));
  publisher.emplace(std::move(opened));
  return {};
}

// False if there are no versions yet. Finds out whose versions they are before it fetches the
// model.
Result<bool> Importer::Impl::open_chain() {
  const Result<Chain> chain = Chain::open(store, options.publish.keys);
  if (!chain.ok() && chain.status().code() == Code::kNotFound) return false;
  DW_RETURN_IF_ERROR(Status(chain.status()));
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> newest, chain->head());
  if (!newest) return false;
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain->version(*newest));
  DW_RETURN_IF_ERROR(check_origin(record.manifest));
  DW_RETURN_IF_ERROR(open_publisher());
  return true;
}

Status Importer::Impl::check_origin(const Manifest& newest) const {
  const std::string &expected = options.publish.origin.place, &got = newest.origin;
  if (got.empty()) {
    return base_mismatch(store->url() + ": version " + std::to_string(newest.version) +
                         " was published, not imported; import into an empty store");
  }
  const std::string kind = std::string(dialect.name()) + " ";
  if (got == expected || (options.source_moved && got.starts_with(kind))) return {};
  return base_mismatch(store->url() + ": holds an import of " + got + ", not of " + expected +
                       "; import into another store" +
                       (got.starts_with(kind)
                            ? "; or, if it is the same run at another place, import it as a source "
                              "that has moved"
                            : ""));
}

// A run that was restarted in the same place.
Status Importer::Impl::check_same_source(const CommittedState& state,
                                         const std::vector<uint64_t>& versions) {
  const uint64_t at = state.record.manifest.version;
  const auto memory = recall_import(state.folder);
  if (!memory || memory->version != at || !std::ranges::binary_search(versions, at)) return {};
  DW_ASSIGN_OR_RETURN(const auto version, dialect.open(*source, at));
  if (fingerprint_of(version->info()) == memory->fingerprint) return {};
  return base_mismatch(of_source(*source, at) +
                       " is not the one that was imported: does another run use the same folder "
                       "now? Import it into another store");
}

Result<std::optional<ImportedVersion>> Importer::Impl::next() {
  if (!publisher) {
    DW_ASSIGN_OR_RETURN(const bool there, open_chain());
    if (!there) return begin();
  }
  DW_ASSIGN_OR_RETURN(const std::optional<CommittedState> state, committed_state(&*publisher));
  if (!state) {  // the first one could not be read
    publisher.reset();
    return begin();
  }
  run = publisher->run();
  head = state->record.manifest.version;
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> versions, dialect.versions(*source));
  if (!is_same_source) {
    DW_RETURN_IF_ERROR(check_same_source(*state, versions));
    is_same_source = true;
  }
  if (const auto late = find_late(state->folder, versions)) {
    return base_mismatch(
        of_source(*source, *late) +
        " appeared after it had been imported as unchanged: import into another store");
  }
  if (done()) return std::optional<ImportedVersion>();
  const uint64_t wanted = *head + 1;
  if (options.range.from && *options.range.from > wanted) {
    return not_found(store->url() + ": is at version " + std::to_string(*head) + "; version " +
                     std::to_string(*options.range.from) + " comes after version " +
                     std::to_string(*options.range.from - 1) + ": import from version " +
                     std::to_string(wanted) + " on");
  }
  if (!versions.empty() && versions.back() < *head) {
    return base_mismatch(source->url() + ": ends with version " + std::to_string(versions.back()) +
                         ", the chain holds version " + std::to_string(*head) +
                         " of it: does another run use the same folder now? Import it into another "
                         "store");
  }
  if (versions.empty() || versions.back() == *head) return std::optional<ImportedVersion>();
  if (!std::ranges::binary_search(versions, wanted)) {
    if (options.missing_is_unchanged) return import_unchanged(*state);
    return not_found(of_source(*source, wanted) + " is missing or not complete, though version " +
                     std::to_string(versions.back()) + " is there");
  }
  DW_ASSIGN_OR_RETURN(const auto version, dialect.open(*source, wanted));
  DW_ASSIGN_OR_RETURN(ImportedVersion imported, import_one(*version));
  return std::optional(std::move(imported));
}

// A version for which the trainer wrote no file.
Result<std::optional<ImportedVersion>> Importer::Impl::import_unchanged(
    const CommittedState& state) {
  const PublishClock clock;
  std::vector<PublishTensor> tensors;
  for (const CheckpointTensor& tensor : state.checkpoint.tensors()) {
    tensors.emplace_back().view = tensor.view;
    tensors.back().unchanged = true;
  }
  ImportedVersion imported;
  DW_ASSIGN_OR_RETURN(imported.published, publisher->publish(tensors));
  head = imported.version = imported.published.version;
  DW_RETURN_IF_ERROR(remember_without_file(state.folder, *head));
  imported.seconds = clock.now();
  return std::optional(std::move(imported));
}

Result<std::optional<ImportedVersion>> Importer::Impl::begin() {
  const PublishClock clock;
  DW_ASSIGN_OR_RETURN(const std::optional<ImportStart> start,
                      choose_start(dialect, *source, options, &pool));
  if (!start) return std::optional<ImportedVersion>();
  options.publish.origin.first_version = start->version;
  DW_RETURN_IF_ERROR(open_publisher());
  if (!start->from_base) {
    DW_ASSIGN_OR_RETURN(const auto version, dialect.open(*source, start->version));
    DW_ASSIGN_OR_RETURN(ImportedVersion imported, import_one(*version));
    return std::optional(std::move(imported));
  }
  ImportedVersion seed;
  seed.base = true;
  DW_ASSIGN_OR_RETURN(seed.published, publisher->publish_checkpoint(options.base));
  seed.version = start->version;
  seed.seconds = clock.now();
  run = publisher->run();
  head = seed.published.version;
  return std::optional(std::move(seed));
}

bool Importer::Impl::is_image_damaged(const CommittedState& state, const ForeignInfo& info) {
  const Manifest& manifest = state.record.manifest;
  const Status status =
      parallel_try("hashing", &pool, info.tensors.size(), [&](size_t i, unsigned) -> Status {
        const std::string& name = info.tensors[i].name;
        const CheckpointTensor* const held = state.checkpoint.find(name);
        const TensorSpec* const known = find_tensor(state.schema.tensors, name);
        if (held == nullptr || known == nullptr) return {};
        const Digest got = tensor_digest(known->dtype, known->shape, held->view.bytes,
                                         boxes_hashed(manifest, name));
        const size_t index = size_t(known - state.schema.tensors.data());
        return got == manifest.digests[index] ? Status() : corruption(name);
      });
  return !status.ok();
}

// Loads the model from the chain.
Status Importer::Impl::rebuild_image() {
  const auto& place = std::get<SnapshotInFolder>(options.publish.snapshot);
  publisher.reset();
  DW_RETURN_IF_ERROR(FileSnapshot::discard(place.per_run ? place.folder / run : place.folder));
  return open_publisher();
}

Status Importer::Impl::explain(Status status, uint64_t number) const {
  if (status.code() != Code::kCorruption) return status;
  return Status(status.code(),
                status.message() + "; version " + std::to_string(number) +
                    " is damaged, or of another run than the chain: nothing of it was committed");
}

Result<ImportedVersion> Importer::Impl::import_one(const ForeignVersion& version) {
  const ForeignInfo& info = version.info();
  if (!info.full && info.base && head && *info.base != *head) {
    return base_mismatch(of_source(*source, info.version) + " is based on version " +
                         std::to_string(*info.base) + ", the chain is at version " +
                         std::to_string(*head));
  }
  Result<ImportedVersion> imported = import_once(version);
  const Code code = imported.status().code();
  if (head && (code == Code::kBaseMismatch || code == Code::kCorruption)) {
    DW_ASSIGN_OR_RETURN(const std::optional<CommittedState> state, committed_state(&*publisher));
    if (state && is_image_damaged(*state, info)) {
      DW_RETURN_IF_ERROR(rebuild_image());
      imported = import_once(version);
    }
  }
  if (!imported.ok()) return explain(imported.status(), info.version);
  return imported;
}

Result<ImportedVersion> Importer::Impl::import_once(const ForeignVersion& version) {
  const PublishClock clock;
  const ForeignInfo& info = version.info();
  DW_ASSIGN_OR_RETURN(const std::optional<CommittedState> state, committed_state(&*publisher));
  if (!scratch) {
    const auto& place = std::get<SnapshotInFolder>(options.publish.snapshot);
    scratch.emplace(state ? state->folder : place.folder, options.memory_bytes);
  }
  const Progress& progress = options.publish.progress;
  DW_ASSIGN_OR_RETURN(const std::vector<PublishTensor> tensors,
                      info.full
                          ? whole_tensors(version, &*scratch, &pool, progress)
                          : patch_tensors(version, state->checkpoint, &*scratch, &pool, progress));
  ImportedVersion imported;
  imported.read_seconds = clock.now();
  DW_SYNC_POINT("import: read");
  DW_ASSIGN_OR_RETURN(imported.published, publisher->publish(tensors));
  DW_SYNC_POINT("import: published");
  run = publisher->run();
  head = imported.version = imported.published.version;
  if (imported.version != info.version) {
    return internal_error("version " + std::to_string(info.version) + " became version " +
                          std::to_string(imported.version));
  }
  imported.source = summary_of(dialect, info, false);
  DW_RETURN_IF_ERROR(remember(info));
  imported.seconds = clock.now();
  return imported;
}

Status Importer::Impl::remember(const ForeignInfo& info) {
  const auto& place = std::get<SnapshotInFolder>(options.publish.snapshot);
  return remember_import(place.per_run ? place.folder / run : place.folder, info.version,
                         fingerprint_of(info), info.full);
}

Result<Importer> Importer::open(std::shared_ptr<Store> source, std::shared_ptr<Store> chain,
                                ImportOptions options) {
  DW_ASSIGN_OR_RETURN(const Dialect* dialect, require_dialect(options.dialect));
  auto* const place = std::get_if<SnapshotInFolder>(&options.publish.snapshot);
  if (place == nullptr || place->folder.empty()) {
    return invalid_argument("an import needs a work folder");
  }
  if (std::holds_alternative<OnlyAnchors>(options.publish.anchors)) {
    return invalid_argument("an import stores what changed; leave out the mode");
  }
  const BridgeRange& range = options.range;
  if (range.from && range.to && *range.from > *range.to) {
    return invalid_argument("from version " + std::to_string(*range.from) + " to version " +
                            std::to_string(*range.to) + ": the last version is below the first");
  }
  return Importer(
      std::make_unique<Impl>(*dialect, std::move(source), std::move(chain), std::move(options)));
}

Importer::Importer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Importer::~Importer() = default;
Importer::Importer(Importer&&) noexcept = default;
Importer& Importer::operator=(Importer&&) noexcept = default;

Result<std::optional<ImportedVersion>> Importer::next() {
  return guard_memory("importing", [&] { return impl_->next(); });
}
bool Importer::done() const noexcept { return impl_->done(); }
std::optional<uint64_t> Importer::head() const noexcept { return impl_->head; }
const std::string& Importer::run() const noexcept { return impl_->run; }

}  // namespace deltawire
