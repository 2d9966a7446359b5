// Ranks by the rules of rank_rules.h over a model of a store: every process takes one step at a
// time, and whatever may happen to a step is a successor of its own.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "publish/rank_rules.h"

namespace deltawire::ranks::model {

inline constexpr unsigned kRanks = 3, kMaxCalls = 3;
using Content = uint8_t;  // of a rank's weights; the same on all ranks at the same step

// What may happen, and how often. All ranks publish contents[0], contents[1], ... in turn.
struct Limits {
  std::vector<Content> contents;
  std::vector<Content> contents_anew = {};  // after `restarts`
  std::set<unsigned> mortal = {0, 1};       // ranks that may crash; 2 is like 1
  unsigned crashes = 0;   // of one process, which comes back to the same step or to the next
  unsigned restarts = 0;  // of all: publishes are counted from one again
  unsigned faults = 0;  // of the store: lost answers, lost and late writes, failed and stale reads
  unsigned breaks = 0;  // a rank's own work fails
  unsigned fulls = 0;   // a delta does not do
  bool timeouts = false;
  bool keep_outcomes = false;  // of all publishes, not of the last: more states
};

struct Manifest {
  std::string attempt;
  std::array<Content, kRanks> contents{};
};
struct End {
  uint64_t version, step;
  Ending ending;
  std::string why;
  std::array<uint8_t, kRanks> nonces{};
};
struct Report {
  uint64_t version, step;
  Content content;
  bool changed, broken;
  uint8_t nonce;
};
using ReportName = std::tuple<std::string, unsigned, bool>;  // attempt, rank, full

struct Objects {
  std::vector<Manifest> manifests;             // by version
  std::map<uint64_t, AttemptSeen> begins;      // by version
  std::map<uint64_t, AttemptSeen> old_begins;  // what they replaced: stale reads
  std::map<std::string, End> ends;
  std::map<ReportName, Report> reports;
};

enum class Result : uint8_t { kNone, kCommitted, kUnchanged, kFailed };
struct Outcome {
  Result result = Result::kNone;
  bool named = false;  // the failure says which rank broke
};

enum class Phase : uint8_t { kOpenHead, kOpenBegin, kOpenEnd, kIdle, kHead, kCall };

struct Process {
  uint8_t life = 0, call = 0;
  Phase phase = Phase::kOpenHead;
  bool uncertain = false;
  bool has_published = false;  // in this life, with or without success
  int8_t head = -1;
  Content held = 0;  // the snapshot
  Leader leader;
  Reporter reporter;
  std::optional<std::pair<uint64_t, Leader::Open>> open;  // and its version
  std::optional<Reporter::Before> before;
  std::set<std::string> reported;
  std::array<Report, kRanks> heard{};
  std::array<Outcome, kMaxCalls> outcomes{};
};

using Put = std::function<void(Objects*)>;

struct World {
  Objects store;
  std::array<Process, kRanks> processes;
  // Writes whose answer was lost and that have not landed yet, by what they are for the state's
  // key.
  std::vector<std::pair<std::string, Put>> late;
  uint8_t crashes = 0, restarts = 0, faults = 0, breaks = 0, fulls = 0;
  bool late_manifest = false;  // one has landed after its attempt was given up

  size_t num_calls(const Limits& limits) const {
    return (restarts == 0 ? limits.contents : limits.contents_anew).size();
  }
  bool final(const Limits& limits) const;
};

// A version is there, and all ranks have opened the chain.
World first_world();
// Equal keys: equal worlds, as far as anything can still come of the difference.
std::string key_of(const World& world);

struct Successor {
  World world;
  bool plain = true;  // nothing went wrong on the way: no fault, crash or timeout
};
// All of them. `violation` is set, once, to the promise that one of the steps breaks.
std::vector<Successor> successors(const World& world, const Limits& limits, std::string* violation);

// For a person: what is where.
std::string describe(const World& world);

}  // namespace deltawire::ranks::model
