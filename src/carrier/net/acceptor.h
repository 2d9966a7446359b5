// Those who call at a listening socket, until they have proved that they know the secret. Strangers
// cost little: so many at once, a few bytes each, and none for longer than its time. Who comes when
// all places are taken gets that of the one who waits longest: an honest caller needs a moment
// only.
#pragma once

#include <poll.h>

#include <deque>
#include <string>
#include <vector>

#include "carrier/net/handshake.h"
#include "carrier/net/socket.h"

namespace deltawire {

struct Caller {
  Socket socket;
  Handshake handshake;   // done
  std::string received;  // of its next step
  std::string from;      // address
};

class Acceptor {
 public:
  Acceptor(Socket listener, Secret secret, std::string purpose, double timeout_seconds);

  // Adds what to wait for.
  void poll_for(std::vector<pollfd>* polled) const;
  // The same entries, after poll(): those who are through. Never blocks.
  std::vector<Caller> advance(const pollfd* polled);
  // How many entries poll_for() added.
  size_t num_polled() const { return waiting_.size() + 1; }

 private:
  struct Waiting {
    Caller caller;
    Deadline deadline;
  };
  void accept_some();

  static constexpr size_t kMostWaiting = 256;
  static constexpr int kMostAtOnce = 64;

  Socket listener_;
  Secret secret_;
  std::string purpose_;
  double timeout_seconds_;
  std::deque<Waiting> waiting_;  // oldest first
};

}  // namespace deltawire
