// Tensors that were decoded before their version was committed: what a publisher sends arrives
// while it still encodes the rest. Nothing here is believed, and nothing of it is ever seen: what
// is taken is what a manifest says by digest, onto what is held then.
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

// What a replica holds, to decode from.
struct HeldNow {
  std::vector<TensorView> tensors;  // in memory or in files, sorted by name
  std::optional<Checkpoint> files;  // what they point into, if so
  StageMemory memory = share_stage_memory(kUsualMemory);
};

// add() from one thread, take() from any.
class Ahead {
 public:
  // What is decoded takes no more; what does not fit is decoded when it is wanted.
  explicit Ahead(uint64_t memory_bytes) : memory_bytes_(memory_bytes) {}
  uint64_t memory_bytes() const noexcept { return memory_bytes_; }

  // Decodes the sparse changes of whole tensors in `part`, of `version`; what was kept of another
  // version goes. Returns how many there were.
  uint64_t add(uint64_t version, Bytes part, const HeldNow& held, ThreadPool* pool);
  // What leads from the one digest to the other; none: it is still to be decoded. Once.
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
