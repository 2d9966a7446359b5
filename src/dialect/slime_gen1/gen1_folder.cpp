#include "dialect/slime_gen1/gen1_folder.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "dialect/foreign_file.h"

namespace deltawire::gen1 {
namespace {

constexpr std::string_view kVersionPrefix = "weight_v";
constexpr std::string_view kRankPrefix = "rank";
constexpr std::string_view kFlushPrefix = "_flush";
constexpr std::string_view kFileSuffix = ".safetensors";
constexpr std::string_view kTemporarySuffix = ".tmp";

struct FileId {
  uint64_t rank = 0, flush = 0;
  auto operator<=>(const FileId&) const = default;
};

std::optional<FileId> parse_file_name(std::string_view name) {
  const size_t split = name.find(kFlushPrefix);
  if (split == std::string_view::npos) return {};
  const auto rank = parse_numbered_name(name.substr(0, split), kRankPrefix, 4, "");
  const auto flush = parse_numbered_name(name.substr(split), kFlushPrefix, 6, kFileSuffix);
  if (!rank || !flush) return {};
  return FileId{*rank, *flush};
}

// "weight_v000001/rest" -> 1, "rest".
std::optional<std::pair<uint64_t, std::string_view>> parse_object_name(std::string_view name) {
  const size_t slash = name.find('/');
  if (slash == std::string_view::npos) return {};
  const auto version = parse_numbered_name(name.substr(0, slash), kVersionPrefix, 6, "");
  if (!version || *version == 0) return {};
  return std::pair(*version, name.substr(slash + 1));
}

// A store lists objects alone; a local folder also shows versions without any.
Status add_empty_folders(Store& store, std::map<uint64_t, bool>* unfinished) {
  const std::string root = store.local_folder();
  if (root.empty()) return {};
  std::error_code error;
  for (std::filesystem::directory_iterator it(root, error), end; !error && it != end;
       it.increment(error)) {
    const auto version = parse_numbered_name(it->path().filename().string(), kVersionPrefix, 6, "");
    std::error_code ignored;
    if (version && *version != 0 && it->is_directory(ignored)) unfinished->try_emplace(*version);
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return io_error(store.url() + ": cannot list: " + error.message());
  }
  return {};
}

// The versions that have a folder; true: something there has a temporary name and DONE is missing.
Result<std::map<uint64_t, bool>> find_folders(Store& store) {
  std::map<uint64_t, bool> unfinished;
  std::set<uint64_t> done;
  DW_RETURN_IF_ERROR(list_all(store, kVersionPrefix, "", [&](const ObjectInfo& info) {
    if (const auto parsed = parse_object_name(info.name)) {
      const auto& [version, rest] = *parsed;
      unfinished[version] |= rest.ends_with(kTemporarySuffix);
      if (rest == kDone) done.insert(version);
    }
    return true;
  }));
  for (const uint64_t version : done) unfinished[version] = false;
  DW_RETURN_IF_ERROR(add_empty_folders(store, &unfinished));
  return unfinished;
}

Result<bool> is_done(Store& store, uint64_t version) {
  const auto done = store.stat(folder_name(version) + "/" + std::string(kDone));
  if (!done.ok() && done.status().code() != Code::kNotFound) return done.status();
  return done.ok();
}

Result<bool> has_later_folder(Store& store, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const auto folders, find_folders(store));
  return folders.upper_bound(version) != folders.end();
}

Status check_no_gaps(const std::string& where, const std::vector<FileId>& ids) {
  FileId expected;
  for (const FileId& id : ids) {
    if (id.rank != expected.rank) expected = {id.rank, 0};
    if (id.flush != expected.flush) {
      return corruption(where + "/" + file_name(expected.rank, expected.flush) +
                        " is missing: " + file_name(id.rank, id.flush) + " is there");
    }
    ++expected.flush;
  }
  return {};
}

}  // namespace

bool folder_exists(Store& store, uint64_t version) {
  const std::string root = store.local_folder();
  std::error_code ignored;
  return !root.empty() &&
         std::filesystem::is_directory(std::filesystem::path(root) / folder_name(version), ignored);
}

std::string folder_name(uint64_t version) {
  return std::string(kVersionPrefix) + padded_number(version, 6);
}

std::string file_name(uint64_t rank, uint64_t flush) {
  return std::string(kRankPrefix) + padded_number(rank, 4) + std::string(kFlushPrefix) +
         padded_number(flush, 6) + std::string(kFileSuffix);
}

Result<Folder> list_folder(Store& store, uint64_t version) {
  const std::string prefix = folder_name(version) + "/";
  const std::string where = store.url() + "/" + folder_name(version);
  Folder folder;
  folder.version = version;
  // Asked before the files are listed: what is listed afterwards is all there is.
  DW_ASSIGN_OR_RETURN(const bool done, is_done(store, version));
  folder.sealed = done;
  if (!done) {
    DW_ASSIGN_OR_RETURN(folder.sealed, has_later_folder(store, version));
  }
  std::map<FileId, ObjectInfo> files;
  std::string stray;
  bool any = false;
  DW_RETURN_IF_ERROR(list_all(store, prefix, "", [&](const ObjectInfo& info) {
    const std::string_view name = std::string_view(info.name).substr(prefix.size());
    any = true;
    if (const auto id = parse_file_name(name)) {
      files.emplace(*id, info);
    } else if (name.ends_with(kTemporarySuffix)) {
      if (!done) folder.temporary = info.name;
    } else if (name.ends_with(kFileSuffix) && stray.empty()) {
      stray = name;
    }
    return true;
  }));
  if (version == 0 || (!any && !folder_exists(store, version))) {
    return not_found(where + ": no such version");
  }
  if (!stray.empty()) {
    return corruption(where + "/" + stray + ": not a name of slime's generation 1, which is " +
                      file_name(0, 0));
  }
  std::vector<FileId> ids;
  for (auto& [id, info] : files) {
    ids.push_back(id);
    folder.files.push_back(std::move(info));
  }
  DW_RETURN_IF_ERROR(check_no_gaps(where, ids));
  return folder;
}

Result<std::vector<uint64_t>> list_versions(Store& store) {
  DW_ASSIGN_OR_RETURN(const auto folders, find_folders(store));
  std::vector<uint64_t> versions;
  for (const auto& [version, unfinished] : folders) {
    if (!unfinished) versions.push_back(version);
  }
  return versions;
}

Result<bool> has_names(Store& store) {
  bool found = false;
  DW_RETURN_IF_ERROR(list_all(store, kVersionPrefix, "", [&](const ObjectInfo& info) {
    const auto parsed = parse_object_name(info.name);
    found = parsed && parse_file_name(parsed->second);
    return !found;
  }));
  return found;
}

}  // namespace deltawire::gen1
