// What a replica may fetch from a store that is not trusted, and how much memory and disk it may
// use.
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

// Corruption, naming the hop, when its parts are larger than any codec makes them for weights of
// this size, or when a whole checkpoint has more than its tensors and headers need. Files beside
// the weights are checked where manifests are read. `local_bytes`: weights that are there already
// and may be larger.
Status check_hop_sizes(std::span<const Hop> hops, const Schema& schema, uint64_t local_bytes);

// The plain file name of an object of a version stored whole: "full/0000000012-9f3c/config.json" is
// "config.json". Corruption when it would not stay in its folder.
Result<std::string> checkpoint_file_of(const PartRef& part);

// How what a replica may take is shared among what it holds at once.

inline constexpr uint64_t kUsualMemory = uint64_t{2} << 30;

struct StageMemory {
  uint64_t wave_bytes;    // of tensors that are worked on at once: their copies and what differs
  uint64_t large_tensor;  // copies of larger ones live in a file
  uint64_t list_bytes;    // of positions and values while a sparse step is decoded
  uint64_t slab_bytes;    // of one entry, and of the entries that are written together
};

inline StageMemory share_stage_memory(uint64_t limit) {
  return {limit / 4, limit / 8, limit / 16, limit / 32};
}

// Of a replica of tensors: what waits for commit(), and what is worked with meanwhile.
struct TensorMemory {
  uint64_t waiting_bytes;
  StageMemory work;
};

inline TensorMemory share_tensor_memory(uint64_t limit) {
  return {limit / 2, share_stage_memory(limit / 2)};
}

// Bytes that wait for commit(): in memory as long as they fit into a limit, the others in files
// whose pages the kernel can write out.

// Thread-safe.
class SpillSpace {
 public:
  // Files are in `folder`, and have gone when this has.
  SpillSpace(std::filesystem::path folder, uint64_t memory_bytes)
      : folder_(std::move(folder)), memory_bytes_(memory_bytes) {}

  // Space for so many bytes, uninitialised, until clear(). Io when the disk is full.
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
