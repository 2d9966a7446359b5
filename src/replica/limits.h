// Limits: what a replica fetches from an untrusted store, and how much memory and disk it uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "chain/plan.h"
#include "deltawire/status.h"

namespace deltawire {

uint64_t weights_bytes(const Schema& schema);

// Corruption, naming the hop, if its parts are larger than any codec makes them for weights of this
// size, or if a whole checkpoint has more than its tensors and headers need. Side files are checked
// when manifests are read. `local_bytes`: the size of the held weights, which may be larger.
Status check_hop_sizes(std::span<const Hop> hops, const Schema& schema, uint64_t local_bytes);

// The file name of an object of a whole version: "full/0000000012-9f3c/config.json" gives
// "config.json". Corruption if the name leads outside its folder.
Result<std::string> checkpoint_file_of(const PartRef& part);

// How the memory limit is divided.

inline constexpr uint64_t kUsualMemory = uint64_t{2} << 30;

struct StageMemory {
  uint64_t wave_bytes;    // of tensors in work at the same time, with copies and differences
  uint64_t large_tensor;  // larger copies are kept in files
  uint64_t list_bytes;    // of positions and values while a sparse step is decoded
  uint64_t slab_bytes;    // of one entry, and of the entries that are written together
};

inline StageMemory share_stage_memory(uint64_t limit) {
  return {limit / 4, limit / 8, limit / 16, limit / 32};
}

// For a replica of tensors: memory for what waits for commit(), and for the work.
struct TensorMemory {
  uint64_t waiting_bytes;
  StageMemory work;
};

inline TensorMemory share_tensor_memory(uint64_t limit) {
  return {limit / 2, share_stage_memory(limit / 2)};
}

// Bytes that wait for commit(): in memory up to a limit, the rest in files whose pages the kernel
// can evict.

// Thread-safe.
class SpillSpace {
 public:
  // Files are created in `folder` and removed by the destructor.
  SpillSpace(std::filesystem::path folder, uint64_t memory_bytes)
      : folder_(std::move(folder)), memory_bytes_(memory_bytes) {}

  // Returns uninitialised space that is valid until clear(). Io when the disk is full.
  Result<MutableBytes> take(uint64_t size_bytes);
  // Keeps the bytes until clear().
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
