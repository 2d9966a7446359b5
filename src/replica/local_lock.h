// One process at a time works in a replica's folder.
#pragma once

#include <filesystem>
#include <utility>

#include "deltawire/status.h"

namespace deltawire {

// Holds a flock on a file that says who holds it. Freed by the destructor, and by the kernel when
// the process ends in any way.
class LocalLock {
 public:
  static LocalLock none() { return LocalLock(-1); }  // is nowhere
  // Conflict, naming the holder, when another has it.
  static Result<LocalLock> take(const std::filesystem::path& file);
  // Whether `file` is still the file that is locked: a folder may be removed, and made again.
  bool is_at(const std::filesystem::path& file) const;
  ~LocalLock();
  LocalLock(LocalLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  LocalLock& operator=(LocalLock&&) = delete;

 private:
  explicit LocalLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace deltawire
