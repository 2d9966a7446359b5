#include "carrier/tcp/mesh.h"

#include <algorithm>

#include "base/bytes.h"
#include "carrier/net/call.h"

namespace deltawire {
namespace {

constexpr char kReady = 'r', kGo = 'g';
constexpr size_t kMostAddressBytes = 300;
constexpr size_t kMostTableBytes = size_t{2} << 20;

std::string gate_purpose(unsigned rank) { return "rank " + std::to_string(rank); }
std::string rank_place(unsigned rank) { return "tcp: rank " + std::to_string(rank); }

// A text with its length before it.
Status send_text(const RankSocket& to, std::string_view text, const Deadline& deadline,
                 std::string_view place) {
  char length[4];
  store_le(length, uint32_t(text.size()));
  return send_all(to.socket.get(), std::string(length, sizeof length).append(text), deadline,
                  place);
}

Result<std::string> receive_text(const RankSocket& from, size_t most, const Deadline& deadline,
                                 std::string_view place) {
  DW_ASSIGN_OR_RETURN(const std::string head,
                      receive_exactly(from.socket.get(), 4, deadline, place));
  const uint32_t size = load_le<uint32_t>(head.data());
  if (size > most) return corruption(std::string(place) + ": a text of too many bytes");
  return receive_exactly(from.socket.get(), size, deadline, place);
}

// Waits for the ranks from `first` on: each in its place.
class Arrivals {
 public:
  Arrivals(Acceptor& acceptor, unsigned first, std::vector<RankSocket>* sockets)
      : acceptor_(acceptor), first_(first), sockets_(*sockets) {}

  // After a failure `at_fault` has those who did not come in time, or the one that left again.
  Status wait(const Deadline& deadline, std::vector<unsigned>* at_fault) {
    while (*at_fault = missing(), !at_fault->empty()) {
      if (stop_requested()) return cancelled("tcp: stopped");
      if (deadline.over()) {
        return unavailable("tcp: " + names_of(*at_fault) + " did not come in time");
      }
      std::vector<pollfd> polled;
      acceptor_.poll_for(&polled);
      const size_t first = polled.size();
      for (const RankSocket& one : sockets_) polled.push_back({one.socket.get(), POLLRDHUP, 0});
      const int ready = ::poll(polled.data(), polled.size(), deadline.sooner(0.2).wait_ms());
      if (ready <= 0) {
        for (pollfd& one : polled) one.revents = 0;
      }
      for (Caller& caller : acceptor_.advance(polled.data())) take(std::move(caller));
      for (unsigned rank = 0; rank < sockets_.size(); ++rank) {
        if (polled[first + rank].revents != 0) {
          *at_fault = {rank};
          return unavailable(rank_place(rank) + " (" + sockets_[rank].place + ") has left again");
        }
      }
    }
    return {};
  }

 private:
  // Who is here already, or has no place here, is not taken: it sees its connection closed.
  void take(Caller caller) {
    const uint64_t rank = caller.handshake.caller();
    if (rank < first_ || rank >= sockets_.size() || sockets_[rank].socket.ok()) return;
    sockets_[rank] = {std::move(caller.socket), std::move(caller.from)};
  }

  std::vector<unsigned> missing() const {
    std::vector<unsigned> ranks;
    for (unsigned rank = first_; rank < sockets_.size(); ++rank) {
      if (!sockets_[rank].socket.ok()) ranks.push_back(rank);
    }
    return ranks;
  }

  static std::string names_of(const std::vector<unsigned>& ranks) {
    constexpr size_t kMostNamed = 16;
    std::string names = ranks.size() == 1 ? "rank " : "ranks ";
    for (size_t i = 0; i < std::min(ranks.size(), kMostNamed); ++i) {
      names += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    }
    return ranks.size() > kMostNamed ? names + ", …" : names;
  }

