// Tensors that were decoded before their version was committed: a publisher sends parts while it
// still encodes the rest. Nothing here is trusted, and no caller sees it: take() returns only what
// leads from the digest that is held to the digest in the manifest.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "replica/journal_redo.h"
#include "replica/limits.h"

namespace deltawire {

// The tensors that a replica holds, to decode from.
struct HeldNow {
  std::vector<TensorView> tensors;  // in memory or in files, sorted by name
  std::optional<Checkpoint> files;  // the files that the tensors point into, if any
  StageMemory memory = share_stage_memory(kUsualMemory);
};

// add() from one thread, take() from any.
class Ahead {
 public:
  // Decoded tensors take at most this much memory. What does not fit is decoded again when it is
  // needed.
  explicit Ahead(uint64_t memory_bytes) : memory_bytes_(memory_bytes) {}
  uint64_t memory_bytes() const noexcept { return memory_bytes_; }

  // Decodes the sparse changes of whole tensors in `part`, which belongs to `version`. Drops what
  // was kept for another version. Returns the number of tensors decoded.
  uint64_t add(uint64_t version, Bytes part, const HeldNow& held, ThreadPool* pool);
  // Returns the changes from one digest to the other, once; none if they were not decoded.
  std::optional<std::vector<RedoEntry>> take(std::string_view tensor, const Digest& before,
                                             const Digest& after);
  void drop_up_to(uint64_t version);
  uint64_t num_taken() const;  // of all versions so far

 private:
  struct Decoded {
    Digest before, after;
    std::vector<RedoEntry> entries;
    uint64_t size_bytes = 0;
  };
  using Tensors = std::map<std::string, Decoded, std::less<>>;

  bool keep(const std::string& tensor, Decoded decoded);
  void erase(Tensors::iterator at);

  const uint64_t memory_bytes_;
  mutable std::mutex mutex_;
  std::optional<uint64_t> version_;
  Tensors tensors_;
  uint64_t used_ = 0, num_taken_ = 0;
};

}  // namespace deltawire
