// The messages of one call over NCCL, cut so that both ends cut alike: NCCL wants a send and its
// receive to be of one size. What is sent together is a round.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/carrier.h"

namespace deltawire::nccl {

struct Message {
  enum class Kind : uint8_t { kSend, kReceive, kBroadcast } kind = Kind::kSend;
  unsigned peer = 0;              // of a broadcast: its root
  std::span<uint8_t> bytes = {};  // only read, of what goes out
};
using Round = std::vector<Message>;

// In each round each rank gets the next of its spans, in order, as long as they are `peer_bytes` in
// all; longer spans are cut. A message is in the same round at both ends, however many others each
// has, so no order of rounds can make ranks wait for each other in a ring.
std::vector<Round> exchange_rounds(std::span<const ToRank> to, std::span<const FromRank> from,
                                   uint64_t peer_bytes);
std::vector<Round> broadcast_rounds(unsigned root, std::span<uint8_t> bytes, uint64_t peer_bytes);

}  // namespace deltawire::nccl
