// A synced file in the folder of an object, before it has the object's name.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>

#include "deltawire/store.h"

namespace deltawire {

// What errno says about `path`. NotFound when it is not there, Unavailable when a network
// filesystem lost its server for a while, else Io.
Status errno_status(const std::filesystem::path& path, const std::string& what);

// Its name begins with a dot, so that no listing shows it, and is like no other's: hosts that share
// the folder may have the same name, and their processes the same number. Destroyed, it leaves
// nothing behind; a killed process may.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::filesystem::path object);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  Status create();                                       // NotFound when the folder is not there
  int64_t created() const noexcept { return created_; }  // seconds since 1970, by the filesystem
  Status fill(const Body& body);
  Status link();    // gives it the object's name; Conflict when that is taken
  Status rename();  // gives it the object's name, whatever had it

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

// Removes what writers that were killed left below `folder`: temporary files that nobody has
// written to since `before`, seconds since 1970 by the filesystem's clock. Returns how many;
// `count_only`: and leaves them. For `gc`: a writer that is merely slow would fail, on whichever
// host it is, so `before` is long ago.
Result<uint64_t> remove_left_temporaries(const std::filesystem::path& folder, int64_t before,
                                         bool count_only = false);

}  // namespace deltawire
