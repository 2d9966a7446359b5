// A round's bodies to what is to be written, checked.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "shard/items.h"
#include "shard/messages.h"
#include "shard/shard.h"

namespace deltawire::shard {

// One edge of an engine rank, for the time of a version.
struct InEdge {
  const ShardEdge* edge = nullptr;
  unsigned peer = 0;  // in the group
  bool whole = false;
  std::vector<Item> items;
  size_t next = 0;  // items before it came, or did not change
  uint64_t num_records = 0;
  uint64_t most_body_bytes = 0;
  bool done = false;
};

// A round of one edge, as it came.
struct Arrived {
  InEdge* edge = nullptr;
  RoundHead head;
  std::vector<uint8_t> body;
};

// Adds to *staged. Corruption, naming tensor and trainer rank, for anything that is not what the
// edge's items can be.
Status decode_round(const ShardPlan& plan, const ReadShard& read, std::span<Arrived> round,
                    ThreadPool* pool, std::vector<StagedShard>* staged);

}  // namespace deltawire::shard
