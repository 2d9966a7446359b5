// Finds new, complete checkpoints that appear in a folder, and their order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/folder_events.h"
#include "deltawire/status.h"

namespace deltawire {

// A checkpoint is a .safetensors file or a folder in the watched folder; hidden ones are skipped.
// It is complete when its index, shards and headers are consistent and it has settled. One thread.
class FolderWatch {
 public:
  // A checkpoint counts as written when none of its files has changed for `settle_seconds`.
  static Result<FolderWatch> open(std::filesystem::path folder, double settle_seconds);

  // Sets the file that remembers published checkpoints across processes. Without it they are
  // remembered only in memory.
  Status remember_in(std::filesystem::path file);

  // The checkpoints that are complete and not remembered, oldest first. Examines names, sizes and
  // times, and opens only settled checkpoints.
  Result<std::vector<std::filesystem::path>> ready();
  // The items skipped since the last call, with reasons. Each is reported once until it changes.
  struct Skipped {
    std::filesystem::path path;
    std::string reason;
  };
  std::vector<Skipped> newly_skipped() { return std::exchange(newly_skipped_, {}); }
  // Whether the last check found checkpoints that may still be incomplete.
  bool expects_more() const noexcept { return unsettled_ != 0; }
  // Ignores this checkpoint until its files change.
  Status remember(const std::filesystem::path& checkpoint);
  // Returns when something happens in the folder, or after `seconds`. Sleeps where the system
  // reports no events, as on network filesystems.
  void wait(double seconds);

 private:
  // Identifies a state of a checkpoint without reading its contents.
  struct Look {
    std::string fingerprint;
    int64_t modified_ns = 0;  // of the newest file
    bool candidate = true;    // judging by its name
  };
  FolderWatch(std::filesystem::path folder, double settle_seconds);
  Result<std::map<std::string, Look>> look() const;
  Status read_memory();
  Status write_memory() const;

  struct Seen {
    std::string fingerprint;
    double since = 0;
  };
  std::filesystem::path folder_;
  double settle_seconds_;
  std::map<std::string, Seen> seen_;               // by name
  std::map<std::string, std::string> remembered_;  // name -> fingerprint
  std::map<std::string, std::string> skipped_;     // name -> reason
  std::vector<Skipped> newly_skipped_;
  std::filesystem::path memory_;
  size_t unsettled_ = 0;
  std::unique_ptr<FolderEvents> events_ = std::make_unique<FolderEvents>();
};

}  // namespace deltawire
