#include "replica/side_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "deltawire/digest.h"
#include "format/checkpoint_files.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr size_t kSidePieceBytes = size_t{1} << 18;

enum class Found : uint8_t { kNothing, kFile, kOther };

Found look_at(const fs::path& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0) return Found::kNothing;
  return S_ISREG(info.st_mode) ? Found::kFile : Found::kOther;
}

Result<std::string> sha256_of_file(const fs::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    return io_error(path.string() + ": cannot open: " + std::strerror(errno));
  }
  Hasher hasher(DigestKind::kSha256);
  std::vector<uint8_t> piece(kSidePieceBytes);
  while (true) {
    const ssize_t n = ::read(file.get(), piece.data(), piece.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path.string() + ": cannot read: " + std::strerror(errno));
    if (n == 0) return hasher.finish().hex();
    hasher.update({piece.data(), size_t(n)});
  }
}

// A regular file and its contents.
struct Content {
  HeldSide now;
  bool ours = false;  // it matches `held`
};
Result<Content> content_of(const fs::path& path, const HeldSide* held, bool verify) {
  Content content;
  DW_ASSIGN_OR_RETURN(content.now.stamp, stamp_of(path));
  if (held != nullptr && !verify && held->stamp == content.now.stamp) {
    content.now.sha256 = held->sha256;
  } else {
    DW_ASSIGN_OR_RETURN(content.now.sha256, sha256_of_file(path));
  }
  content.ours = held != nullptr && held->sha256 == content.now.sha256;
  return content;
}

const HeldSide* find(const std::map<std::string, HeldSide>& held, const std::string& name) {
  const auto found = held.find(name);
  return found == held.end() ? nullptr : &found->second;
}

}  // namespace

Result<SidePlan> plan_side_files(const fs::path& folder,
                                 const std::map<std::string, HeldSide>& held,
                                 const std::vector<SideFile>& wanted, bool verify) {
  SidePlan plan;
  const auto defect = [&](const std::string& name, std::string_view what) {
    if (plan.defect.empty()) plan.defect = (folder / name).string() + ": " + std::string(what);
  };
  for (const SideFile& file : wanted) {
    const Found found = look_at(folder / file.name);
    if (found == Found::kFile) {
      DW_ASSIGN_OR_RETURN(const Content content,
                          content_of(folder / file.name, find(held, file.name), verify));
      const bool same = content.now.sha256 == file.sha256.hex();
      if (same || content.ours) plan.ours[file.name] = content.now.stamp;
      if (same) {
        plan.keep[file.name] = content.now;
        continue;
      }
    }
    defect(file.name, found == Found::kNothing ? "is missing" : "differs from the version");
    plan.fetch.push_back(file);
  }
  for (const auto& [name, left] : held) {
    const bool stays =
        std::any_of(wanted.begin(), wanted.end(),
                    [&name = name](const SideFile& file) { return file.name == name; });
    const Found found = stays ? Found::kNothing : look_at(folder / name);
    if (found == Found::kNothing) continue;
    if (found == Found::kFile) {
      DW_ASSIGN_OR_RETURN(const Content content, content_of(folder / name, &left, verify));
      if (content.ours) plan.ours[name] = content.now.stamp;
    }
    defect(name, "is not in the version");
    plan.remove.push_back(name);
  }
  return plan;
}

Status put_aside_unless(const LocalLayout& layout, const fs::path& folder, const std::string& name,
                        const std::map<std::string, FileStamp>& ours,
                        std::vector<std::string>* set_aside) {
  const Found found = look_at(folder / name);
  if (found == Found::kNothing) return {};
  const auto known = ours.find(name);
  if (found == Found::kFile && known != ours.end()) {
    const Result<FileStamp> now = stamp_of(folder / name);
    if (now.ok() && *now == known->second) return {};
  }
  for (size_t number = 1;; ++number) {
    const fs::path place = layout.aside() / std::to_string(number) / name;
    if (look_at(place) != Found::kNothing) continue;
    DW_RETURN_IF_ERROR(make_folder(place.parent_path()));
    DW_RETURN_IF_ERROR(rename_path(folder / name, place));
    DW_SYNC_POINT("replica: file put aside");
    log_event(LogLevel::kWarning, "replica.set_aside",
              {{"local", layout.root}, {"file", name}, {"now", place}});
    set_aside->push_back(place.string());
    return {};
  }
}

Result<std::map<std::string, HeldSide>> held_side_files(const fs::path& folder,
                                                        const JournalRecord& record, bool verify) {
  std::map<std::string, HeldSide> held;
  for (const auto& [name, sha256] : record.sides) {
    if (look_at(folder / name) != Found::kFile) continue;
    DW_ASSIGN_OR_RETURN(const FileStamp stamp, stamp_of(folder / name));
    const bool placed =
        record.kind == JournalKind::kSwitch ||
        std::find(record.files.begin(), record.files.end(), name) != record.files.end();
    const auto before = record.replaces.find(name);
    if (!placed && (before == record.replaces.end() || before->second != stamp)) continue;
    if (placed && verify) {
      DW_ASSIGN_OR_RETURN(const std::string got, sha256_of_file(folder / name));
      if (got != sha256) continue;
    }
    held[name] = {sha256, stamp};
  }
  return held;
}

Result<std::map<std::string, HeldSide>> find_side_files(const fs::path& folder,
                                                        const std::vector<SideFile>& files) {
  DW_ASSIGN_OR_RETURN(SidePlan plan, plan_side_files(folder, {}, files, true));
  return std::move(plan.keep);
}

}  // namespace deltawire
