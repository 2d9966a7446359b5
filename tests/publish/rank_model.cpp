#include "rank_model.h"

#include <algorithm>

#include "rank_steps.h"

namespace deltawire::ranks::model {
namespace {

void crash(Process* process, bool next_step) {
  Process anew;
  anew.life = uint8_t(process->life + 1);
  anew.call = uint8_t(process->call + next_step);
  anew.outcomes = process->outcomes;
  *process = std::move(anew);
}

template <class... Values>
void add(std::string* key, const Values&... values) {
  (key->push_back(char(values)), ...);
}
void add_text(std::string* key, const std::string& text) {
  add(key, text.size());
  key->append(text);
}
void add_seen(std::string* key, const std::optional<AttemptSeen>& seen) {
  add(key, seen.has_value());
  if (seen) add_text(key, seen->id), add(key, seen->step, seen->full);
}
bool names(const std::string& text) { return text.find(kBroke) != std::string::npos; }

void add_process(std::string* key, const Process& p) {
  add(key, p.life, p.call, p.phase, p.uncertain, p.has_published, p.head, p.held);
  add(key, p.open.has_value(), p.before.has_value(), p.reported.size());
  if (p.open) add(key, p.open->first), add_text(key, p.open->second.attempt);
  if (p.before) add_text(key, p.before->attempt), add(key, p.before->over);
  for (const std::string& attempt : p.reported) add_text(key, attempt);
  for (const Report& heard : p.heard) add(key, heard.changed, heard.content, heard.nonce);
  for (const Outcome& outcome : p.outcomes) add(key, outcome.result, outcome.named);
  if (p.phase != Phase::kCall) return;
  const Leader& l = p.leader;
  add(key, l.ask, l.version, l.full, l.ending, l.about_rank, l.missing.size(), l.announced);
  add(key, l.verdict, l.open.has_value(), names(l.why), names(l.failure.message()));
  for (const unsigned rank : l.missing) add(key, rank);
  add_text(key, l.about);
  const Reporter& f = p.reporter;
  add(key, f.ask, f.version, f.full, f.verdict, f.reported.size(), names(f.failure.message()));
  for (const std::string& attempt : f.reported) add_text(key, attempt);
  add_seen(key, f.seen);
  add_text(key, f.about), add_text(key, f.attempt);
}

}  // namespace

bool World::final(const Limits& limits) const {
  return std::all_of(processes.begin(), processes.end(), [&](const Process& process) {
    return process.phase == Phase::kIdle && process.call == num_calls(limits);
  });
}

World first_world() {
  World world;
  world.store.manifests.push_back({"-", {}});
  for (Process& process : world.processes) {
    process.head = 0;
    process.phase = Phase::kIdle;
  }
  return world;
}

std::string key_of(const World& world) {
  std::string key;
  const Objects& store = world.store;
  add(&key, store.manifests.size(), store.begins.size(), store.old_begins.size());
  add(&key, store.ends.size(), store.reports.size(), world.late.size());
  for (const Manifest& m : store.manifests) {
    add_text(&key, m.attempt);
    for (const Content content : m.contents) add(&key, content);
  }
  for (const auto& [version, begin] : store.begins) add(&key, version), add_seen(&key, begin);
  for (const auto& [version, begin] : store.old_begins) add(&key, version), add_seen(&key, begin);
  for (const auto& [attempt, end] : store.ends) {
    add_text(&key, attempt), add(&key, end.step, end.ending, names(end.why));
    for (const uint8_t nonce : end.nonces) add(&key, nonce);
  }
  for (const auto& [name, report] : store.reports) {
    add_text(&key, std::get<0>(name)), add(&key, std::get<1>(name), std::get<2>(name));
    add(&key, report.step, report.content, report.changed, report.broken, report.nonce);
  }
  for (const auto& [what, write] : world.late) add_text(&key, what);
  add(&key, world.crashes, world.restarts, world.faults, world.breaks, world.fulls);
  add(&key, world.late_manifest);
  for (const Process& process : world.processes) add_process(&key, process);
  return key;
}

std::vector<Successor> successors(const World& world, const Limits& limits,
                                  std::string* violation) {
  std::vector<Successor> next;
  for (unsigned rank = 0; rank < kRanks; ++rank) {
    step_rank(world, limits, rank, &next, violation);
  }
  if (world.final(limits)) return next;
  for (unsigned rank = 0; rank < kRanks && world.crashes < limits.crashes; ++rank) {
    const Process& process = world.processes[rank];
    if (process.call == world.num_calls(limits) || !limits.mortal.contains(rank)) continue;
    for (const bool next_step : {false, true}) {
      next.push_back({world, false});
      ++next.back().world.crashes;
      crash(&next.back().world.processes[rank], next_step);
    }
  }
  if (world.restarts < limits.restarts) {
    next.push_back({world, false});
    World& anew = next.back().world;
    ++anew.restarts;
    for (Process& process : anew.processes) {
      crash(&process, false);
      process.call = 0;
      process.outcomes = {};
    }
  }
  for (size_t i = 0; i < world.late.size(); ++i) {
    next.push_back({world, false});
    World& landed = next.back().world;
    const size_t versions = landed.store.manifests.size();
    landed.late[i].second(&landed.store);
    landed.late.erase(landed.late.begin() + ptrdiff_t(i));
    if (landed.store.manifests.size() != versions) landed.late_manifest = true;
  }
  return next;
}

std::string describe(const World& world) {
  std::string text;
  for (size_t i = 0; i < world.store.manifests.size(); ++i) {
    const Manifest& m = world.store.manifests[i];
    text += "version " + std::to_string(i) + " by " + m.attempt;
    for (const Content content : m.contents) text += " " + std::to_string(content);
    text += "\n";
  }
  for (const auto& [version, begin] : world.store.begins) {
    text += "begin " + std::to_string(version) + ": " + begin.id + " step " +
            std::to_string(begin.step) + (begin.full ? " full" : "") + "\n";
  }
  for (const auto& [attempt, end] : world.store.ends) {
    text += "end of " + attempt + ": " + std::to_string(int(end.ending)) + " " + end.why + "\n";
  }
  for (const auto& [name, report] : world.store.reports) {
    text += "report to " + std::get<0>(name) + " of rank " + std::to_string(std::get<1>(name)) +
            ": step " + std::to_string(report.step) + "\n";
  }
  for (const auto& [what, write] : world.late) text += "late: " + what + "\n";
  for (unsigned rank = 0; rank < kRanks; ++rank) {
    const Process& p = world.processes[rank];
    text += "rank " + std::to_string(rank) + ": life " + std::to_string(p.life) + " call " +
            std::to_string(p.call) + " phase " + std::to_string(int(p.phase)) + " head " +
            std::to_string(p.head) + (p.uncertain ? " uncertain" : "") + " asks " +
            std::to_string(rank == 0 ? int(p.leader.ask) : int(p.reporter.ask)) + " in " +
            (rank == 0 ? p.leader.attempt : p.reporter.attempt) + " outcomes";
    for (const Outcome& outcome : p.outcomes) text += " " + std::to_string(int(outcome.result));
    text += "\n";
  }
  return text;
}

}  // namespace deltawire::ranks::model
