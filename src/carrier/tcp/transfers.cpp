#include "carrier/tcp/transfers.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdio>

namespace deltawire {
namespace {

constexpr uint64_t kLengthBytes = sizeof(Incoming::length);
constexpr uint64_t kGaveUp = uint64_t{1} << 63;  // in place of a length, with a rank
// At one time: small enough that no connection keeps the others waiting.
constexpr uint64_t kSliceBytes = uint64_t{1} << 20;
constexpr int kSlicesAtOnce = 4;  // lengths count too

bool gave_up(const Outgoing& span) {
  return span.relay != nullptr && span.relay->blamed && span.relay->arrived < span.relay_bytes;
}

bool can_go(const Outgoing& span) {
  return span.relay == nullptr || span.relay->arrived >= span.relay_bytes || gave_up(span);
}

// Nothing more comes over this connection in this call: what was to be passed on will not be.
void end_incoming(RankLink& link, unsigned blamed) {
  for (const Incoming& span : link.in) {
    if (span.relay != nullptr) span.relay->blamed = blamed;
  }
  link.in.clear();
}

void close_link(RankLink& link, Status why) {
  link.failure = std::move(why);
  link.out.clear();
  end_incoming(link, link.rank);
  link.socket.close();
}

void lose_link(RankLink& link, const std::string& why) {
  link.blamed = link.rank;
  close_link(link, unavailable(link.place + why));
}

// One slice of the first span, or that there is none. True: all of it went.
bool send_slice(RankLink& link) {
  Outgoing& span = link.out.front();
  const bool ends = gave_up(span);
  const uint64_t size = ends ? 0 : span.bytes.size();
  uint8_t length[kLengthBytes];
  store_le<uint64_t>(length, ends ? kGaveUp | *span.relay->blamed : size);
  iovec parts[2];
  size_t count = 0;
  const uint64_t of_length = span.done < kLengthBytes ? kLengthBytes - span.done : 0;
  if (of_length > 0) parts[count++] = {length + span.done, size_t(of_length)};
  const uint64_t at = span.done + of_length - kLengthBytes;
  if (at < size) {
    parts[count++] = {const_cast<uint8_t*>(span.bytes.data()) + at,
                      size_t(std::min(size - at, kSliceBytes))};
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t n = ::sendmsg(link.socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && is_transient(errno)) return false;
  if (n < 0) {
    lose_link(link, std::string(" is gone: ") + std::strerror(errno));
    return false;
  }
  span.done += uint64_t(n);
  const size_t asked = parts[0].iov_len + (count > 1 ? parts[1].iov_len : 0);
  if (span.done < kLengthBytes + size) return size_t(n) == asked;
  if (ends) {
    link.out.clear();  // all that followed would have come the same way
  } else {
    link.out.pop_front();
  }
  return true;
}

// The other end has said how long the span is.
void check_length(RankLink& link, const Incoming& span) {
  const uint64_t length = load_le<uint64_t>(span.length);
  if ((length & kGaveUp) != 0) {
    link.blamed = unsigned(length & 0xffffffff);
    link.failure = unavailable(link.place + " has nothing to pass on: rank " +
                               std::to_string(*link.blamed) + " is gone or late");
    end_incoming(link, *link.blamed);
  } else if (length != span.bytes.size()) {
    close_link(link, corruption(link.place + " sends " + std::to_string(length) + " bytes where " +
                                std::to_string(span.bytes.size()) + " are expected"));
  }
}

// One slice of the first span. True: all of it came.
bool receive_slice(RankLink& link) {
  Incoming& span = link.in.front();
  const bool in_length = span.done < kLengthBytes;
  uint8_t* const data =
      in_length ? span.length + span.done : span.bytes.data() + (span.done - kLengthBytes);
  const uint64_t left = (in_length ? kLengthBytes : kLengthBytes + span.bytes.size()) - span.done;
  const ssize_t n =
      ::recv(link.socket.get(), data, size_t(std::min(left, kSliceBytes)), MSG_DONTWAIT);
  if (n < 0 && is_transient(errno)) return false;
  if (n <= 0) {
    lose_link(link, std::string(" is gone: ") +
                        (n == 0 ? "it closed the connection" : std::strerror(errno)));
    return false;
  }
  span.done += uint64_t(n);
  const bool whole = uint64_t(n) == std::min(left, kSliceBytes);
  if (in_length) {
    if (span.done == kLengthBytes) check_length(link, span);
    return whole;
  }
  if (span.done < kLengthBytes + span.bytes.size()) return whole;
  if (span.relay != nullptr) span.relay->arrived += span.bytes.size();
  link.in.pop_front();
  return true;
}

bool can_send(const RankLink& link) { return !link.out.empty() && can_go(link.out.front()); }

pollfd interest(const RankLink& link) {
  const short events = short((can_send(link) ? POLLOUT : 0) | (link.in.empty() ? 0 : POLLIN));
  return {events == 0 ? -1 : link.socket.get(), events, 0};
}

void advance(RankLink& link, short events) {
  const bool broken = (events & (POLLERR | POLLHUP | POLLNVAL)) != 0;
  // What came before the end is taken first.
  if (broken || (events & POLLIN) != 0) {
    for (int i = 0; i < kSlicesAtOnce && !link.in.empty() && receive_slice(link); ++i) {
    }
  }
  if (broken || (events & POLLOUT) != 0) {
    for (int i = 0; i < kSlicesAtOnce && can_send(link) && send_slice(link); ++i) {
    }
  }
}

void lose_late_links(std::vector<RankLink*>& links, double seconds) {
  char text[64];
  std::snprintf(text, sizeof text, " did not finish within %g seconds", seconds);
  // First those who are waited for: the others may wait for bytes of theirs.
  for (RankLink* link : links) {
    if (!link->in.empty() || can_send(*link)) lose_link(*link, text);
  }
  for (RankLink* link : links) {
    if (can_send(*link)) send_slice(*link);
    if (!link->out.empty()) close_link(*link, unavailable(link->place + " was let down"));
  }
}

Status end_all(std::vector<RankLink*>& links, const char* why) {
  for (RankLink* link : links) close_link(*link, cancelled(link->place + ": " + why));
  return cancelled(why);
}

}  // namespace

Status run_transfers(std::vector<RankLink*>& links, const Wake& wake,
                     const std::atomic<bool>& aborted, double timeout_seconds) {
  const Deadline deadline(timeout_seconds);
  std::vector<pollfd> polled;
  for (;;) {
    if (aborted.load()) return end_all(links, "the group was aborted");
    if (stop_requested()) return end_all(links, "stopped");
    if (std::all_of(links.begin(), links.end(),
                    [](const RankLink* l) { return l->out.empty() && l->in.empty(); })) {
      return {};
    }
    polled.assign(1, {wake.fd(), POLLIN, 0});
    for (const RankLink* link : links) polled.push_back(interest(*link));
    const int ready = ::poll(polled.data(), polled.size(), deadline.wait_ms());
    if (ready < 0 && errno != EINTR) return end_all(links, std::strerror(errno));
    for (size_t i = 0; ready > 0 && i < links.size(); ++i) {
      if (polled[i + 1].revents != 0) advance(*links[i], polled[i + 1].revents);
    }
    if (deadline.over()) lose_late_links(links, timeout_seconds);
  }
}

}  // namespace deltawire
