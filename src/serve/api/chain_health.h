// The health of a chain and its fleet in one sentence, with advice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "deltawire/status.h"
#include "serve/api/fleet.h"

namespace deltawire {

struct HealthFacts {
  const Fleet& fleet;
  Status failure = {};  // why the store cannot be read
  std::optional<uint64_t> head = {};
  int64_t head_created = 0;
  double head_seen = 0;  // when we first saw it; 0: before the server started
  std::optional<double> publish_interval = {};
  double now = 0;
};

struct HealthProblem {
  std::string_view state = {};  // "warning", "error"
  std::string text = {}, advice = {};
  std::vector<std::string> replicas = {};  // some of them
  uint64_t num_replicas = 0;
  std::optional<double> since = {};
};

struct ChainHealth {
  std::string_view state = "ok";
  std::string text = {}, advice = {};
  std::optional<double> publish_interval = {}, catch_up_seconds = {};
  std::vector<HealthProblem> problems = {};  // the worst first
};

ChainHealth health_of(const HealthFacts& facts);

}  // namespace deltawire
