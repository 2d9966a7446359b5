// Many spans of bytes over many connections at once, by one loop around poll(): no order of ranks
// can make it hang, and a rank that goes does not keep the others from their bytes.
#pragma once

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "carrier/net/deadline.h"
#include "carrier/net/socket.h"
#include "carrier/net/wake.h"
#include "deltawire/status.h"

namespace deltawire {

// Bytes that are passed on while they come in.
struct Relay {
  uint64_t arrived = 0;
  std::optional<unsigned> blamed;  // the rank for which no more will come
};

// A span goes over a connection as its length (8 bytes) and its bytes. An end that expects another
// length says so, and does not take the rest for something else. In place of a length may stand
// that the sender gave up, and because of which rank.
struct Outgoing {
  Bytes bytes;
  const Relay* relay = nullptr;  // goes when `relay_bytes` have arrived there; null: at once
  uint64_t relay_bytes = 0;
  uint64_t done = 0;  // with the length before them
};

struct Incoming {
  MutableBytes bytes;
  Relay* relay = nullptr;  // counts them, when all are there
  uint64_t done = 0;
  uint8_t length[8] = {};
};

// A connection to one other rank, and what is still to go over it. Closed when half of a span is
// under way and no more will come: nothing that follows could be understood.
struct RankLink {
  unsigned rank = 0;
  Socket socket;
  std::string place;  // "tcp: rank 3 (10.0.0.3:4711)"
  std::deque<Outgoing> out;
  std::deque<Incoming> in;
  Status failure;                  // of this call, or of the one that closed it
  std::optional<unsigned> blamed;  // gone or late: this rank, or one further on
};

// Moves all that is queued, as far as the other ranks are there. Each link has its own failure;
// what fails for another reason (aborted, stopped) is returned, and then all are closed.
Status run_transfers(std::vector<RankLink*>& links, const Wake& wake,
                     const std::atomic<bool>& aborted, double timeout_seconds);

}  // namespace deltawire
