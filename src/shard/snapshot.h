// What a trainer rank sent last, in host memory: what the next changes are against.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"
#include "deltawire/shard.h"
#include "shard/items.h"

namespace deltawire::shard {

// Boxes that several edges have are there once. Names of states: see Hello.
class Snapshot {
 public:
  static Result<Snapshot> create(const ShardPlan& plan, std::span<const ShardEdge* const> edges,
                                 uint64_t slice_bytes);

  uint64_t state() const noexcept { return state_; }  // 0: holds nothing
  uint64_t size_bytes() const noexcept { return size_bytes_; }
  // What it holds of an item of the edge-th edge.
  Bytes contents(size_t edge, const Item& item) const;

  // What an item was found to be, by the digest of its new contents; none: as it was. Not from
  // several threads.
  void note(size_t edge, const Item& item, const std::optional<Digest>& digest);
  void forget_notes();
  // Reads what was noted to have changed. The snapshot is `state` then; or nothing, with Io, when
  // the tensors are not what was noted any more.
  Status advance(const ShardPlan& plan, const ReadShard& read, uint64_t state, ThreadPool* pool);

 private:
  struct Part {
    uint64_t begin = 0, size_bytes = 0;
    Box box;
    std::optional<Digest> noted;
  };
  struct Entry {
    uint32_t tensor = 0;
    std::shared_ptr<uint8_t[]> bytes;
    std::vector<Part> parts;  // as items_of() cuts them
  };
  Part& part_of(size_t edge, const Item& item);

  std::vector<Entry> entries_;
  std::vector<std::vector<uint32_t>> entry_of_;  // by edge, by move
  uint64_t state_ = 0, size_bytes_ = 0;
  bool unsteady_ = false;  // an item was found to be two things
};

}  // namespace deltawire::shard
