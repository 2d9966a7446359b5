// Deltas against the weights that an engine's worker serves with, as an exchange that swaps the new
// values in: live arrays are read, never written.
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

// A tensor of which a worker holds boxes, in host memory or on one GPU. Boxes do not overlap; a
// worker that holds elements twice lists the tensor twice.
struct HeldBoxes : TensorSpec {
  std::vector<LocalBox> boxes;
  Memory memory = Memory::kHost;
};

struct StageOptions {
  std::optional<uint64_t> device_bytes;  // as ExchangeOptions
  // Copies of weights and tables, of the GPU's memory and as much of the host's. A tensor that
  // cannot be worked on in parts takes more if it is larger. None: a sixteenth of what is free on
  // the GPU, 2 GiB at most; 256 MiB of the host's.
  std::optional<uint64_t> scratch_bytes;
  unsigned threads = 0;  // 0: one per core; of a stager's first call
};

struct StagedDeltas {
  Exchange exchange;
  std::vector<std::string> changed;  // tensors that the deltas change, held or not; sorted
  // Held tensors whose payloads need weights that are not held: a box cuts a tile, or holds a part
  // of what is coded as one block. Nothing of them is in the exchange; sorted.
  std::vector<std::string> undecoded;
};

// Keeps threads and the GPU's scratch memory from call to call: to allocate and to free there makes
// all that the engine computes wait. One call at a time.
class DeltaStager {
 public:
  DeltaStager();
  ~DeltaStager();
  DeltaStager(DeltaStager&&) noexcept;
  DeltaStager& operator=(DeltaStager&&) noexcept;

  // A delta whose parts are in these files, read side by side. `threads`: of a stager's first call.
  Result<Delta> open(const std::vector<PartFile>& parts, unsigned threads);
  // `deltas` in order, each leading on from the one before. Fails with BaseMismatch for a held
  // tensor that has another dtype or shape in a delta, or is removed; with Corruption, naming the
  // part, for a bad payload. Nobody may write to held arrays meanwhile. Waits.
  Result<StagedDeltas> stage(std::span<const Delta> deltas, std::span<const HeldBoxes> held,
                             const StageOptions& options = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
