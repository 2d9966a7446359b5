// The checkpoint: a set of named tensors in one safetensors file or in several with an index.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

// One safetensors file of a checkpoint, mapped whole.
struct CheckpointFile {
  std::string name;  // inside the checkpoint's folder
  std::filesystem::path path;
  std::span<const uint8_t> bytes;
  uint64_t header_bytes = 0;  // length field and padding included: where the data begins
  std::string header;         // those bytes, as they were when it was opened
  std::vector<std::pair<std::string, std::string>> metadata;  // `__metadata__`, in file order
  std::vector<size_t> tensors;  // indices into Checkpoint::tensors(), in the order of the data
};

// One tensor of a checkpoint and where it lies.
struct CheckpointTensor {
  TensorView view;
  size_t file = 0;      // index into Checkpoint::files()
  uint64_t offset = 0;  // of its first byte, from the start of that file
};

// A checkpoint on disk, opened for reading. Nothing is copied: tensors are views into mapped files.
//
// Ownership and lifetime: a Checkpoint is a handle; copies share the mappings. Every span, view and
// reference it gives is valid while any copy lives. Overwriting the files in place shows through
// the views; replacing them by rename, as deltawire's writers do, does not. What another process
// cuts off reads as zeros. check_unchanged() tells.
//
// Thread safety: immutable once opened; any number of threads may read.
//
// Cost: open() reads headers only, O(n log n) in the number of tensors; find() is O(log n).
class Checkpoint {
 public:
  // `path` is a safetensors file, or a folder that holds
  //   model.safetensors.index.json   the files it names, and only those (it wins over others); or
  //   exactly one *.safetensors      that file.
  // NotFound when there is nothing there or the index names a file that is missing;
  // InvalidArgument for a folder with several files and no index; Unsupported for a dtype that is
  // not known; Corruption for every defect of a header, or when index and files disagree about
  // which tensor is where. The message names file and tensor.
  static Result<Checkpoint> open(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept;          // as given to open()
  bool has_index() const noexcept;                             // opened through an index
  std::span<const CheckpointFile> files() const noexcept;      // sorted by name
  std::span<const CheckpointTensor> tensors() const noexcept;  // sorted by name
  uint64_t data_bytes() const noexcept;                        // of all tensors together
  const std::string& index_text() const noexcept;  // of the index, as it was when it was opened

  // Null when there is no such tensor.
  const CheckpointTensor* find(std::string_view name) const noexcept;

  // For those who have read the bytes and are about to trust them. Io, naming the file, when some
  // of what was read had been cut off or could not be read from the disk.
  Status check_whole() const;
  // Also Io if a file was written to since open(), judging by its size and times.
  Status check_unchanged() const;

 private:
  struct Impl;
  explicit Checkpoint(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace deltawire
