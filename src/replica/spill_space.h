// Bytes that wait for commit(): in memory as long as they fit into a limit, the others in files
// whose pages the kernel can write out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "deltawire/status.h"

namespace deltawire {

// Thread-safe.
class SpillSpace {
 public:
  // Files are in `folder`, and have gone when this has.
  SpillSpace(std::filesystem::path folder, uint64_t memory_bytes)
      : folder_(std::move(folder)), memory_bytes_(memory_bytes) {}

  // Room for so many bytes, uninitialised, until clear(). Io when the disk is full.
  Result<MutableBytes> take(uint64_t size_bytes);
  // Bytes that stay until clear().
  Result<Bytes> keep(std::vector<uint8_t> bytes);
  void clear() noexcept;

  uint64_t in_memory() const noexcept { return used_; }
  uint64_t in_files() const noexcept { return spilled_; }

 private:
  Result<MutableBytes> take_from_file(uint64_t size_bytes);

  const std::filesystem::path folder_;
  const uint64_t memory_bytes_;
  std::mutex mutex_;
  uint64_t used_ = 0, spilled_ = 0;
  std::vector<std::unique_ptr<uint8_t[]>> rooms_;
  std::vector<std::vector<uint8_t>> kept_;
  std::vector<MutableFile> files_;
  uint64_t file_used_ = 0;  // of the last file
};

}  // namespace deltawire
