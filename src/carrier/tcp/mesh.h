// Connections between all ranks of a group, made once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "carrier/net/acceptor.h"
#include "carrier/tcp/socket_carrier.h"

namespace deltawire {

// Where one rank is called by others.
struct MeshGate {
  std::string address;
  std::unique_ptr<Acceptor> acceptor;
};
Result<MeshGate> open_gate(const std::string& host, unsigned rank, double timeout_seconds,
                           const Secret& secret);

// Rank 0's side; the gate may have been open for long.
// `missing`: after a failure, the ranks that did not come or did not go on.
Result<std::vector<RankSocket>> gather_mesh(MeshGate& gate, unsigned size, const Deadline& deadline,
                                            std::vector<unsigned>* missing);
// The side of every other rank.
Result<std::vector<RankSocket>> enter_mesh(const std::string& address, unsigned rank, unsigned size,
                                           const Secret& secret, const Deadline& deadline);

}  // namespace deltawire
