#include "carrier/tcp/socket_carrier.h"

#include <sys/socket.h>

#include <algorithm>
#include <mutex>

#include "carrier/tcp/transfers.h"

namespace deltawire {
namespace {

// Fewer go from the root to all ranks at once. More go down a chain in slices, each rank passing
// on what it has: the root's link carries them once.
constexpr size_t kChainBytes = size_t{1} << 20;
constexpr size_t kChainSliceBytes = size_t{512} << 10;

class SocketCarrier final : public Carrier {
 public:
  SocketCarrier(std::string name, unsigned rank, std::vector<RankSocket> sockets)
      : name_(std::move(name)), rank_(rank), links_(sockets.size()) {
    for (unsigned r = 0; r < links_.size(); ++r) {
      links_[r].rank = r;
      links_[r].socket = std::move(sockets[r].socket);
      links_[r].place = name_ + ": rank " + std::to_string(r);
      if (!sockets[r].place.empty()) links_[r].place += " (" + sockets[r].place + ")";
    }
  }

  bool ready() const { return wake_.ok(); }
  std::string name() const override { return name_; }
  unsigned rank() const noexcept override { return rank_; }
  unsigned size() const noexcept override { return unsigned(links_.size()); }

  Status exchange(std::span<const ToRank> to, std::span<const FromRank> from,
                  double timeout_seconds) override {
    for (const ToRank& one : to) DW_RETURN_IF_ERROR(check_rank(one.rank));
    for (const FromRank& one : from) DW_RETURN_IF_ERROR(check_rank(one.rank));
    for (const ToRank& one : to) {
      if (!one.bytes.empty()) links_[one.rank].out.push_back({one.bytes});
    }
    for (const FromRank& one : from) {
      if (!one.bytes.empty()) links_[one.rank].in.push_back({one.bytes});
    }
    return run(timeout_seconds);
  }

  Status broadcast(unsigned root, std::span<uint8_t> bytes, double timeout_seconds) override {
    if (root >= size()) return no_such_rank(root);
    for (const RankLink& link : links_) {
      if (!link.failure.ok() && !link.socket.ok()) return link.failure;
    }
    const bool chain = bytes.size() >= kChainBytes && size() > 2;
    Relay relay;
    if (chain) {
      queue_chain(root, bytes, &relay);
    } else if (rank_ != root && !bytes.empty()) {
      links_[root].in.push_back({bytes});
    } else if (!bytes.empty()) {
      for (RankLink& link : links_) {
        if (link.rank != rank_) link.out.push_back({bytes});
      }
    }
    return run(timeout_seconds);
  }

  std::vector<unsigned> lost() const override {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

  void abort() noexcept override {
    aborted_ = true;
    wake_.set();
  }

 private:
  Status no_such_rank(unsigned rank) const {
    return invalid_argument(name_ + ": no rank " + std::to_string(rank) + " in a group of " +
                            std::to_string(size()));
  }
  Status check_rank(unsigned rank) const {
    if (rank >= size()) return no_such_rank(rank);
    if (rank != rank_) return {};
    return invalid_argument(name_ + ": rank " + std::to_string(rank) +
                            " exchanges bytes with itself");
  }

  void queue_chain(unsigned root, std::span<uint8_t> bytes, Relay* relay) {
    const unsigned place = (rank_ + size() - root) % size();
    RankLink& before = links_[(rank_ + size() - 1) % size()];
    RankLink& next = links_[(rank_ + 1) % size()];
    for (size_t at = 0; at < bytes.size(); at += kChainSliceBytes) {
      const auto slice = bytes.subspan(at, std::min(kChainSliceBytes, bytes.size() - at));
      if (place > 0) before.in.push_back({slice, relay});
      if (place + 1 == size()) continue;
      next.out.push_back({slice, place > 0 ? relay : nullptr, at + slice.size()});
    }
  }

  Status run(double timeout_seconds) {
    std::vector<RankLink*> busy;
    std::string message;
    Code code = Code::kOk;
    for (RankLink& link : links_) {
      const bool asked = !link.out.empty() || !link.in.empty();
      if (!asked && link.socket.ok()) link.failure = {};
      if (!asked) continue;
      busy.push_back(&link);
      if (link.socket.ok()) {
        link.failure = {};
        link.blamed.reset();
      } else {  // as it was before
        link.out.clear();
        link.in.clear();
      }
    }
    DW_RETURN_IF_ERROR(run_transfers(busy, wake_, aborted_, timeout_seconds));
    for (const RankLink* link : busy) {
      if (link->failure.ok()) continue;
      if (code == Code::kOk) code = link->failure.code();
      message += (message.empty() ? "" : "; ") + link->failure.message();
      if (link->blamed && *link->blamed < size()) note_lost(*link->blamed);
    }
    return code == Code::kOk ? Status() : Status(code, std::move(message));
  }

  void note_lost(unsigned rank) {
    const std::lock_guard lock(mutex_);
    const auto at = std::lower_bound(lost_.begin(), lost_.end(), rank);
    if (at == lost_.end() || *at != rank) lost_.insert(at, rank);
  }

  const std::string name_;
  const unsigned rank_;
  std::vector<RankLink> links_;
  Wake wake_;
  std::atomic<bool> aborted_{false};
  mutable std::mutex mutex_;  // of what follows
  std::vector<unsigned> lost_;
};

}  // namespace

Result<std::unique_ptr<Carrier>> make_socket_carrier(std::string name, unsigned rank,
                                                     std::vector<RankSocket> sockets) {
  auto carrier = std::make_unique<SocketCarrier>(std::move(name), rank, std::move(sockets));
  if (!carrier->ready()) return io_error(std::string("eventfd: ") + std::strerror(errno));
  return std::unique_ptr<Carrier>(std::move(carrier));
}

Result<std::vector<std::unique_ptr<Carrier>>> make_local_group(unsigned size) {
  std::vector<std::vector<RankSocket>> sockets(size);
  for (auto& row : sockets) row.resize(size);
  for (unsigned a = 0; a < size; ++a) {
    for (unsigned b = a + 1; b < size; ++b) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        return io_error(std::string("socketpair: ") + std::strerror(errno));
      }
      sockets[a][b].socket = Socket(pair[0]);
      sockets[b][a].socket = Socket(pair[1]);
    }
  }
  std::vector<std::unique_ptr<Carrier>> group;
  for (unsigned rank = 0; rank < size; ++rank) {
    DW_ASSIGN_OR_RETURN(auto carrier, make_socket_carrier("local", rank, std::move(sockets[rank])));
    group.push_back(std::move(carrier));
  }
  return group;
}

}  // namespace deltawire
