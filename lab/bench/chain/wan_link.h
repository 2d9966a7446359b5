// A wide-area link on loopback: a TCP relay with a rate and a delay, shared by all connections.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "deltawire/status.h"

namespace deltawire::cli {

// Bytes of all connections queue for one line per direction, `bytes_per_second` wide, and arrive
// half a round trip later. A new connection waits a round trip for its first byte, as a handshake
// would. Nothing is lost. Ends when destroyed.
class WanLink {
 public:
  // `target`: "host:port", an IPv4 address.
  // `slow_start`: each connection and direction begins with ten segments in flight, doubles that
  // each round trip, and begins again after a pause, as TCP does by default. Without it connections
  // are as fast as the line from their first byte.
  static Result<WanLink> start(const std::string& target, double bytes_per_second,
                               double round_trip_seconds, bool slow_start);
  ~WanLink();
  WanLink(WanLink&&) noexcept;

  uint16_t port() const noexcept;
  uint64_t bytes_moved() const noexcept;  // both ways

 private:
  struct Impl;
  explicit WanLink(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire::cli
