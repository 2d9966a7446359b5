#include "carrier/net/call.h"

#include <poll.h>

#include <algorithm>

namespace deltawire {
namespace {

Result<Called> call_once(const std::string& address, const Secret& secret, std::string_view purpose,
                         uint64_t caller, const Deadline& deadline, std::string_view place) {
  DW_ASSIGN_OR_RETURN(Socket socket, connect_to(address, deadline));
  Called called{std::move(socket), Handshake::calling(secret, purpose, caller)};
  const int fd = called.socket.get();
  DW_RETURN_IF_ERROR(send_all(fd, called.handshake.begin(), deadline, place));
  while (!called.handshake.done()) {
    DW_ASSIGN_OR_RETURN(std::string received,
                        receive_exactly(fd, called.handshake.wants(), deadline, place));
    std::string reply;
    Status status = called.handshake.advance(&received, &reply);
    if (!status.ok()) return std::move(status).at(place);
    DW_RETURN_IF_ERROR(send_all(fd, reply, deadline, place));
  }
  return called;
}

}  // namespace

Result<Called> call_until(const std::string& address, const Secret& secret,
                          std::string_view purpose, uint64_t caller, const Deadline& deadline,
                          std::string_view place) {
  for (double pause = 0.02;; pause = std::min(pause * 2, 0.5)) {
    // Who takes the connection and says nothing may be an old one: another try may fare better.
    auto called = call_once(address, secret, purpose, caller, deadline.sooner(10), place);
    if (called.ok()) return called;
    if (called.status().code() != Code::kUnavailable || deadline.over()) return called;
    if (stop_requested()) return cancelled(std::string(place) + ": stopped");
    ::poll(nullptr, 0, int(std::min(pause, deadline.left()) * 1000));
  }
}

}  // namespace deltawire
