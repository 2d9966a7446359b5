// What happens in folders, as the kernel tells it.
#pragma once

#include <filesystem>

namespace deltawire {

// New files of watched folders, and writes to them. What another machine does to a network
// filesystem is not noticed. Where the system has no more watches to give, waits are short, and say
// each time that something may have happened.
class FolderEvents {
 public:
  FolderEvents();
  ~FolderEvents();
  FolderEvents(const FolderEvents&) = delete;
  FolderEvents& operator=(const FolderEvents&) = delete;

  // New and renamed files; with `writes` those that are written to as well. False: it is not there,
  // or cannot be watched. A folder may be given again, as it may have been removed and made anew.
  bool watch(const std::filesystem::path& folder, bool writes = false);
  // True: something happened since the last call, or wake() was called. False: `seconds` are over.
  // One thread.
  bool wait(double seconds);
  // Ends a wait, or the next one. From any thread.
  void wake();

 private:
  bool drain();

  int inotify_ = -1, wake_ = -1;
  bool is_blind_ = false;  // a folder that is there could not be watched
};

}  // namespace deltawire
