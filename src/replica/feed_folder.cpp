#include "replica/feed_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "replica/feed_workers.h"
#include "replica/local_file.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// The same file under another name; a copy where the filesystem has no links.
Status link_file(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return {};
  return clone_file(from, to);
}

Status link_step(const LocalLayout& layout, const JournalRecord& record) {
  const fs::path to = layout.feed_version(record.version);
  fs::path temporary = to;
  temporary += ".new";
  DW_RETURN_IF_ERROR(remove_tree(temporary));
  DW_RETURN_IF_ERROR(make_folder(temporary));
  for (const std::string& name : record.redo) {
    DW_RETURN_IF_ERROR(link_file(layout.journal() / "redo" / name, temporary / name));
  }
  DW_RETURN_IF_ERROR(
      link_file(layout.journal() / kJournalRecordName, temporary / kJournalRecordName));
  DW_SYNC_POINT("replica: feed linked");
  DW_RETURN_IF_ERROR(remove_tree(to));  // of an earlier pull of this version
  DW_RETURN_IF_ERROR(rename_path(temporary, to));
  DW_SYNC_POINT("replica: feed in place");
  return {};
}

void say(const LocalLayout& layout, const Status& status) {
  log_event(LogLevel::kWarning, "replica.feed", {{"local", layout.root}, {"error", status}});
}

uint64_t bytes_in(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code gone;
    const uint64_t size = fs::file_size(it->path(), gone);
    if (!gone) bytes += size;
  }
  return bytes;
}

// A process that died while it linked a step.
void remove_unfinished(const LocalLayout& layout) {
  std::error_code error;
  std::vector<fs::path> unfinished;
  for (fs::directory_iterator it(layout.feed(), error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() == ".new") unfinished.push_back(it->path());
  }
  for (const fs::path& path : unfinished) (void)remove_tree(path);
}

}  // namespace

void add_to_feed(const LocalLayout& layout, const JournalRecord& record) {
  const Status status = link_step(layout, record);
  if (!status.ok()) say(layout, status);
}

void begin_feed(const LocalLayout& layout, const JournalRecord& record) {
  const fs::path folder = layout.feed_version(record.version);
  const Result<JournalRecord> known = read_journal_record(folder);
  if (known.ok() && known->manifest == record.manifest) return;
  fs::path temporary = folder;
  temporary += ".new";
  const Status status = [&]() -> Status {
    DW_RETURN_IF_ERROR(remove_tree(temporary));
    DW_RETURN_IF_ERROR(make_folder(temporary));
    DW_ASSIGN_OR_RETURN(const std::string text, serialise_journal_record(record));
    DW_RETURN_IF_ERROR(write_text_file(temporary / kJournalRecordName, text));
    DW_RETURN_IF_ERROR(remove_tree(folder));
    return rename_path(temporary, folder);
  }();
  if (!status.ok()) say(layout, status);
}

void prune_feed(const LocalLayout& layout, const Identity& held, const FeedLimits& limits) {
  remove_unfinished(layout);
  // A worker that has not said what it has may need all of it; one of another run needs nothing.
  std::optional<uint64_t> slowest;
  for (const Identity& worker : feed_workers(layout.root)) {
    if (!worker.run.empty() && worker.run != held.run) continue;
    slowest = std::min(slowest.value_or(worker.version), worker.version);
  }
  std::vector<uint64_t> versions = version_folders(layout.feed());
  std::reverse(versions.begin(), versions.end());
  uint64_t bytes = 0;
  for (size_t i = 0; i < versions.size(); ++i) {
    const fs::path folder = layout.feed_version(versions[i]);
    if (i > 0) bytes += bytes_in(folder);
    const bool is_wanted =
        i < limits.keep_always || (slowest && versions[i] >= *slowest && i < limits.keep_at_most);
    if (is_wanted && bytes <= limits.max_bytes) continue;
    const Status status = remove_tree(folder);
    if (!status.ok()) say(layout, status);
  }
}

}  // namespace deltawire
