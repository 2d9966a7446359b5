// The newest events of a chain and its replicas.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/clock.h"

namespace deltawire {

struct ChainEvent {
  std::string_view kind, state = "ok";  // docs/api.md, "Events"
  std::string text = {};
  std::optional<uint64_t> version = {};
  std::string replica = {}, host = {};  // empty: none
  double time = 0;                      // 0: now
  uint64_t id = 0;
};

// One thread.
class ChainEvents {
 public:
  void add(ChainEvent event);
  uint64_t last() const noexcept { return last_; }
  // Number of events seen while the server watched, by kind. Kinds start at 0, so that Prometheus
  // notices the first event.
  const std::map<std::string_view, uint64_t>& counts() const noexcept { return counts_; }
  // The newest `limit` of those after `since`, ascending.
  std::vector<ChainEvent> after(uint64_t since, size_t limit) const;

 private:
  std::deque<ChainEvent> events_;
  std::map<std::string_view, uint64_t> counts_ = {
      {"publish", 0},   {"failed_publish", 0}, {"anchor", 0}, {"merged", 0},       {"gc", 0},
      {"joined", 0},    {"catch_up", 0},       {"error", 0},  {"failed_proof", 0}, {"refused", 0},
      {"recovered", 0}, {"restarted", 0},      {"gone", 0},   {"removed", 0},      {"store", 0}};
  uint64_t last_ = 0;  // ids begin at the time, so that they grow over restarts
};

nlohmann::json to_json(const ChainEvent& event);

}  // namespace deltawire
