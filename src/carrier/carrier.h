// How bytes go between processes without a store: a group of ranks, over TCP or any process group
// of torch. Bytes are in host memory; a carrier never learns what they are.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

// Bytes for one other rank. Empty ones are not sent.
struct ToRank {
  unsigned rank = 0;
  std::span<const uint8_t> bytes;
};

// Room for the bytes of one other rank: exactly as many as it sends.
struct FromRank {
  unsigned rank = 0;
  std::span<uint8_t> bytes;
};

// A fixed group: who comes or goes makes a new one. All ranks make the same calls in the same
// order, and both ends name the same sizes: they agree on those before (Hub), or by a message of a
// size that is known. One call at a time.
//
// Every call ends within `timeout_seconds`. Unavailable names the rank that is gone or late, as far
// as the backend can tell; lost() then says so too, and most groups are of no use afterwards.
class Carrier {
 public:
  virtual ~Carrier() = default;

  virtual std::string name() const = 0;  // "tcp", "gloo", "nccl": for messages and reports
  virtual unsigned rank() const noexcept = 0;
  virtual unsigned size() const noexcept = 0;

  // Sends and receives, all at once, in any order: no order of ranks can make it hang. Several
  // spans for one rank arrive in the order of the list. Waits until all is done.
  virtual Status exchange(std::span<const ToRank> to, std::span<const FromRank> from,
                          double timeout_seconds) = 0;
  // The bytes of `root` to every other rank; all ranks call it.
  virtual Status broadcast(unsigned root, std::span<uint8_t> bytes, double timeout_seconds) = 0;

  // Ranks that were gone or late, ascending.
  virtual std::vector<unsigned> lost() const { return {}; }
  // Ends what another thread waits for in a call, with Cancelled. The group is of no use
  // afterwards.
  virtual void abort() noexcept = 0;
};

}  // namespace deltawire
