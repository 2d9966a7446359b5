// What a publisher knows of its replicas: who follows, who answers, who holds which version.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "carrier/hub.h"
#include "deltawire/chain.h"
#include "ship/ship.h"

namespace deltawire {

// Thread-safe. A member counts as a replica once it follows; others only look at the chain.
class Roster {
 public:
  using Ids = std::vector<uint64_t>;  // ascending

  void joined(const MemberInfo& info);
  void left(uint64_t id, std::string reason);
  // `buffer_bytes`: the most that it takes at once; 0: nothing is to be sent to it.
  void follows(uint64_t id, uint64_t buffer_bytes);
  void beats(uint64_t id, const Heartbeat& beat);
  void sent(uint64_t id, uint64_t bytes);
  // Why it will not hold the version that is on its way.
  void fails(uint64_t id, std::string error);
  // What went wrong on the way to it, and was made up for.
  void note(uint64_t id, const std::string& text);
  std::vector<std::string> notes() const;  // since the version began

  size_t num_replicas() const;
  bool wait_for_replicas(size_t count, double timeout_seconds);
  Ids followers() const;  // present ones
  Ids pushed() const;     // those of them that take what is sent, and have not failed to twice
  uint64_t least_buffer(const Ids& ids) const;

  // Rounds: each member is asked something with a number, and answers with it.
  uint64_t begin_round();
  void answers(uint64_t id, uint64_t round, std::string error = {});
  struct Round {
    Ids answered;
    Ids others;  // present, but silent, or with an error
  };
  Round wait_round(const Ids& ids, uint64_t round, double timeout_seconds);
  // Did not manage to be in a group; the second time it is not asked again.
  void strike(uint64_t id);

  void set_group(const Ids& ids);  // ranks 1, 2, ... of the carrier
  void begin_version();
  void commit_version();
  // Until every replica holds it, has failed, or the time is over; those that are silent then are
  // said to be late.
  void wait_applied(const Identity& version, double timeout_seconds);
  // By replica. One that left is in the reports of one version that it does not hold.
  std::vector<Shipped> shipped(const std::optional<Identity>& version) const;
  double last_applied() const;  // by the steady clock; 0: nobody did
  // The versions of that run that replicas hold, present ones and those that left within the hour.
  std::set<uint64_t> held_versions(const std::string& run) const;

 private:
  struct Replica {
    MemberInfo info;
    bool follows = false, present = true, late = false;
    uint64_t buffer_bytes = 0;
    std::string name;  // as in its heartbeat
    std::optional<Identity> held = {};
    std::string error = {};  // of the version on its way
    std::optional<unsigned> rank = {};
    uint64_t bytes = 0;
    double applied_at = 0;  // when it said that it holds `held`
    double left_at = 0;
    mutable std::optional<Identity> told_in = {};  // the version whose report said that it left
    uint64_t round = 0;
    std::string round_error = {};
    unsigned strikes = 0;
  };
  Replica* find(uint64_t id);
  void forget_old();
  bool is_settled(const Replica& replica, const Identity& version) const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<uint64_t, Replica> replicas_;
  uint64_t round_ = 0;
  double committed_at_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace deltawire
