#include "carrier/net/acceptor.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/log.h"

namespace deltawire {
namespace {

// What the other end says next. False: more must come first.
Result<bool> take_step(Caller& caller) {
  char buffer[64];
  const size_t wanted = std::min(caller.handshake.wants() - caller.received.size(), sizeof buffer);
  const ssize_t n = ::recv(caller.socket.get(), buffer, wanted, MSG_DONTWAIT);
  if (n < 0 && is_transient(errno)) return false;
  if (n < 0) return unavailable(std::strerror(errno));
  if (n == 0) return unavailable("it closed the connection");
  caller.received.append(buffer, size_t(n));
  std::string reply;
  const Status status = caller.handshake.advance(&caller.received, &reply);
  // All that is ever said fits into an empty socket buffer.
  const ssize_t sent = reply.empty() ? 0
                                     : ::send(caller.socket.get(), reply.data(), reply.size(),
                                              MSG_NOSIGNAL | MSG_DONTWAIT);
  if (!status.ok()) return status;
  if (sent != ssize_t(reply.size())) return unavailable("it takes no answer");
  return caller.handshake.done();
}

void note_refused(const Caller& caller, const Status& why) {
  const bool knocks = why.code() == Code::kInvalidArgument || why.code() == Code::kUnsupported;
  log_event(knocks ? LogLevel::kWarning : LogLevel::kDebug, "carrier.refused",
            {{"from", caller.from}, {"reason", why.message()}});
}

}  // namespace

Acceptor::Acceptor(Socket listener, Secret secret, std::string purpose, double timeout_seconds)
    : listener_(std::move(listener)),
      secret_(std::move(secret)),
      purpose_(std::move(purpose)),
      timeout_seconds_(timeout_seconds) {}

void Acceptor::poll_for(std::vector<pollfd>* polled) const {
  polled->push_back({listener_.get(), POLLIN, 0});
  for (const Waiting& one : waiting_) polled->push_back({one.caller.socket.get(), POLLIN, 0});
}

std::vector<Caller> Acceptor::advance(const pollfd* polled) {
  std::vector<Caller> through;
  std::deque<Waiting> still;
  size_t index = 1;
  for (Waiting& one : waiting_) {
    const bool ready = polled[index++].revents != 0;
    Result<bool> done = ready ? take_step(one.caller) : false;
    if (done.ok() && !*done && one.deadline.over()) done = unavailable("it said nothing in time");
    if (!done.ok()) {
      note_refused(one.caller, done.status());
    } else if (*done) {
      through.push_back(std::move(one.caller));
    } else {
      still.push_back(std::move(one));
    }
  }
  waiting_ = std::move(still);
  if (polled[0].revents != 0) accept_some();
  return through;
}

void Acceptor::accept_some() {
  for (int i = 0; i < kMostAtOnce; ++i) {
    auto socket = accept_next(listener_.get());
    if (!socket.ok() && waiting_.empty()) {
      // No descriptors: not at full speed until there are some.
      log_event(LogLevel::kWarning, "carrier.accept_failed",
                {{"error", socket.status().message()}});
      ::poll(nullptr, 0, 50);
      return;
    }
    if (!socket.ok() || waiting_.size() >= kMostWaiting) {
      note_refused(waiting_.front().caller, unavailable("others want its place"));
      waiting_.pop_front();
    }
    if (!socket.ok()) continue;
    if (!socket->ok()) return;
    const std::string from = remote_address(socket->get());
    waiting_.push_back({{std::move(*socket), Handshake::answering(secret_, purpose_), {}, from},
                        Deadline(timeout_seconds_)});
  }
}

}  // namespace deltawire
