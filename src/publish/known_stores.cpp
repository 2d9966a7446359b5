#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "chain/hop_records.h"
#include "publish/impl.h"
#include "publish/snapshot_file.h"
#include "replica/plan_pull.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kNoteName = "store";
constexpr uint64_t kMaxNoteBytes = 1 << 16;

// The first line names the store. The second, if there is a version, is "RUN VERSION MANIFEST".
std::string store_line(std::string_view note) {
  return std::string(note.substr(0, note.find('\n')));
}

// The same name for all spellings of a path.
std::string name_of(const Store& store) {
  const std::string local = store.local_folder();
  if (local.empty()) return store.url();
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(local, error), error);
  return error ? local : whole.string();
}

bool holds_snapshot(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "checkpoint/.deltawire/state.json", error);
}

std::vector<fs::path> snapshots_of(const Store& store, const SnapshotInFolder& place) {
  const fs::path& folder = place.folder;
  std::vector<fs::path> found;
  if (!place.per_run) {
    std::error_code error;
    if (holds_snapshot(folder) || fs::exists(folder / kNoteName, error)) found.push_back(folder);
    return found;
  }
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const Result<std::string> note = read_text_file(it->path() / kNoteName, kMaxNoteBytes);
    if (note.ok() && store_line(*note) == name_of(store)) found.push_back(it->path());
  }
  return found;
}

}  // namespace

void remember_store(const Store& store, const fs::path& snapshot,
                    const std::optional<KnownVersion>& newest) {
  std::string text = name_of(store) + "\n";
  if (newest) {
    const auto& [version, manifest] = newest->version;
    text += newest->run + " " + std::to_string(version) + " " + manifest.hex() + "\n";
  }
  const Result<std::string> note = read_text_file(snapshot / kNoteName, kMaxNoteBytes);
  if (note.ok() && *note == text) return;
  Status status = make_folder(snapshot);
  if (status.ok()) status = write_text_file(snapshot / kNoteName, text);
  if (!status.ok()) log_event(LogLevel::kWarning, "snapshot.store_not_noted", {{"error", status}});
}

std::optional<KnownVersion> known_version(const Store& store, const fs::path& snapshot) {
  const Result<std::string> note = read_text_file(snapshot / kNoteName, kMaxNoteBytes);
  if (!note.ok()) return {};
  const std::string place = store_line(*note);
  std::istringstream lines(note->substr(place.size()));
  std::string run, manifest;
  uint64_t version = 0;
  if (!(lines >> run >> version >> manifest)) return {};
  const Result<Digest> digest = parse_digest(DigestKind::kSha256, manifest);
  if (!digest.ok()) return {};
  return KnownVersion{run, {version, *digest}, place == name_of(store) ? "" : place};
}

Status check_no_run_was_here(const Store& store, const SnapshotInFolder& place) {
  const std::vector<fs::path> found = snapshots_of(store, place);
  if (found.empty()) return {};
  return not_found(
      store.url() + ": holds no run, but " + found[0].string() +
      " is the snapshot of one that was published " + (place.per_run ? "here" : "before") +
      ": is the store mounted? To begin a new run there, set new_run or remove the snapshot");
}

Status forget_runs(const Store& store, const SnapshotInFolder& place) {
  for (const fs::path& snapshot : snapshots_of(store, place)) {
    // With a folder per run, both runs can stay.
    if (!place.per_run) DW_RETURN_IF_ERROR(FileSnapshot::discard(snapshot));
    std::error_code error;
    fs::remove(snapshot / kNoteName, error);
    if (error) return io_error((snapshot / kNoteName).string() + ": " + error.message());
  }
  return {};
}

// Stores that have lost versions or hold others under their numbers. A version published on top of
// those would have no base, or a wrong one, for everybody else.

