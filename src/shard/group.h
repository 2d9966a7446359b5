// A carrier for the time of one version: ranks that go away are noted, and the others go on as far
// as the carrier can.
#pragma once

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "carrier/carrier.h"
#include "shard/shard.h"

namespace deltawire::shard {

class Group {
 public:
  // Ranks that the carrier has lost before are left alone, and are no failure.
  Group(Carrier& carrier, double timeout_seconds)
      : carrier_(carrier), timeout_seconds_(timeout_seconds), lost_(carrier.lost()) {}

  // InvalidArgument: not the group that a plan is for.
  Status check(const ShardPlan& plan, unsigned group_rank) const {
    const unsigned size = plan.num_trainers + plan.num_engines;
    if (carrier_.size() != size || carrier_.rank() != group_rank) {
      return invalid_argument(
          "shards: the plan is for rank " + std::to_string(group_rank) + " of " +
          std::to_string(size) + " (" + std::to_string(plan.num_trainers) + " trainer and " +
          std::to_string(plan.num_engines) + " engine ranks), this is rank " +
          std::to_string(carrier_.rank()) + " of " + std::to_string(carrier_.size()));
    }
    return {};
  }

  // Ok as well when ranks went away that were there before: ask is_lost(). What was to come from
  // them is not there.
  Status exchange(std::vector<ToRank> to, std::vector<FromRank> from) {
    const auto lost = [&](const auto& one) { return is_lost(one.rank); };
    std::erase_if(to, lost);
    std::erase_if(from, lost);
    if (to.empty() && from.empty()) return {};
    const double begin = steady_seconds();
    Status status = carrier_.exchange(to, from, timeout_seconds_);
    seconds_ += steady_seconds() - begin;
    if (status.ok()) {
      for (const ToRank& one : to) bytes_out_ += one.bytes.size();
      for (const FromRank& one : from) bytes_in_ += one.bytes.size();
      return {};
    }
    if (status.code() != Code::kUnavailable) return status;
    bool any_new = false;
    for (const unsigned rank : carrier_.lost()) {
      if (is_lost(rank)) continue;
      lost_.push_back(rank);
      any_new = true;
    }
    if (failure_.ok()) failure_ = status;
    return any_new ? Status() : failure_;
  }

  bool is_lost(unsigned rank) const {
    return std::find(lost_.begin(), lost_.end(), rank) != lost_.end();
  }
  const std::vector<unsigned>& lost() const noexcept { return lost_; }
  const Status& failure() const noexcept { return failure_; }  // the first that a rank was lost by
  // A carrier that gave up because of one rank leaves the words of others half heard.
  Status blame(Status status) const { return failure_.ok() ? status : failure_; }
  double seconds() const noexcept { return seconds_; }
  uint64_t bytes_out() const noexcept { return bytes_out_; }
  uint64_t bytes_in() const noexcept { return bytes_in_; }

 private:
  Carrier& carrier_;
  const double timeout_seconds_;
  std::vector<unsigned> lost_;
  Status failure_;
  double seconds_ = 0;
  uint64_t bytes_out_ = 0, bytes_in_ = 0;
};

}  // namespace deltawire::shard
