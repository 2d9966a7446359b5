#include "publish/known_stores.h"

#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "publish/snapshot_file.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kNoteName = "store";
constexpr uint64_t kMaxNoteBytes = 1 << 16;

// The first line is the store, the second, once there is a version: "RUN VERSION MANIFEST".
std::string store_line(std::string_view note) {
  return std::string(note.substr(0, note.find('\n')));
}

// The same for every way to write a path.
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
    // A folder per run has room for both.
    if (!place.per_run) DW_RETURN_IF_ERROR(FileSnapshot::discard(snapshot));
    std::error_code error;
    fs::remove(snapshot / kNoteName, error);
    if (error) return io_error((snapshot / kNoteName).string() + ": " + error.message());
  }
  return {};
}

}  // namespace deltawire
