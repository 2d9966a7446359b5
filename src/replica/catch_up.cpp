#include "replica/catch_up.h"

#include "base/folder.h"
#include "base/sync_point.h"
#include "replica/hop_files.h"
#include "replica/limits.h"
#include "replica/local_state.h"

namespace deltawire {
namespace {

class CatchUp {
 public:
  CatchUp(const CatchUpStart& start, Attempt* attempt, CatchUpSink* sink)
      : start_(start), attempt_(*attempt), plan_(attempt->plan), sink_(*sink) {}

  Status run(const std::set<std::string>& avoid);
  const std::optional<std::string>& bad_part() const { return bad_part_; }

 private:
  HopFiles parts() const { return {sink_.work_folder(), start_.chain.store().url(), plan_.hops}; }
  Status plan(const std::set<std::string>& avoid);
  Result<std::vector<FetchItem>> items_to_fetch();
  Status note_bad_part(Fetch* fetch, Status status);
  Status patch_while_parts_arrive();
  Status stage_part(size_t part, uint64_t fetched, EagerParts* eager);
  Status fetch_then_build();

  const CatchUpStart& start_;
  Attempt& attempt_;
  const Plan& plan_;  // of the attempt
  CatchUpSink& sink_;
  size_t num_parts_ = 0;  // parts are the first items of the fetch
  std::optional<std::string> bad_part_;
};

Status CatchUp::plan(const std::set<std::string>& avoid) {
  const AttemptGoal& goal = attempt_.goal;
  attempt_.clock.begin("plan");
  DW_RETURN_IF_ERROR(sink_.begin());
  const std::optional<Held> from = goal.from_nothing ? std::nullopt : start_.held;
  if (start_.beat != nullptr && (!from || from->version != goal.version)) {
    start_.beat->fetching(from ? std::optional(from->version) : std::nullopt, goal.version);
  }
  DW_ASSIGN_OR_RETURN(attempt_.plan,
                      plan_pull(start_.chain, from, goal, start_.seen, avoid, &attempt_.report));
  return sink_.look_at_plan();
}

// Parts come first, in the order of the hops.
Result<std::vector<FetchItem>> CatchUp::items_to_fetch() {
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> all, parts().make());
  std::vector<FetchItem> items;
  for (FetchItem& item : all) {
    DW_ASSIGN_OR_RETURN(const bool taken, sink_.take_file(item.part, parts().anchor()));
    if (!taken) items.push_back(std::move(item));
  }
  num_parts_ = items.size();
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> beside, sink_.items_beside());
  items.insert(items.end(), beside.begin(), beside.end());
  return items;
}

Status CatchUp::note_bad_part(Fetch* fetch, Status status) {
  const auto item = fetch->bad_item();
  if (item && *item < num_parts_) bad_part_ = fetch->items()[*item].part.name;
  return status;
}

Status CatchUp::stage_part(size_t part, uint64_t fetched, EagerParts* eager) {
  DW_ASSIGN_OR_RETURN(const EagerParts::Ready ready, eager->add(parts().part(0, part)));
  attempt_.progress.set_fetched(fetched);
  return sink_.stage({ready.steps, false});
}

Status CatchUp::patch_while_parts_arrive() {
  PhaseClock& clock = attempt_.clock;
  clock.end();
  const double fetch_begin = clock.now();
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> items, items_to_fetch());
  Fetch fetch(start_.chain.store(), std::move(items));
  const Target target = target_of(plan_);
  EagerParts eager(target, sink_.held());
  // With several hops a tensor may change more than once.
  const bool early = plan_.hops.size() == 1 && sink_.takes_steps_early();
  std::optional<double> decode_begin;
  while (true) {
    const Result<std::optional<size_t>> next = fetch.next(attempt_.progress.of_fetching());
    if (!next.ok()) return note_bad_part(&fetch, next.status());
    if (!decode_begin) decode_begin = clock.now();
    if (!*next) break;
    if (!early || **next >= num_parts_) continue;
    DW_RETURN_IF_ERROR(stage_part(**next, fetch.received_bytes(), &eager));
  }
  DW_SYNC_POINT("replica: all parts fetched");
  // Check that the parts fit together, and find the remaining steps.
  DW_ASSIGN_OR_RETURN(const std::vector<Delta> deltas, parts().open_deltas(start_.pool));
  DW_ASSIGN_OR_RETURN(std::vector<TensorSteps> steps,
                      collect_steps(sink_.held(), deltas, plan_.schema));
  eager.erase_done(&steps);
  attempt_.progress.set_fetched(attempt_.report.bytes);
  DW_RETURN_IF_ERROR(sink_.stage({steps, true}));
  std::vector<Phase>& phases = attempt_.report.phases;
  phases.push_back({"fetch", fetch_begin, clock.at(fetch.last_arrival())});
  phases.push_back({"decode", *decode_begin, clock.now()});
  return {};
}

Status CatchUp::fetch_then_build() {
  attempt_.clock.begin("fetch");
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> items, items_to_fetch());
  {
    Fetch fetch(start_.chain.store(), std::move(items));
    Status status = fetch.finish(attempt_.progress.of_fetching());
    if (!status.ok()) return note_bad_part(&fetch, std::move(status));
  }
  DW_SYNC_POINT("replica: all parts fetched");
  attempt_.clock.begin("decode");
  FetchedVersion version;
  version.folder = parts().anchor();
  DW_ASSIGN_OR_RETURN(const std::vector<Delta> deltas, parts().open_deltas(start_.pool));
  version.deltas = deltas;
  if (from_whole(plan_)) {
    DW_ASSIGN_OR_RETURN(version.whole, Checkpoint::open(version.folder));
  }
  DW_ASSIGN_OR_RETURN(version.steps,
                      collect_steps(version.whole ? HeldTensors(*version.whole) : sink_.held(),
                                    deltas, plan_.schema));
  attempt_.progress.set_fetched(attempt_.report.bytes);
  return sink_.build(std::move(version));
}

Status CatchUp::run(const std::set<std::string>& avoid) {
  DW_RETURN_IF_ERROR(plan(avoid));
  if (plan_.hops.empty()) {
    DW_ASSIGN_OR_RETURN(const bool there, sink_.is_there());
    if (there) return {};
  }
  DW_RETURN_IF_ERROR(check_hop_sizes(plan_.hops, plan_.schema, sink_.local_bytes()));
  DW_RETURN_IF_ERROR(make_folder(sink_.work_folder()));
  DW_SYNC_POINT("replica: planned");
  bool by_steps = false;
  if (!from_whole(plan_)) {
    DW_ASSIGN_OR_RETURN(by_steps, sink_.open_held());
  }
  DW_RETURN_IF_ERROR(by_steps ? patch_while_parts_arrive() : fetch_then_build());
  return sink_.finish();
}

}  // namespace

Attempted catch_up(const CatchUpStart& start, const std::set<std::string>& avoid, Attempt* attempt,
                   CatchUpSink* sink) {
  CatchUp own(start, attempt, sink);
  Status status = own.run(avoid);
  return {std::move(status), own.bad_part()};
}

}  // namespace deltawire
