#include "publish/folder_watch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "deltawire/digest.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxMemoryBytes = uint64_t{64} << 20;
constexpr std::string_view kMemoryFormat = "watched/1";
// More frequent checks would not find more.
constexpr double kShortestPause = 0.05;

// Adds a file's name, size and time to the text. False if the file is gone.
bool add_file(const fs::path& path, const std::string& name, std::string* text,
              int64_t* modified_ns) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const int64_t ns = int64_t(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
  *text += name + '\0' + std::to_string(info.st_size) + '\0' + std::to_string(ns) + '\n';
  *modified_ns = std::max(*modified_ns, ns);
  return true;
}

}  // namespace

FolderWatch::FolderWatch(fs::path folder, double settle_seconds)
    : folder_(std::move(folder)), settle_seconds_(settle_seconds) {
  events_->watch(folder_, true);
}

Result<FolderWatch> FolderWatch::open(fs::path folder, double settle_seconds) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return not_found(folder.string() + ": no such folder to watch");
  }
  return FolderWatch(std::move(folder), settle_seconds);
}

Status FolderWatch::remember_in(fs::path file) {
  memory_ = std::move(file);
  return read_memory();
}

Result<std::map<std::string, FolderWatch::Look>> FolderWatch::look() const {
  std::map<std::string, Look> found;
  std::error_code error;
  for (const auto& item : fs::directory_iterator(folder_, error)) {
    const std::string name = item.path().filename().string();
    if (name.starts_with(".")) continue;
    std::error_code gone;
    std::string text;
    Look look;
    if (item.is_directory(gone)) {
      std::vector<fs::path> files;
      for (const auto& inside : fs::directory_iterator(item.path(), gone)) {
        files.push_back(inside.path());
      }
      std::sort(files.begin(), files.end());
      for (const fs::path& file : files) {
        add_file(file, file.filename().string(), &text, &look.modified_ns);
      }
    } else {
      look.candidate = item.path().extension() == ".safetensors";
      add_file(item.path(), name, &text, &look.modified_ns);
    }
    if (text.empty()) continue;
    const Bytes bytes{reinterpret_cast<const uint8_t*>(text.data()), text.size()};
    look.fingerprint = digest_of(DigestKind::kXxh3_128, bytes).hex();
    found.emplace(name, std::move(look));
  }
  if (error) return io_error(folder_.string() + ": cannot list: " + error.message());
  return found;
}

Result<std::vector<fs::path>> FolderWatch::ready() {
  DW_ASSIGN_OR_RETURN(const auto found, look());
  const double now = steady_seconds();
  unsettled_ = 0;
  std::map<std::string, Seen> seen;
  std::vector<std::pair<int64_t, std::string>> settled;
  for (const auto& [name, look] : found) {
    const auto before = seen_.find(name);
    const bool same = before != seen_.end() && before->second.fingerprint == look.fingerprint;
    seen[name] = {look.fingerprint, same ? before->second.since : now};
    const auto known = remembered_.find(name);
    if (known != remembered_.end() && known->second == look.fingerprint) continue;
    if (now - seen[name].since >= settle_seconds_) {
      settled.emplace_back(look.modified_ns, name);
    } else {
      unsettled_ += look.candidate;
    }
  }
  seen_ = std::move(seen);
  std::sort(settled.begin(), settled.end());
  std::vector<fs::path> complete;
  std::map<std::string, std::string> skipped;
  for (const auto& [modified, name] : settled) {
    const fs::path path = folder_ / name;
    Status status;
    if (!found.at(name).candidate) {
      status = invalid_argument(path.string() + ": neither a .safetensors file nor a folder");
    } else if (looks_like_delta(path)) {
      status = invalid_argument(path.string() + ": a delta, not a checkpoint");
    } else {
      status = Checkpoint::open(path).status();
    }
    if (status.ok()) {
      complete.push_back(path);
      continue;
    }
    // Not a checkpoint, or incomplete. Checked again when its files change, and now and then.
    const std::string place = path.string() + ": ";
    std::string& reason = skipped[name] = status.message();
    if (reason.starts_with(place)) reason.erase(0, place.size());
    const auto known = skipped_.find(name);
    if (known == skipped_.end() || known->second != reason)
      newly_skipped_.push_back({path, reason});
  }
  skipped_ = std::move(skipped);
  return complete;
}

Status FolderWatch::remember(const fs::path& checkpoint) {
  const auto seen = seen_.find(checkpoint.filename().string());
  if (seen == seen_.end()) return {};
  // Uses the fingerprint from when it was found ready, so that later writes count as new.
  remembered_[seen->first] = seen->second.fingerprint;
  return write_memory();
}

Status FolderWatch::read_memory() {
  const Result<std::string> text = read_text_file(memory_, kMaxMemoryBytes);
  if (!text.ok() && text.status().code() == Code::kNotFound) return {};
  DW_RETURN_IF_ERROR(Status(text.status()));
  const auto json = parse_json(*text);
  const std::string place = memory_.string();
  if (!json.is_object() || json.value("format", "") != kMemoryFormat ||
      !json.contains("published") || !json.at("published").is_object()) {
    return corruption(place +
                      ": not a list of published checkpoints; remove it to publish what "
                      "is in the folder again");
  }
  for (const auto& [name, fingerprint] : json.at("published").items()) {
    if (fingerprint.is_string()) remembered_[name] = fingerprint.get<std::string>();
  }
  return {};
}

Status FolderWatch::write_memory() const {
  if (memory_.empty()) return {};
  const nlohmann::json json = {{"format", kMemoryFormat}, {"published", remembered_}};
  return write_text_file(memory_, json_text(json, {.indent = 1, .replace_bytes = true}) + "\n");
}

void FolderWatch::wait(double seconds) {
  const double end = steady_seconds() + seconds;
  if (!events_->wait(seconds)) return;
  const double left = std::min(kShortestPause, end - steady_seconds());
  if (left > 0) std::this_thread::sleep_for(std::chrono::duration<double>(left));
}

}  // namespace deltawire
