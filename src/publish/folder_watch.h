// Checkpoints that appear in a folder: which of them are complete and new, and in which order.
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

// A checkpoint is a .safetensors file or a folder in the watched one; hidden ones are passed over.
// It is complete when its index, its shards and their headers fit together and it has settled. One
// thread.
class FolderWatch {
 public:
  // A checkpoint counts as written when none of its files has changed for `settle_seconds`.
  static Result<FolderWatch> open(std::filesystem::path folder, double settle_seconds);

  // Where those that were published are remembered from one process to the next. Until this is
  // said they are remembered in memory only.
  Status remember_in(std::filesystem::path file);

  // Those that are complete and not remembered, the one that was written first first. Looks at
  // names, sizes and times, and opens only what has settled.
  Result<std::vector<std::filesystem::path>> ready();
  // What was passed over since this was last asked, and why: each once, until it changes.
  struct Skipped {
    std::filesystem::path path;
    std::string reason;
  };
  std::vector<Skipped> newly_skipped() { return std::exchange(newly_skipped_, {}); }
  // Whether the last look saw checkpoints that may still be written.
  bool expects_more() const noexcept { return unsettled_ != 0; }
  // It need not be looked at again until its files change.
  Status remember(const std::filesystem::path& checkpoint);
  // Returns when something happened in the folder, or after `seconds`. Where the system does not
  // tell, as on network filesystems, it sleeps.
  void wait(double seconds);

 private:
  // What tells one state of a checkpoint from another without reading it.
  struct Look {
    std::string fingerprint;
    int64_t modified_ns = 0;  // the newest file's
    bool candidate = true;    // by its name
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
