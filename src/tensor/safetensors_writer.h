// Writes one safetensors file as a stream, whole or not at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "deltawire/status.h"
#include "tensor/safetensors.h"

namespace deltawire {

// create() writes the header beside `path`; write() takes the tensors' bytes in the order given to
// create(), in pieces of any size; commit() makes the file appear under its name, replacing what
// was there, synced to disk. Destroyed without a successful commit(), it leaves nothing behind.
// Holds no tensor bytes. One thread at a time.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const std::filesystem::path& path,
                                          std::vector<TensorSpec> tensors,
                                          const Metadata& metadata = {});

  // The next bytes of the data; a piece may end one tensor and begin another. InvalidArgument, and
  // nothing written, when it goes past the last tensor. After Io the file cannot be committed.
  Status write(Bytes piece);

  // The whole of the next tensor, which must be `name` and of exactly this size: for callers who
  // want their order checked.
  Status write_tensor(std::string_view name, Bytes bytes);

  uint64_t data_bytes() const noexcept { return ends_.empty() ? 0 : ends_.back(); }
  uint64_t remaining_bytes() const noexcept { return data_bytes() - written_; }

  // InvalidArgument unless every byte was given, naming the first tensor that is short. May succeed
  // once.
  Status commit();

 private:
  SafetensorsWriter(std::filesystem::path path, AtomicFile file, std::vector<TensorSpec> tensors,
                    std::vector<uint64_t> ends);
  Status invalid(std::string message) const;
  uint64_t begin_of(size_t tensor) const { return tensor == 0 ? 0 : ends_[tensor - 1]; }

  std::filesystem::path path_;
  AtomicFile file_;
  std::vector<TensorSpec> tensors_;
  std::vector<uint64_t> ends_;  // of each tensor, from the start of the data
  uint64_t written_ = 0;
  size_t next_ = 0;  // for write_tensor: the first tensor that is not yet whole
  bool open_ = true;
};

}  // namespace deltawire
