// What a trainer rank sent last, in host memory: what the next changes are against.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"
#include "shard/history.h"
#include "shard/items.h"
#include "shard/shard.h"

namespace deltawire::shard {

// Boxes that several edges have are there once. Names of states: see Hello.
class Snapshot {
 public:
  static Result<Snapshot> create(const ShardPlan& plan, std::span<const ShardEdge* const> edges,
                                 uint64_t slice_bytes, std::optional<uint64_t> history_bytes);

  uint64_t size_bytes() const noexcept { return size_bytes_; }
  bool is_empty() const noexcept { return state_ == 0; }
  // That changes can be coded against, the newest first; none: it holds nothing.
  std::vector<uint64_t> states() const;
  bool has_history() const noexcept { return history_.most_bytes() > 0; }
  // What it holds of an item of the edge-th edge.
  Bytes contents(size_t edge, const Item& item) const;
  // What that was in one of its states; `room` is for what has to be made.
  Bytes contents_in(uint64_t state, size_t edge, const Item& item, unsigned width,
                    std::vector<uint8_t>* room) const;

  // What an item was found to be, by the digest of its new contents; none: as it was. Not from
  // several threads.
  void note(size_t edge, const Item& item, const std::optional<Digest>& digest);
  void forget_notes();
  // Reads what was noted to have changed, and what nobody looked at. The snapshot is `state` then;
  // or nothing, with Io, when the tensors are not what was noted any more.
  Status advance(const ShardPlan& plan, const ReadShard& read, uint64_t state, ThreadPool* pool);

 private:
  struct Part {
    uint64_t begin = 0, size_bytes = 0;
    Box box;
    size_t number = 0;     // of all parts
    bool is_seen = false;  // in this version
    std::optional<Digest> noted;
  };
  struct Entry {
    uint32_t tensor = 0;
    std::shared_ptr<uint8_t[]> bytes;
    std::vector<Part> parts;  // as items_of() cuts them
  };
  static size_t part_in(const Entry& entry, const Item& item);
  static Status advance_part(const ShardPlan& plan, const ReadShard& read, const Entry& entry,
                             const Part& part, History::Step* step);

  std::vector<Entry> entries_;
  std::vector<std::vector<uint32_t>> entry_of_;  // by edge, by move
  uint64_t state_ = 0, size_bytes_ = 0;
  size_t num_parts_ = 0;
  History history_;
  bool changing_ = false;  // an item was found to be two things
};

}  // namespace deltawire::shard