// Describes what the store has lost since it held `known`; empty: nothing. Versions removed by gc
// are not losses.
Result<std::string> Publisher::Impl::find_loss(const Held& known, const Newest& newest) const {
  const std::string last = std::to_string(known.version);
  if (!newest || newest->manifest.version < known.version) {
    const uint64_t first = newest ? newest->manifest.version + 1 : options.origin.first_version;
    return first == known.version ? "lost version " + last
                                  : "lost versions " + std::to_string(first) + " to " + last;
  }
  if (newest->digest == known.manifest) return std::string();
  const Status history = check_history(*chain, known);
  if (history.ok()) return std::string();
  if (history.code() != Code::kCorruption) return history;
  return "holds another version " + last;
}

Status Publisher::Impl::check_loss(const KnownVersion& known, const Newest& newest) const {
  const auto& [version, manifest] = known.version;
  DW_ASSIGN_OR_RETURN(const std::string loss, find_loss(known.version, newest));
  if (loss.empty()) return {};
  const std::string newest_now =
      newest ? "the newest is version " + std::to_string(newest->manifest.version)
             : "there is no version left";
  // A run that follows another project's versions gets them from there and has nothing to publish
  // whole.
  const std::string ways = options.origin.place.empty()
                               ? "restore the store, publish to an empty one as a new run, or set "
                                 "accept_loss to go on from there with a whole version"
                               : "restore the store, or import into an empty one";
  return corruption(store->url() + ": " + loss + " (the manifest of version " +
                    std::to_string(version) + " was " + manifest.hex() +
                    (known.elsewhere.empty() ? "" : ", published to " + known.elsewhere) + "); " +
                    newest_now + ". Nothing was published; " + ways);
}

// `there`: what the store has under the head's number.
Status Publisher::Impl::check_head(const Result<VersionRecord>& there) const {
  if (there.ok() && there->digest == head->digest) return {};
  if (!there.ok() && there.status().code() != Code::kNotFound) return Status(there.status());
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> version, chain->head());
  Newest newest;
  if (version) {
    DW_ASSIGN_OR_RETURN(newest, chain->version(*version));
  }
  DW_RETURN_IF_ERROR(check_loss(known_head(), newest));
  return conflict(store->url() + ": version " + std::to_string(next_version()) +
                  " can no longer be committed: the chain is already at version " +
                  std::to_string(*version) + " without it");
}

// Refuses what contradicts the note in the snapshot's folder, or gives it up if that was requested.
Status Publisher::Impl::check_noted() {
  std::optional<KnownVersion> known;
  if (on_disk != nullptr) known = known_version(*store, snapshot_folder());
  if (known && known->run != chain->run()) {
    return base_mismatch(snapshot_folder().string() + ": belongs to run " + known->run + ", " +
                         store->url() + " holds run " + chain->run());
  }
  if (!options.accept_loss) return known ? check_loss(*known, head) : Status();
  std::string loss;
  if (known) {
    DW_ASSIGN_OR_RETURN(loss, find_loss(known->version, head));
  }
  if (head) whole_reason = "accept_loss";
  if (!loss.empty()) whole_reason = "the store " + loss;
  accepted_from = known ? std::min(known->version.version, next_version()) : next_version();
  return {};
}

// Removes anchors and merged deltas of versions that were given up, because their numbers will be
// reused. Done before the commit, so that no reader combines them with new versions.
Status Publisher::Impl::remove_lost_hops() const {
  DW_ASSIGN_OR_RETURN(const auto hops, list_hops(*chain, accepted_from, kMaxVersion, SIZE_MAX));
  for (const HopName& hop : hops) {
    DW_ASSIGN_OR_RETURN(const bool usable, is_usable(*chain, hop));
    if (usable) continue;  // its version exists
    DW_RETURN_IF_ERROR(store->remove(hop_name(hop)));
    DW_SYNC_POINT("publish: hop of a lost version removed");
  }
  return {};
}

// Called after every commit, because the process may end at any time.
void Publisher::Impl::note_head() const {
  if (on_disk == nullptr) return;
  std::optional<KnownVersion> newest;
  if (head) newest = known_head();
  remember_store(*store, snapshot_folder(), newest);
}

}  // namespace deltawire
