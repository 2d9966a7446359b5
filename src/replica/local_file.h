// Files of a checkpoint that are patched in place, and clones that share blocks.
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

// Detects changes of a file without reading it.
struct FileStamp {
  uint64_t size_bytes = 0, inode = 0;
  int64_t modified_ns = 0, changed_ns = 0;

  bool operator==(const FileStamp&) const = default;
};
using FileStamps = std::map<std::string, FileStamp>;  // by file name

Result<FileStamp> stamp_of(const std::filesystem::path& file);
// The stamp of an open file, after setting a modification time that no later write produces:
// kernels record the times of writes with millisecond granularity.
Result<FileStamp> mark_file(int fd, const std::filesystem::path& file);

// Stamps of `names` in `folder`.
Result<FileStamps> stamp_files(const std::filesystem::path& folder,
                               const std::vector<std::string>& names);
// The first file that has changed, for messages; none if all match `left`.
std::optional<std::string> find_edited(const std::filesystem::path& folder, const FileStamps& left);

// An existing file, mapped for writing. Writes are visible to other mappings at once and are on
// disk after sync(). Different threads may write different ranges.
class PatchedFile {
 public:
  static Result<PatchedFile> open(const std::filesystem::path& path);
  ~PatchedFile();
  PatchedFile(PatchedFile&& other) noexcept;
  PatchedFile& operator=(PatchedFile&&) = delete;

  MutableBytes bytes() noexcept { return {mapping_.data(), size_}; }
  // True on tmpfs: pages that were read through the mapping can be written without another page
  // fault. On other filesystems that second fault is slower than a first write to an unread page.
  bool written_after_read() const noexcept { return on_tmpfs_; }
  // Call before the first write. Allocates the disk space of holes, if the filesystem can, so that
  // a full disk is found here. Blocks shared with a clone are allocated on write; check_whole()
  // then reports a full disk.
  Status take_holes();
  // Writes without the mapping, so that fully overwritten pages are not read first.
  Status write_at(uint64_t offset, Bytes contents);
  // Io if bytes were lost: the disk is full, or another process truncated the file. The contents
  // are then undefined.
  Status check_whole() const;
  // Call after the last write; returns the final stamp. Not every filesystem updates times after
  // writes to a mapping.
  Result<FileStamp> mark() { return mark_file(fd_, path_); }
  Status sync();  // check_whole(), then waits for the disk

 private:
  PatchedFile() = default;
  std::filesystem::path path_;
  int fd_ = -1;
  Mapping mapping_;
  size_t size_ = 0;
  bool on_tmpfs_ = false;
};

// The files of a checkpoint that is patched in place. A file is opened when one of its tensors is
// first requested. Where that is faster, readers and writers share a mapping. Thread-safe.
class PatchedFiles {
 public:
  explicit PatchedFiles(Checkpoint checkpoint)
      : checkpoint_(std::move(checkpoint)), files_(checkpoint_.files().size()) {}

  const Checkpoint& checkpoint() const noexcept { return checkpoint_; }
  // The bytes of one of the checkpoint's tensors. BaseMismatch if the file's size has changed.
  Result<Bytes> to_read(const CheckpointTensor& tensor);
  Result<MutableBytes> to_write(const CheckpointTensor& tensor);
  // Writes `contents` at `offset` in the tensor; see PatchedFile::write_at().
  Status write_at(const CheckpointTensor& tensor, uint64_t offset, Bytes contents);
  Status check_whole() const;
  // Call after the last write; returns the final stamps of the written files.
  Result<FileStamps> mark();
  // Waits until the written files are on disk.
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

// Whether this many changes, spread anywhere, touch most pages.
constexpr bool touches_most_pages(uint64_t num_changed, uint64_t size_bytes) {
  return num_changed >= size_bytes / 8192;
}
// Prefaults mapped bytes before most of their pages are written: one call is faster than a fault
// per page. Failures (old kernel, full disk) are ignored; the writes fault instead.
void map_all(MutableBytes bytes, ThreadPool* pool);

// Clones a file, sharing its blocks where the filesystem supports reflinks, otherwise copying them.
// `to` must not exist.
Status clone_file(const std::filesystem::path& from, const std::filesystem::path& to);

// Creates a file with these contents, without syncing it. Uses a mapping, because several threads
// cannot write() to one file at the same time.
Status write_body(const std::filesystem::path& path, const Body& body, ThreadPool* pool);

// Waits until a file's contents are on disk.
Status sync_file(const std::filesystem::path& path);

}  // namespace deltawire
