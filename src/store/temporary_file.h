// A synced file in an object's folder, before it gets the object's name.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>

#include "deltawire/store.h"

namespace deltawire {

// Converts errno for `path`: NotFound, Unavailable if a network filesystem temporarily lost its
// server, else Io.
Status errno_status(const std::filesystem::path& path, const std::string& what);

// Its name begins with a dot, so that no listing shows it, and is random, because hosts that share
// the folder may have equal names and process ids. The destructor removes it; a killed process
// leaves it behind.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path object);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  Status create();                                       // NotFound when the folder is not there
  int64_t created() const noexcept { return created_; }  // seconds since 1970, by the filesystem
  Status fill(const Body& body);
  Status link();    // takes the object's name; Conflict if it is taken
  Status rename();  // takes the object's name and replaces any file of that name

 private:
  bool has_the_name() const;
  Status rename_if_absent();
  Status name_failure(int error, const std::string& what) const;

  const std::filesystem::path object_, path_;
  int fd_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  int64_t created_ = 0;
};

// Removes temporary files below `folder` that were last written before `before`, in seconds since
// 1970 by the filesystem's clock: those of killed writers. Returns how many; with `count_only` it
// only counts them. A writer that is merely slow would fail, so `before` must be long ago.
Result<uint64_t> remove_left_temporaries(const std::filesystem::path& folder, int64_t before,
                                         bool count_only = false);

}  // namespace deltawire
