#include "rank_steps.h"

namespace deltawire::ranks::model {
namespace {

constexpr double kSeconds = 1;

uint8_t nonce_of(const Process& process) {
  return uint8_t(process.life * kMaxCalls + process.call);
}

// One per publish of every process that was ever rank 0.
std::string attempt_of(const Process& process) {
  return std::string(1, char('A' + nonce_of(process)));
}

Status lost() { return unavailable("no answer"); }

// One process's next step, in all the ways it can go.
class Stepper {
 public:
  Stepper(const World& world, const Limits& limits, unsigned rank, std::vector<Successor>* out,
          std::string* violation)
      : world_(world), limits_(limits), rank_(rank), out_(out), violation_(violation) {}

  void step() {
    const Process& own = process(world_);
    switch (own.phase) {
      case Phase::kOpenHead:
      case Phase::kHead:
        return read_head();
      case Phase::kOpenBegin:
        return read<AttemptSeen>(begin_at(world_.store, uint64_t(own.head + 1)), stale_begin(),
                                 [](Process* p, const std::optional<AttemptSeen>& seen) {
                                   if (seen) p->before = {seen->id, false};
                                   p->phase = seen ? Phase::kOpenEnd : Phase::kIdle;
                                 });
      case Phase::kOpenEnd:
        return read<End>(end_of(own.before->attempt), std::nullopt,
                         [](Process* p, const std::optional<End>& end) {
                           p->before->over = end.has_value();
                           p->phase = Phase::kIdle;
                         });
      case Phase::kIdle:
        if (own.call == num_calls()) return;
        return go_on([this](Process* p) {
          p->phase = p->uncertain ? Phase::kHead : Phase::kCall;
          if (!p->uncertain) start(p);
        });
      case Phase::kCall:
        return rank_ == 0 ? lead() : report_to_lead();
    }
  }

 private:
  Process& process(World& world) const { return world.processes[rank_]; }
  const Process& process(const World& world) const { return world.processes[rank_]; }
  size_t num_calls() const { return world_.num_calls(limits_); }
  const std::vector<Content>& contents() const {
    return world_.restarts == 0 ? limits_.contents : limits_.contents_anew;
  }
  Content content() const { return contents()[process(world_).call]; }
  uint64_t step_number() const { return process(world_).call + 1; }
  bool may_fail() const { return world_.faults < limits_.faults; }

  void violated(const std::string& what) const {
    if (violation_->empty()) *violation_ = "rank " + std::to_string(rank_) + ": " + what;
  }

  // A step that does one thing.
  void each_way(const std::function<void(World*, Process*)>& change) {
    Successor next{world_};
    change(&next.world, &process(next.world));
    settle(&next.world);
    out_->push_back(std::move(next));
  }
  // What nobody else can see, and the step after it.
  void go_on(const std::function<void(Process*)>& change) {
    World world = world_;
    change(&process(world));
    Stepper(world, limits_, rank_, out_, violation_).step();
  }
  void faulty(const std::function<void(World*, Process*)>& change) {
    if (!may_fail()) return;
    Successor next{world_, false};
    ++next.world.faults;
    change(&next.world, &process(next.world));
    settle(&next.world);
    out_->push_back(std::move(next));
  }

  template <class Object>
  void read(const std::optional<Object>& now, const std::optional<Object>& stale,
            const std::function<void(Process*, const std::optional<Object>&)>& take) {
    each_way([&](World*, Process* p) { take(p, now); });
    if (now) faulty([&](World*, Process* p) { take(p, stale); });
    faulty([&](World*, Process* p) { fail(p, lost()); });
  }
  void put(const std::string& what, const Put& write,
           const std::function<void(Process*, const Status&)>& take) {
    each_way([&](World* w, Process* p) { write(&w->store), take(p, {}); });
    faulty([&](World* w, Process* p) { write(&w->store), take(p, lost()); });
    faulty([&](World*, Process* p) { take(p, lost()); });
    faulty([&](World* w, Process* p) { w->late.emplace_back(what, write), take(p, lost()); });
  }
  void fail(Process* p, const Status& status) const {
    if (p->phase != Phase::kCall) return;  // it opens again, or asks again
    if (rank_ == 0) {
      p->leader = failed(p->leader, status);
    } else {
      p->reporter = failed(p->reporter, status);
    }
  }

