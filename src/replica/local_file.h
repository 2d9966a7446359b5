// Files of a checkpoint that are patched where they are, and copies that share their blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/bytes.h"
#include "base/mapping.h"
#include "deltawire/status.h"
#include "replica/file_stamp.h"

namespace deltawire {

// An existing file, mapped for writing. What is written is seen by every other mapping of the file
// at once, and is on disk when sync() returns. Different threads may write different ranges.
class PatchedFile {
 public:
  // Takes the disk space of holes first, where the filesystem can, so that a full disk shows here.
  // Blocks that are shared with a clone take theirs when they are written: a disk that is full then
  // shows in check_whole().
  static Result<PatchedFile> open(const std::filesystem::path& path);
  ~PatchedFile();
  PatchedFile(PatchedFile&& other) noexcept;
  PatchedFile& operator=(PatchedFile&&) = delete;

  MutableBytes bytes() noexcept { return {mapping_.data(), size_}; }
  // The same without the mapping: pages that are written whole are not read first.
  Status write_at(uint64_t offset, Bytes contents);
  // Io when something that was written, or read, is lost: the disk is full, or another
  // process cut the file short. What it holds then is undefined.
  Status check_whole() const;
  // After the last write: how the file is left. Not every filesystem notes writes to a mapping.
  Result<FileStamp> mark() { return mark_file(fd_, path_); }
  Status sync();  // check_whole(), and it is on disk

 private:
  PatchedFile() = default;
  std::filesystem::path path_;
  int fd_ = -1;
  Mapping mapping_;
  size_t size_ = 0;
};

// Whether so many changes, anywhere in so many bytes, touch most of their pages.
constexpr bool touches_most_pages(uint64_t num_changed, uint64_t size_bytes) {
  return num_changed >= size_bytes / 8192;
}
// Before most pages of mapped bytes are written: all of them in one call take less than a fault
// each. What it cannot do, on an old kernel or a full disk, is left to the faults.
void map_all(MutableBytes bytes);

// A copy that shares its blocks with the original where the filesystem can (reflink); else its
// bytes are copied. `to` must not be there.
Status clone_file(const std::filesystem::path& from, const std::filesystem::path& to);

// Waits until a file's contents are on disk.
Status sync_file(const std::filesystem::path& path);

}  // namespace deltawire
