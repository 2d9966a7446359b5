// Notifications from the kernel about changes in folders.
#pragma once

#include <filesystem>

#include "base/file.h"

namespace deltawire {

// Watches folders for new files and for writes. Changes that another machine makes on a network
// filesystem are not noticed. If the system is out of watches, waits are short and always report a
// possible change.
class FolderEvents {
 public:
  FolderEvents();

  // Watches for new and renamed files, and with `writes` for writes. False: the folder does not
  // exist or cannot be watched. A folder may be given again, in case it was removed and recreated.
  bool watch(const std::filesystem::path& folder, bool writes = false);
  // True: something changed since the last call, or wake() was called. False: `seconds` have
  // passed. For one thread.
  bool wait(double seconds);
  // Ends a wait, or the next one. From any thread.
  void wake();

 private:
  bool drain();

  Descriptor inotify_, wake_;
  bool is_blind_ = false;  // a folder that is there could not be watched
};

}  // namespace deltawire