  std::optional<AttemptSeen> begin_at(const Objects& store, uint64_t version) const {
    const auto found = store.begins.find(version);
    return found == store.begins.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<AttemptSeen> stale_begin() const {
    const uint64_t version =
        process(world_).phase == Phase::kCall
            ? (rank_ == 0 ? process(world_).leader.version : process(world_).reporter.version)
            : uint64_t(process(world_).head + 1);
    const auto found = world_.store.old_begins.find(version);
    return found == world_.store.old_begins.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<End> end_of(const std::string& attempt) const {
    const auto found = world_.store.ends.find(attempt);
    return found == world_.store.ends.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<End> end_of_step(uint64_t version, uint64_t step) const {
    for (const auto& [attempt, end] : world_.store.ends) {
      if (end.version == version && end.step == step) return end;
    }
    return std::nullopt;
  }

  void read_head() {
    const auto take = [this](World* w, Process* p, size_t versions) {
      p->head = int8_t(versions) - 1;
      p->held = versions == 0 ? 0 : w->store.manifests[versions - 1].contents[rank_];
      p->uncertain = false;
      const bool opening = p->phase == Phase::kOpenHead;
      p->phase = !opening ? Phase::kCall : rank_ == 0 ? Phase::kIdle : Phase::kOpenBegin;
      if (p->phase == Phase::kCall) start(p);
    };
    const size_t versions = world_.store.manifests.size();
    each_way([&](World* w, Process* p) { take(w, p, versions); });
    if (versions > 1) faulty([&](World* w, Process* p) { take(w, p, versions - 1); });
  }

  void start(Process* p) const {
    const uint64_t version = uint64_t(p->head + 1);
    if (rank_ == 0) {
      std::optional<Leader::Open> open;
      if (p->open && p->open->first == version) open = p->open->second;
      p->heard = {};
      p->leader = start_leading(version, step_number(), kRanks, attempt_of(*p), false, open);
    } else {
      p->reporter = start_reporting(version, step_number(), rank_, p->before, p->reported);
    }
  }

  // ---- rank 0

  void lead() {
    const Leader& l = process(world_).leader;
    const Objects& store = world_.store;
    switch (l.ask) {
      case Leader::Ask::kPutEnd: {
        End end{l.version, l.about_step, l.ending, l.why, {}};
        for (unsigned r = 0; r < kRanks; ++r) end.nonces[r] = process(world_).heard[r].nonce;
        return put(
            "end" + l.about + char('0' + int(l.ending)),
            [about = l.about, end](Objects* o) { o->ends[about] = end; },
            [](Process* p, const Status& s) { p->leader = put_end(p->leader, s); });
      }
      case Leader::Ask::kReadBegin:
        return read<AttemptSeen>(begin_at(store, l.version), stale_begin(),
                                 [](Process* p, const std::optional<AttemptSeen>& seen) {
                                   p->leader = read_begin(p->leader, seen);
                                 });
      case Leader::Ask::kReadEnd:
        return read<End>(end_of(l.about), std::nullopt,
                         [](Process* p, const std::optional<End>& end) {
                           std::optional<EndSeen> seen;
                           if (end) seen = EndSeen{end->ending, true, end->why};
                           p->leader = read_end(p->leader, seen);
                         });
      case Leader::Ask::kPutBegin:
        return put(
            "begin" + l.attempt + (l.full ? "f" : "d"),
            [version = l.version, begin = AttemptSeen{l.attempt, l.step, l.full}](Objects* o) {
              // Reports to attempts that are over are of no use.
              std::erase_if(o->reports, [&](const auto& r) {
                return r.second.version == version && std::get<0>(r.first) != begin.id;
              });
              const auto there = o->begins.find(version);
              if (there != o->begins.end()) o->old_begins[version] = there->second;
              o->begins[version] = begin;
            },
            [](Process* p, const Status& s) { p->leader = put_begin(p->leader, s); });
      case Leader::Ask::kPrepare:
        work([](Process* p) { p->leader = prepared(p->leader); },
             [this](Process* p) { fail(p, io_error("rank 0" + std::string(kBroke))); });
        return;
      case Leader::Ask::kReadReport:
        return read_report_of(l.about_rank);
      case Leader::Ask::kReadManifest:
        return read<Manifest>(manifest_at(l.version), std::nullopt,
                              [](Process* p, const std::optional<Manifest>& manifest) {
                                p->leader = read_manifest(p->leader, manifest.has_value());
                              });
      case Leader::Ask::kPause:
        return pause([](Process* p, Pause how) { p->leader = paused(p->leader, how, kSeconds); });
      case Leader::Ask::kDecide:
        return decide();
      case Leader::Ask::kCommit:
        return commit();
      case Leader::Ask::kOver:
        return;  // settled
    }
  }

  std::optional<Manifest> manifest_at(uint64_t version) const {
    const auto& manifests = world_.store.manifests;
    return version < manifests.size() ? std::optional(manifests[version]) : std::nullopt;
  }

  void work(const std::function<void(Process*)>& done, const std::function<void(Process*)>& broke) {
    each_way([&](World*, Process* p) { done(p); });
    if (world_.breaks == limits_.breaks) return;
    each_way([&](World* w, Process* p) { ++w->breaks, broke(p); });
    out_->back().plain = false;
  }

  void pause(const std::function<void(Process*, Pause)>& take) {
    go_on([&](Process* p) { take(p, Pause::kGoOn); });
    if (!limits_.timeouts) return;
    Successor next{world_, false};
    take(&process(next.world), Pause::kTimedOut);
    settle(&next.world);
    out_->push_back(std::move(next));
  }

  void read_report_of(unsigned rank) {
    const Leader& l = process(world_).leader;
    const auto found = world_.store.reports.find({l.attempt, rank, l.full});
    const bool there = found != world_.store.reports.end();
    read<Report>(there ? std::optional(found->second) : std::nullopt, std::nullopt,
                 [&, rank](Process* p, const std::optional<Report>& report) {
                   if (report && report->broken) {
                     return fail(p, cancelled("rank " + std::to_string(rank) + kBroke));
                   }
                   if (report && report->step != p->leader.step)
                     violated("a report of another step");
                   if (report) p->heard[rank] = *report;
                   p->leader = read_report(p->leader, report.has_value());
                 });
  }

  void decide() {
    const Process& own = process(world_);
    bool changed = content() != own.held;
    for (unsigned r = 1; r < kRanks; ++r) changed = changed || own.heard[r].changed;
    each_way([&](World*, Process* p) {
      p->leader = decided(p->leader, changed ? Decision::kCommit : Decision::kUnchanged);
    });
    if (own.leader.full || world_.fulls == limits_.fulls) return;
    each_way([](World* w, Process* p) {
      ++w->fulls;
      p->leader = decided(p->leader, Decision::kFull);
    });
  }

  void commit() {
    const Process& own = process(world_);
    const uint64_t version = own.leader.version;
    Manifest manifest{own.leader.attempt, {content()}};
    for (unsigned r = 1; r < kRanks; ++r) manifest.contents[r] = own.heard[r].content;
    for (const Content of_rank : manifest.contents) {
      if (of_rank != content()) violated("a version of several steps");
    }
    if (version < world_.store.manifests.size()) {
      return each_way([this](World*, Process* p) { fail(p, conflict("another was first")); });
    }
    const Put write = [manifest](Objects* o) { o->manifests.push_back(manifest); };
    const auto unknown = [](Process* p) { p->leader = may_be_committed(p->leader, lost()); };
    each_way([&](World* w, Process* p) { write(&w->store), p->leader = committed(p->leader); });
    faulty([&](World* w, Process* p) { write(&w->store), unknown(p); });
    faulty([&](World*, Process* p) { unknown(p); });
    faulty([&](World* w, Process* p) {
      w->late.emplace_back("manifest" + std::to_string(version) + manifest.attempt,
                           [version, write](Objects* o) {
                             if (o->manifests.size() == version) write(o);
                           });
      unknown(p);
    });
  }

  void end_of_lead(World* world, Process* p) const {
    const Leader l = p->leader;
    Outcome& outcome = p->outcomes[p->call];
    if (l.verdict == Leader::Verdict::kCommitted) {
      Objects& store = world->store;
      if (store.manifests[l.version].attempt != l.attempt) violated("not its own version");
      store.begins.erase(l.version);  // nothing of this version is pending any more
      store.old_begins.erase(l.version);
      std::erase_if(store.ends, [&](const auto& end) { return end.second.version == l.version; });
      std::erase_if(store.reports, [&](const auto& r) { return r.second.version == l.version; });
      p->head = int8_t(l.version);
      p->held = content();
      outcome.result = Result::kCommitted;
    } else if (l.verdict == Leader::Verdict::kUnchanged) {
      if (content() != p->held) violated("says unchanged, and is not");
      outcome.result = Result::kUnchanged;
    } else {
      outcome = {Result::kFailed, l.failure.message().find(kBroke) != std::string::npos};
      p->uncertain = true;
    }
    p->open.reset();
    if (l.open) p->open = {l.version, *l.open};
    p->leader = {};
    p->heard = {};
    if (!limits_.keep_outcomes && p->call + 1u != num_calls()) outcome = {};
    p->has_published = true;
    ++p->call;
    p->phase = Phase::kIdle;
  }

  // ---- the others

  void report_to_lead() {
    const Reporter& f = process(world_).reporter;
    switch (f.ask) {
      case Reporter::Ask::kReadBegin:
        return read<AttemptSeen>(begin_at(world_.store, f.version), stale_begin(),
                                 [](Process* p, const std::optional<AttemptSeen>& seen) {
                                   p->reporter = read_begin(p->reporter, seen);
                                 });
      case Reporter::Ask::kReadManifest:
        return read<Manifest>(manifest_at(f.version), std::nullopt,
                              [](Process* p, const std::optional<Manifest>& manifest) {
                                std::optional<std::string> attempt;
                                if (manifest) attempt = manifest->attempt;
                                p->reporter = read_manifest(p->reporter, attempt);
                              });
      case Reporter::Ask::kReadEnd:
        return read<End>(
            end_of(f.about), std::nullopt, [this](Process* p, const std::optional<End>& end) {
              std::optional<EndSeen> seen;
              if (end) {
                seen = EndSeen{end->ending, end->nonces[rank_] == nonce_of(*p), end->why};
              }
              p->reporter = read_end(p->reporter, seen);
            });
      case Reporter::Ask::kFindEnd:
        return read<End>(end_of_step(f.version, f.step), std::nullopt,
                         [](Process* p, const std::optional<End>& end) {
                           std::optional<EndSeen> seen;
                           if (end) seen = EndSeen{end->ending, false, end->why};
                           p->reporter = found_end(p->reporter, seen);
                         });
      case Reporter::Ask::kReport:
        return report();
      case Reporter::Ask::kPause:
        return pause(
            [](Process* p, Pause how) { p->reporter = paused(p->reporter, how, kSeconds); });
      case Reporter::Ask::kOver:
        return;  // settled
    }
  }

  void report() {
    const Process& own = process(world_);
    const ReportName name{own.reporter.attempt, rank_, own.reporter.full};
    Report report{own.reporter.version, own.reporter.step, content(), content() != own.held, false,
                  nonce_of(own)};
    const auto write = [&](const Report& r) {
      return Put([name, r](Objects* o) { o->reports[name] = r; });
    };
    put("report" + std::get<0>(name) + char('0' + rank_) + (own.reporter.full ? "f" : "d") +
            char('0' + report.nonce),
        write(report), [this](Process* p, const Status& status) {
          if (!status.ok()) return fail(p, status);
          p->reporter = reported(p->reporter);
        });
    if (world_.breaks == limits_.breaks) return;
    report.broken = true;
    each_way([&](World* w, Process* p) {
      ++w->breaks;
      write(report)(&w->store);
      fail(p, io_error("rank " + std::to_string(rank_) + kBroke));
    });
    out_->back().plain = false;
  }

  void end_of_follow(const World& world, Process* p) const {
    const Reporter f = p->reporter;
    p->reported = f.reported;
    p->reporter = {};
    if (f.verdict == Reporter::Verdict::kMoved) {
      p->phase = Phase::kHead;
      return;
    }
    Outcome& outcome = p->outcomes[p->call];
    if (f.verdict == Reporter::Verdict::kCommitted) {
      if (world.store.manifests[f.version].contents[rank_] != content()) {
        violated("succeeds, and the version is not what it published");
      }
      p->head = int8_t(f.version);
      p->held = content();
      p->reported.clear();
      outcome.result = Result::kCommitted;
    } else if (f.verdict == Reporter::Verdict::kUnchanged) {
      if (content() != p->held) violated("hears unchanged, and is not");
      p->reported.clear();
      outcome.result = Result::kUnchanged;
    } else {
      outcome = {Result::kFailed, f.failure.message().find(kBroke) != std::string::npos};
      p->uncertain = true;
    }
    if (!limits_.keep_outcomes && p->call + 1u != num_calls()) outcome = {};
    p->has_published = true;
    ++p->call;
    p->phase = Phase::kIdle;
  }

  // What a process does by itself, and what must then hold of all at rest.
  void settle(World* world) const {
    Process* const own = &process(*world);
    if (own->phase == Phase::kCall && rank_ == 0) {
      Leader& l = own->leader;
      if (l.ask == Leader::Ask::kPrepare && world->breaks == limits_.breaks) l = prepared(l);
      if (l.ask == Leader::Ask::kOver) end_of_lead(world, own);
    } else if (own->phase == Phase::kCall && own->reporter.ask == Reporter::Ask::kOver) {
      end_of_follow(*world, own);
    }
    for (const Process& p : world->processes) {
      if (p.phase != Phase::kIdle || p.uncertain) continue;
      const auto& manifests = world->store.manifests;
      const size_t rank = size_t(&p - world->processes.data());
      const Content committed = p.head < 0 ? 0 : manifests[size_t(p.head)].contents[rank];
      if (p.held != committed) violated("a snapshot that is not what was committed");
      // A process that was just opened may have looked before the newest version came.
      if (p.has_published && !world->late_manifest && world->faults == 0 &&
          size_t(p.head + 1) != manifests.size()) {
        violated("a snapshot that is stale and not known to be");
      }
    }
  }

  const World& world_;
  const Limits& limits_;
  const unsigned rank_;
  std::vector<Successor>* const out_;
  std::string* const violation_;
};

}  // namespace

void step_rank(const World& world, const Limits& limits, unsigned rank, std::vector<Successor>* out,
               std::string* violation) {
  Stepper(world, limits, rank, out, violation).step();
}

}  // namespace deltawire::ranks::model
