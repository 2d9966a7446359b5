// Stages deltas against the weights that an engine's worker serves. The result is an exchange that
// swaps in the new values. Live arrays are read, never written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "delta/delta_reader.h"
#include "delta/local_boxes.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"
#include "live/exchange.h"

namespace deltawire {

// A tensor of which a worker holds boxes, in host memory or on one GPU. Boxes must not overlap; a
// worker that holds elements twice lists the tensor twice.
struct HeldBoxes : TensorSpec {
  std::vector<LocalBox> boxes;
  Memory memory = Memory::kHost;
};

struct StageOptions {
  std::optional<uint64_t> device_bytes;  // see ExchangeOptions
  // Memory for copies of weights and tables, on the GPU and again on the host. A larger tensor that
  // cannot be split takes more. None: a sixteenth of the free GPU memory, at most 2 GiB, and 256
  // MiB on the host.
  std::optional<uint64_t> scratch_bytes;
  unsigned threads = 0;  // 0: one per core; only the first call of a stager counts
};

struct StagedDeltas {
  Exchange exchange;
  std::vector<std::string> changed;  // tensors that the deltas change, held or not; sorted
  // Held tensors that could not be decoded, because their payloads need weights that are not held:
  // a box cuts a tile, or holds only part of a block. The exchange does not contain them. Sorted.
  std::vector<std::string> undecoded;
};

// Keeps threads and GPU scratch memory between calls, because allocating and freeing GPU memory
// stalls the engine. One call at a time.
class DeltaStager {
 public:
  DeltaStager();
  ~DeltaStager();
  DeltaStager(DeltaStager&&) noexcept;
  DeltaStager& operator=(DeltaStager&&) noexcept;

  // Opens a delta from these files, reading them in parallel. `threads` counts only for the first
  // call.
  Result<Delta> open(const std::vector<PartFile>& parts, unsigned threads);
  // Stages `deltas`, each of which continues the one before. BaseMismatch if a held tensor has
  // another dtype or shape in a delta, or is removed; Corruption, naming the part, for a bad
  // payload. Nobody may write to the held arrays meanwhile. Waits.
  Result<StagedDeltas> stage(std::span<const Delta> deltas, std::span<const HeldBoxes> held,
                             const StageOptions& options = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