  Acceptor& acceptor_;
  const unsigned first_;
  std::vector<RankSocket>& sockets_;
};

Result<RankSocket> call_rank(const std::string& address, unsigned rank, unsigned own,
                             const Secret& secret, const Deadline& deadline) {
  DW_ASSIGN_OR_RETURN(Called called, call_until(address, secret, gate_purpose(rank), own, deadline,
                                                rank_place(rank) + " (" + address + ")"));
  return RankSocket{std::move(called.socket), address};
}

}  // namespace

Result<MeshGate> open_gate(const std::string& host, unsigned rank, double timeout_seconds,
                           const Secret& secret) {
  DW_ASSIGN_OR_RETURN(Listening listening, listen_on(endpoint_text(host, 0)));
  return MeshGate{std::move(listening.address),
                  std::make_unique<Acceptor>(std::move(listening.socket), secret,
                                             gate_purpose(rank), timeout_seconds)};
}

Result<std::vector<RankSocket>> gather_mesh(MeshGate& gate, unsigned size, const Deadline& deadline,
                                            std::vector<unsigned>* missing) {
  std::vector<RankSocket> sockets(size);
  DW_RETURN_IF_ERROR(Arrivals(*gate.acceptor, 1, &sockets).wait(deadline, missing));
  const auto each = [&](const auto& body) -> Status {
    for (unsigned rank = 1; rank < size; ++rank) {
      Status status = body(sockets[rank], rank_place(rank) + " (" + sockets[rank].place + ")");
      if (status.ok()) continue;
      missing->push_back(rank);
      return status;
    }
    return {};
  };
  std::string table;  // a line for each rank from 1 on
  DW_RETURN_IF_ERROR(each([&](const RankSocket& one, const std::string& place) -> Status {
    DW_ASSIGN_OR_RETURN(const std::string address,
                        receive_text(one, kMostAddressBytes, deadline, place));
    auto endpoint = parse_endpoint(address);
    if (!endpoint.ok()) return std::move(endpoint).status().at(place);
    table += address + "\n";
    return {};
  }));
  DW_RETURN_IF_ERROR(each([&](const RankSocket& one, const std::string& place) {
    return send_text(one, table, deadline, place);
  }));
  DW_RETURN_IF_ERROR(each([&](const RankSocket& one, const std::string& place) -> Status {
    DW_ASSIGN_OR_RETURN(const std::string word,
                        receive_exactly(one.socket.get(), 1, deadline, place));
    return word[0] == kReady ? Status() : corruption(place + " does not say that it is ready");
  }));
  DW_RETURN_IF_ERROR(each([&](const RankSocket& one, const std::string& place) {
    return send_all(one.socket.get(), {&kGo, 1}, deadline, place);
  }));
  return sockets;
}

Result<std::vector<RankSocket>> enter_mesh(const std::string& address, unsigned rank, unsigned size,
                                           const Secret& secret, const Deadline& deadline) {
  std::vector<RankSocket> sockets(size);
  DW_ASSIGN_OR_RETURN(sockets[0], call_rank(address, 0, rank, secret, deadline));
  const std::string place = rank_place(0) + " (" + address + ")";
  // Where this rank can reach rank 0, the others can reach this rank.
  const std::string host = host_of(local_address(sockets[0].socket.get()));
  DW_ASSIGN_OR_RETURN(const MeshGate gate, open_gate(host, rank, deadline.left(), secret));
  DW_RETURN_IF_ERROR(send_text(sockets[0], gate.address, deadline, place));
  DW_ASSIGN_OR_RETURN(const std::string table,
                      receive_text(sockets[0], kMostTableBytes, deadline, place));
  size_t at = 0;
  for (unsigned other = 1; other < rank; ++other) {
    const size_t end = table.find('\n', at);
    if (end == std::string::npos) return corruption(place + ": a table with too few ranks");
    DW_ASSIGN_OR_RETURN(sockets[other],
                        call_rank(table.substr(at, end - at), other, rank, secret, deadline));
    at = end + 1;
  }
  std::vector<unsigned> at_fault;  // rank 0 will know by itself
  DW_RETURN_IF_ERROR(Arrivals(*gate.acceptor, rank + 1, &sockets).wait(deadline, &at_fault));
  DW_RETURN_IF_ERROR(send_all(sockets[0].socket.get(), {&kReady, 1}, deadline, place));
  DW_ASSIGN_OR_RETURN(const std::string word,
                      receive_exactly(sockets[0].socket.get(), 1, deadline, place));
  if (word[0] != kGo) return corruption(place + " does not say go");
  return sockets;
}

}  // namespace deltawire
