// The replicas of a chain, as their heartbeats and the chain's manifests show them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "deltawire/chain.h"
#include "serve/api/chain_events.h"

namespace deltawire {

struct FleetRow {
  ListedHeartbeat listed;
  Standing standing = {};
  std::string_view state = {};  // docs/api.md, "Fleet"
  // When the first version that it lacks was published; none: it lacks none, or not known.
  std::optional<int64_t> behind_since = {};
  int64_t seen = 0;  // when it wrote its heartbeat, by our clock
  int64_t told = 0;  // since when its engine has had a version to load
  // When we saw it come to what it holds, and to its state; 0: it was so when we came.
  double held_since = 0, state_since = 0;
  uint64_t restarts = 0;  // that we saw
  uint64_t revision = 0;  // of the fleet when this row last became another one

  // The replica's name, or its object's name if the heartbeat cannot be read.
  std::string name() const;
  std::string host() const;
};

// Whether a pull failed because a replica's data does not match the chain, judging by the error
// text of its heartbeat.
bool is_failed_proof(const std::string& error);
// Whether a version was refused for its signature.
bool is_bad_signature(const std::string& error);

// refresh() from one thread.
class Fleet {
 public:
  using Counts = std::map<std::string_view, uint64_t>;  // of rows by state

  // Reads the heartbeats that changed since the last call. `look_for_head` is called if one of them
  // is ahead of `head`, and updates it. `created` returns when a version was published, if known.
  // Returns whether rows changed. The results of the other methods, and `events`, change under
  // `mutex`.
  Result<bool> refresh(const Chain& chain, const std::optional<Identity>& head,
                       const std::function<Status()>& look_for_head,
                       const std::function<std::optional<int64_t>(uint64_t)>& created,
                       std::mutex* mutex, ChainEvents* events);

  const std::map<std::string, FleetRow>& rows() const noexcept { return rows_; }  // by object
  uint64_t revision() const noexcept { return revision_; }
  const Counts& counts() const noexcept { return counts_; }
  // Those that changed after `since`; none: all. docs/api.md
  nlohmann::json to_json(std::optional<uint64_t> since) const;

 private:
  Result<FleetRow> make_row(ListedHeartbeat listed, const std::optional<Identity>& head,
                            const std::function<std::optional<int64_t>(uint64_t)>& created,
                            int64_t now);
  void compare(const FleetRow* before, const FleetRow& now, ChainEvents* events) const;

  std::map<std::string, FleetRow> rows_;
  std::multimap<uint64_t, std::string> removed_;  // objects by revision
  Counts counts_;
  // Starts at the current time, so that revisions of different servers never collide.
  uint64_t revision_ = uint64_t(unix_seconds_now() * 1000);
  uint64_t forgotten_ = revision_;  // up to which `removed_` is not known
  std::optional<Standings> standings_;
  double clock_asked_ = 0;
  int64_t clock_ahead_ = 0;  // the store's, of ours
  bool looked_ = false;
};

}  // namespace deltawire
