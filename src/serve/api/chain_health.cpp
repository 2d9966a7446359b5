#include "serve/api/chain_health.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "serve/api/answers.h"

namespace deltawire {
namespace {

constexpr size_t kMostNames = 20, kMostErrorBytes = 300;
// A publish is late after ten usual intervals; after six hours the run counts as ended.
constexpr double kLateIntervals = 10, kLateSeconds = 300, kOverSeconds = 6 * 3600;
constexpr int64_t kGoneSeconds = 3600;  // older losses are not reported

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
  return text;
}

// Rows in one of the states that are problems.
struct Kind {
  std::string_view row_state, state;
  std::string_view is, are;  // "is behind", "are behind"
  std::string_view advice;
};

constexpr Kind kKinds[] = {
    {"other", "error", "holds a version of another chain", "hold a version of another chain",
     "check which store it follows; pulling again from this one brings it back"},
    {"failed", "warning", "failed to pull", "failed to pull",
     "see its log; it tries again by itself"},
    {"unreadable", "warning", "wrote a heartbeat that cannot be read",
     "wrote heartbeats that cannot be read", "check that it runs a version of deltawire that fits"},
    {"behind", "warning", "is behind", "are behind",
     "check that it runs and reaches the store; it has not begun to fetch the newest version"},
    {"fetching", "warning", "is behind and began to fetch", "are behind and began to fetch",
     "if its last heartbeat is over a minute old, check that it runs; otherwise compare its "
     "network and disk with the size of a version"},
    {"engine_behind", "warning", "holds a version that its engine does not serve",
     "hold versions that their engines do not serve",
     "see the log of its engine, which was told to load that version"},
    {"gone", "warning", "sends no heartbeats any more", "send no heartbeats any more",
     "if it was stopped on purpose: deltawire status STORE --forget NAME; otherwise start it "
     "again"},
};

std::string_view advice_for(const Kind& kind, const FleetRow& row) {
  if (kind.row_state == "failed" && row.listed.heartbeat.ok() &&
      is_bad_signature(row.listed.heartbeat->error)) {
    return "the versions are not signed with a key that it trusts: compare its --trust file with "
           "the publisher's --sign-key";
  }
  return kind.advice;
}

std::string describe(const FleetRow& row) {
  std::string text = row.name();
  if (!row.standing.remark.empty()) return text + " " + row.standing.remark;
  if (!row.listed.heartbeat.ok()) return text;
  const auto version = version_of(row.listed.heartbeat->held);
  text += version ? " holds version " + std::to_string(*version) : " holds no version";
  if (row.standing.lag.value_or(0) != 0) {
    text += ", " + plural(*row.standing.lag, "version") + " behind the newest";
  }
  if (row.state == "engine_behind") {
    text += ", its engine serves version " + std::to_string(row.listed.heartbeat->serving->version);
  }
  if (row.state == "failed") text += ": " + row.listed.heartbeat->error.substr(0, kMostErrorBytes);
  return text;
}

std::optional<double> since(const FleetRow& row) {
  if (row.state == "gone" || row.state == "unreadable") return double(row.seen);
  if (row.behind_since) return double(*row.behind_since);
  return row.state_since != 0 ? std::optional(row.state_since) : std::nullopt;
}

void look_for(const Kind& kind, const HealthFacts& facts, uint64_t num_live,
              std::vector<HealthProblem>* problems) {
  HealthProblem problem{.state = kind.state};
  const FleetRow* worst = nullptr;
  for (const auto& [object, row] : facts.fleet.rows()) {
    if (row.state != kind.row_state) continue;
    if (row.state == "gone" && row.listed.age_seconds > kGoneSeconds) continue;
    if (problem.num_replicas++ < kMostNames) problem.replicas.push_back(row.name());
    if (worst == nullptr || row.standing.lag > worst->standing.lag) worst = &row;
    const std::optional<double> begun = since(row);
    if (begun && (!problem.since || *begun < *problem.since)) problem.since = begun;
    if (row.listed.heartbeat.ok() && is_failed_proof(row.listed.heartbeat->error)) {
      problem.state = "error";
    }
  }
  if (worst == nullptr) return;
  const uint64_t num_rows = facts.fleet.rows().size();
  const bool counts_all = kind.row_state == "gone" || num_live == num_rows;
  problem.text = std::to_string(problem.num_replicas) + " of " +
                 (counts_all ? plural(num_rows, "replica") : plural(num_live, "live replica")) +
                 " " + std::string(problem.num_replicas == 1 ? kind.is : kind.are) +
                 (problem.num_replicas == 1 ? ": " : "; the furthest, ") + describe(*worst);
  problem.advice = "Look at " + worst->name() +
                   (worst->host().empty() ? "" : " on " + worst->host()) + ": " +
                   std::string(advice_for(kind, *worst)) + ".";
  problems->push_back(std::move(problem));
}

void look_at_chain(const HealthFacts& facts, std::vector<HealthProblem>* problems) {
  if (!facts.failure.ok() && facts.failure.code() != Code::kNotFound) {
    problems->push_back({.state = "error",
                         .text = "the store cannot be read: " + facts.failure.to_string(),
                         .advice = "Check that the store is there and that this server may read "
                                   "it; it tries again by itself."});
  } else if (!facts.head) {
    problems->push_back({.state = "warning",
                         .text = "no version was published yet",
                         .advice = "Publish one: deltawire publish CHECKPOINT STORE."});
  } else if (facts.publish_interval) {
    const double late = std::max(kLateSeconds, kLateIntervals * *facts.publish_interval);
    const double age = facts.now - double(facts.head_created);
    if (age > late && age < kOverSeconds) {
      problems->push_back({.state = "warning",
                           .text = "no version was published for a while: the newest is version " +
                                   std::to_string(*facts.head) + ", the usual interval is " +
                                   seconds_text(*facts.publish_interval),
                           .advice = "Look at the trainer, unless the run has ended.",
                           .since = double(facts.head_created)});
    }
  }
}

// Nothing is wrong.
std::string good_text(const HealthFacts& facts, uint64_t num_live,
                      std::optional<double>* catch_up) {
  const std::string head = "version " + std::to_string(*facts.head);
  if (num_live == 0) return head + " is published; no replica has sent a heartbeat";
  uint64_t num_holding = 0, num_serving = 0;
  double last = 0;
  for (const auto& [object, row] : facts.fleet.rows()) {
    if (row.state != "current" || row.standing.lag != 0U) continue;
    ++num_holding;
    num_serving += version_of(row.listed.heartbeat->serving) == facts.head;
    last = std::max(last, row.held_since);
  }
  const bool many = num_live > 1;
  const std::string all = num_live == 1   ? "the replica"
                          : num_live == 2 ? "both replicas"
                                          : "all " + std::to_string(num_live) + " replicas";
  if (num_holding < num_live) {
    return all + (many ? " keep up: " : " keeps up: ") + std::to_string(num_holding) +
           (num_holding == 1 ? " holds " : " hold ") + head + ", proven; " +
           std::to_string(num_live - num_holding) + " not yet";
  }
  const char* const verb = num_serving == num_live ? "serve" : "hold";
  std::string text = all + " " + verb + (many ? " " : "s ") + head + ", proven";
  if (facts.head_seen != 0 && last >= facts.head_seen) {
    *catch_up = last - facts.head_seen;
    text += ", " + seconds_text(**catch_up) + " after it was published";
  }
  return text;
}

}  // namespace

ChainHealth health_of(const HealthFacts& facts) {
  ChainHealth health{.publish_interval = facts.publish_interval};
  const Fleet::Counts& counts = facts.fleet.counts();
  const auto gone = counts.find("gone");
  const uint64_t num_live =
      facts.fleet.rows().size() - (gone == counts.end() ? 0 : size_t(gone->second));
  look_at_chain(facts, &health.problems);
  for (const Kind& kind : kKinds) look_for(kind, facts, num_live, &health.problems);
  std::stable_partition(health.problems.begin(), health.problems.end(),
                        [](const HealthProblem& one) { return one.state == "error"; });
  if (health.problems.empty()) {
    health.text = good_text(facts, num_live, &health.catch_up_seconds);
    return health;
  }
  const HealthProblem& worst = health.problems.front();
  health.state = worst.state;
  health.text = worst.text;
  health.advice = worst.advice;
  if (health.problems.size() > 1) {
    health.text += "; and " + plural(health.problems.size() - 1, "other problem");
  }
  return health;
}

}  // namespace deltawire
