// The changes of an edge's boxes, as the bodies of rounds.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "shard/items.h"
#include "shard/messages.h"
#include "shard/shard.h"
#include "shard/snapshot.h"

namespace deltawire::shard {

// One edge of a trainer rank, for the time of a version.
struct OutEdge {
  size_t number = 0;  // in the rank's list
  const ShardEdge* edge = nullptr;
  unsigned peer = 0;  // in the group
  bool whole = false;
  uint64_t base = 0;  // else: the state that changes are against
  std::vector<Item> items;
  size_t next = 0;           // that was not yet coded
  uint64_t round_bytes = 0;  // of contents in a round, at most, unless one item is larger
  bool done = false;         // its last round was sent

  // Of the round that is being made.
  RoundHead head;
  std::vector<uint8_t> body;
};

struct EncodeReport {
  uint64_t contents_bytes = 0, num_changed = 0;
};

// Makes the next round of all edges that have one. Reads each item once.
Status encode_round(const ShardPlan& plan, const ReadShard& read, Snapshot* snapshot,
                    std::span<OutEdge> edges, uint64_t round, ThreadPool* pool,
                    EncodeReport* report);

// Of a body, so that a stream out of step is noticed before it is decoded.
uint64_t body_checksum(Bytes body);

}  // namespace deltawire::shard
