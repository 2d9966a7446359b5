#include "carrier/nccl/rounds.h"

#include <algorithm>
#include <map>

namespace deltawire::nccl {
namespace {

// Messages of one kind with one rank, put into one round after the other.
class RoundFiller {
 public:
  RoundFiller(std::vector<Round>* rounds, uint64_t peer_bytes)
      : rounds_(rounds), peer_bytes_(peer_bytes) {}

  void add(Message message) {
    std::span<uint8_t> rest = message.bytes;
    while (!rest.empty()) {
      if (used_ == peer_bytes_) {
        ++round_;
        used_ = 0;
      }
      message.bytes = rest.first(std::min<uint64_t>(rest.size(), peer_bytes_ - used_));
      used_ += message.bytes.size();
      if (rounds_->size() <= round_) rounds_->resize(round_ + 1);
      (*rounds_)[round_].push_back(message);
      rest = rest.subspan(message.bytes.size());
    }
  }

 private:
  std::vector<Round>* rounds_;
  uint64_t peer_bytes_;
  size_t round_ = 0;
  uint64_t used_ = 0;  // of this round
};

}  // namespace

std::vector<Round> exchange_rounds(std::span<const ToRank> to, std::span<const FromRank> from,
                                   uint64_t peer_bytes) {
  std::vector<Round> rounds;
  std::map<unsigned, RoundFiller> sends, receives;
  for (const ToRank& one : to) {
    auto* const data = const_cast<uint8_t*>(one.bytes.data());
    sends.try_emplace(one.rank, &rounds, peer_bytes)
        .first->second.add({Message::Kind::kSend, one.rank, {data, one.bytes.size()}});
  }
  for (const FromRank& one : from) {
    receives.try_emplace(one.rank, &rounds, peer_bytes)
        .first->second.add({Message::Kind::kReceive, one.rank, one.bytes});
  }
  return rounds;
}

std::vector<Round> broadcast_rounds(unsigned root, std::span<uint8_t> bytes, uint64_t peer_bytes) {
  std::vector<Round> rounds;
  RoundFiller filler(&rounds, peer_bytes);
  filler.add({Message::Kind::kBroadcast, root, bytes});
  return rounds;
}

}  // namespace deltawire::nccl
