// Room for tensors that are made or kept beside those of a checkpoint: in memory, or, for models
// larger than that, in a file that the system writes out when it needs the room.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "deltawire/status.h"

namespace deltawire {

// Kept from one use to the next: fresh memory costs as much as what is done with it.
class Scratch {
 public:
  // `memory_bytes`: more than this goes to a file in `folder`; 0: a quarter of the machine's
  // memory.
  Scratch(std::filesystem::path folder, uint64_t memory_bytes);

  // One array for each size, undefined contents; valid until the next call.
  Result<std::vector<MutableBytes>> make(std::span<const uint64_t> sizes);
  // Io when bytes of the file were lost: its disk is full.
  Status check() const;
  bool in_file() const noexcept { return file_.has_value(); }

 private:
  Status reserve(uint64_t bytes);

  const std::filesystem::path folder_;
  const uint64_t memory_bytes_;
  std::shared_ptr<uint8_t[]> memory_;
  std::optional<MutableFile> file_;
  MutableBytes room_;
};

}  // namespace deltawire
