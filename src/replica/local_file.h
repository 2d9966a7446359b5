// Files of a checkpoint that are patched where they are, and copies that share their blocks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/mapping.h"
#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// Tells whether a file is as it was left, without reading it.
struct FileStamp {
  uint64_t size_bytes = 0, inode = 0;
  int64_t modified_ns = 0, changed_ns = 0;

  bool operator==(const FileStamp&) const = default;
};
using FileStamps = std::map<std::string, FileStamp>;  // by name in a folder

Result<FileStamp> stamp_of(const std::filesystem::path& file);
// Of an open file, which is given a time of change that no later write gives it again: kernels
// note the times of writes in steps of milliseconds.
Result<FileStamp> mark_file(int fd, const std::filesystem::path& file);

// Stamps of `names` in `folder`.
Result<FileStamps> stamp_files(const std::filesystem::path& folder,
                               const std::vector<std::string>& names);
// The first file that is not as it was left, or none: "model.safetensors was changed".
std::optional<std::string> find_edited(const std::filesystem::path& folder, const FileStamps& left);

// An existing file, mapped for writing. What is written is seen by every other mapping of the file
// at once, and is on disk when sync() returns. Different threads may write different ranges.
class PatchedFile {
 public:
  static Result<PatchedFile> open(const std::filesystem::path& path);
  ~PatchedFile();
  PatchedFile(PatchedFile&& other) noexcept;
  PatchedFile& operator=(PatchedFile&&) = delete;

  MutableBytes bytes() noexcept { return {mapping_.data(), size_}; }
  // Pages that were read through the mapping are written without another fault: a tmpfs. Elsewhere
  // that fault takes longer than the first one of a page that was not read.
  bool written_after_read() const noexcept { return on_tmpfs_; }
  // Before the first write: takes the disk space of holes, where the filesystem can, so that a full
  // disk shows here. Blocks that are shared with a clone take theirs when they are written: a disk
  // that is full then shows in check_whole().
  Status take_holes();
  // As bytes(), without the mapping: pages that are written whole are not read first.
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
  bool on_tmpfs_ = false;
};

// The files of a checkpoint that is patched where it is: opened when a tensor of theirs is first
// asked for, and mapped once for those who read and those who write where that pays. Thread-safe.
class PatchedFiles {
 public:
  explicit PatchedFiles(Checkpoint checkpoint)
      : checkpoint_(std::move(checkpoint)), files_(checkpoint_.files().size()) {}

  const Checkpoint& checkpoint() const noexcept { return checkpoint_; }
  // The bytes of one of the checkpoint's tensors. BaseMismatch when its file has another size now.
  Result<Bytes> to_read(const CheckpointTensor& tensor);
  Result<MutableBytes> to_write(const CheckpointTensor& tensor);
  // Writes from `offset` of the tensor on, as PatchedFile::write_at().
  Status write_at(const CheckpointTensor& tensor, uint64_t offset, Bytes contents);
  Status check_whole() const;
  // After the last write: how the files that were written are left, by name.
  Result<FileStamps> mark();
  // Those are on disk when it returns.
  Status sync(ThreadPool* pool);

 private:
  struct File {
    PatchedFile file;
    bool written = false;
  };
  Result<File*> open(const CheckpointTensor& tensor);  // with the mutex held

  const Checkpoint checkpoint_;
  std::mutex mutex_;
  std::vector<std::optional<File>> files_;
};

// Whether so many changes, anywhere in so many bytes, touch most of their pages.
constexpr bool touches_most_pages(uint64_t num_changed, uint64_t size_bytes) {
  return num_changed >= size_bytes / 8192;
}
// Before most pages of mapped bytes are written: all of them in one call take less than a fault
// each. What it cannot do, on an old kernel or a full disk, is left to the faults.
void map_all(MutableBytes bytes, ThreadPool* pool);

// A copy that shares its blocks with the original where the filesystem can (reflink); else its
// bytes are copied. `to` must not be there.
Status clone_file(const std::filesystem::path& from, const std::filesystem::path& to);

// A new file with these contents. It is not synced. By a mapping: several threads cannot write to
// one file at once.
Status write_body(const std::filesystem::path& path, const Body& body, ThreadPool* pool);

// Waits until a file's contents are on disk.
Status sync_file(const std::filesystem::path& path);

}  // namespace deltawire
