#include "publish/known_stores.h"

#include <string>
#include <vector>

#include "base/file.h"
#include "base/folder.h"
#include "publish/snapshot_file.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kNoteName = "store";
constexpr uint64_t kMaxNoteBytes = 1 << 16;

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
    if (note.ok() && *note == name_of(store) + "\n") found.push_back(it->path());
  }
  return found;
}

}  // namespace

void remember_store(const Store& store, const fs::path& snapshot) {
  const std::string text = name_of(store) + "\n";
  const Result<std::string> note = read_text_file(snapshot / kNoteName, kMaxNoteBytes);
  if (note.ok() && *note == text) return;
  if (make_folder(snapshot).ok()) (void)write_text_file(snapshot / kNoteName, text);
}

Status check_no_run_was_here(const Store& store, const SnapshotInFolder& place) {
  const std::vector<fs::path> found = snapshots_of(store, place);
  if (found.empty()) return {};
  return not_found(
      store.url() + ": holds no run, but " + found[0].string() +
      " is the snapshot of one that was published " + (place.per_run ? "here" : "before") +
      ": is the store mounted? To begin a new run say --new-run, or remove the snapshot");
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
