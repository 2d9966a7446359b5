// A carrier over one stream socket to each other rank, however those were joined.
//
// A rank that goes, or is late, ends the connection to it alone: exchange() finishes with the
// others, then says Unavailable, and goes on to work among the rest. broadcast() wants all ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "carrier/carrier.h"
#include "carrier/net/socket.h"

namespace deltawire {

struct RankSocket {
  Socket socket;
  std::string place;  // an address, for messages; it may be empty
};

// `sockets[r]` leads to rank r; that of `rank` itself is not used.
Result<std::unique_ptr<Carrier>> make_socket_carrier(std::string name, unsigned rank,
                                                     std::vector<RankSocket> sockets);

// All ranks in this process, joined by socket pairs: each for a thread of its own. Every rank sees
// the others go when their carriers are destroyed.
Result<std::vector<std::unique_ptr<Carrier>>> make_local_group(unsigned size);

}  // namespace deltawire
