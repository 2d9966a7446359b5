// From a version's number to changes that wait for commit(): plan, fetch, decode, check. Nothing of
// the tensors is touched.
#include <algorithm>

#include "replica/build.h"
#include "replica/eager_parts.h"
#include "replica/limits.h"
#include "replica/local_layout.h"
#include "replica/tensor_replica_impl.h"

namespace deltawire {
namespace {

// One way to the version.
class TensorAttempt {
 public:
  TensorAttempt(TensorReplicaCore& replica, const std::set<std::string>& avoid, PullReport* report,
                PhaseClock* clock)
      : replica_(replica), avoid_(avoid), report_(*report), clock_(*clock) {}

  Status run(const AttemptGoal& goal);
  // The part in the store that is damaged or gone, when that is what run() failed with.
  const std::optional<std::string>& bad_part() const { return bad_part_; }

 private:
  HopFiles parts() const { return {replica_.parts_folder(), replica_.store->url(), route_.hops}; }
  Progress progress_of(uint64_t done_before) const;
  Status note_bad_part(Fetch* fetch, Status status);
  Status stage_deltas();
  Status stage_whole();
  Status stage_newer(const TensorSteps& steps);
  Status stage_steps(const std::vector<TensorSteps>& steps, uint64_t fetched);

  TensorReplicaCore& replica_;
  const std::set<std::string>& avoid_;
  PullReport& report_;
  PhaseClock& clock_;
  std::optional<std::string> bad_part_;
  Route route_;
  uint64_t built_bytes_ = 0;  // of weights, for the progress
};

Progress TensorAttempt::progress_of(uint64_t done_before) const {
  if (!replica_.options.progress) return {};
  const uint64_t total = report_.bytes + report_.weights_bytes;
  return [this, done_before, total](uint64_t done, uint64_t) {
    return replica_.options.progress(std::min(total, done_before + done), total);
  };
}

Status TensorAttempt::note_bad_part(Fetch* fetch, Status status) {
  if (const auto item = fetch->bad_item()) bad_part_ = fetch->items()[*item].part.name;
  return status;
}

Status TensorAttempt::stage_steps(const std::vector<TensorSteps>& steps, uint64_t fetched) {
  for (TensorSet* const set : replica_.sets) {
    std::vector<TensorSteps> own;
    std::copy_if(steps.begin(), steps.end(), std::back_inserter(own),
                 [&](const TensorSteps& one) { return replica_.set_of[one.index] == set; });
    if (own.empty()) continue;
    DW_RETURN_IF_ERROR(set->stage(own, route_.target(), progress_of(fetched + built_bytes_)));
    for (const TensorSteps& one : own) {
      replica_.pending->staged.push_back(one.index);
      built_bytes_ += replica_.sizes[one.index];
    }
  }
  return {};
}

// From what the tensors hold: parts are decoded while others arrive.
Status TensorAttempt::stage_deltas() {
  const Target target = route_.target();
  const HeldTensors own(kGivenTensors, replica_.forms);
  // A tensor may change in each of several hops; and a GPU is fastest with all of them at once.
  const bool as_they_come = route_.hops.size() == 1 && !replica_.arrays[size_t(Memory::kCuda)];
  clock_.end();
  const double fetch_begin = clock_.now();
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> items, parts().make());
  Fetch fetch(*replica_.store, std::move(items));
  EagerParts eager(target, own);
  std::optional<double> stage_begin;
  while (true) {
    const Result<std::optional<size_t>> part = fetch.next(progress_of(built_bytes_));
    if (!part.ok()) return note_bad_part(&fetch, part.status());
    if (!stage_begin) stage_begin = clock_.now();
    if (!*part) break;
    if (!as_they_come) continue;
    DW_ASSIGN_OR_RETURN(const EagerParts::Ready ready, eager.add(parts().part(0, **part)));
    DW_RETURN_IF_ERROR(stage_steps(ready.steps, fetch.received_bytes()));
  }
  DW_ASSIGN_OR_RETURN(const std::vector<Delta> deltas, parts().open_deltas());
  DW_ASSIGN_OR_RETURN(std::vector<TensorSteps> steps, collect_steps(own, deltas, route_.schema));
  if (replica_.options.verify_all) {
    std::vector<size_t> untouched;
    for (const TensorSteps& one : steps) {
      if (one.entries.empty()) untouched.push_back(one.index);
    }
    DW_RETURN_IF_ERROR(replica_.check_digests(untouched, target.manifest));
  }
  eager.erase_done(&steps);
  std::erase_if(steps, [](const TensorSteps& one) { return one.entries.empty(); });
  DW_RETURN_IF_ERROR(stage_steps(steps, report_.bytes));
  report_.phases.push_back({"fetch", fetch_begin, clock_.at(fetch.last_arrival())});
  report_.phases.push_back({"decode", *stage_begin, clock_.now()});
  return {};
}

// A tensor that a delta has brought since: the files of the whole version have no room for it.
Status TensorAttempt::stage_newer(const TensorSteps& steps) {
  DW_ASSIGN_OR_RETURN(const MutableBytes room, replica_.spill->take(replica_.sizes[steps.index]));
  const std::string& place = steps.entries.front()->place;
  DW_RETURN_IF_ERROR(advance_tensor(steps, route_.target(), place, room, &replica_.pool));
  return replica_.set_of[steps.index]->stage_whole(steps.index, room);
}

// From a version that is stored whole, through the deltas after it, in files of our own.
Status TensorAttempt::stage_whole() {
  clock_.begin("fetch");
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> items, parts().make());
  {
    Fetch fetch(*replica_.store, std::move(items));
    Status status = fetch.finish(progress_of(0));
    if (!status.ok()) return note_bad_part(&fetch, std::move(status));
  }
  clock_.begin("decode");
  DW_ASSIGN_OR_RETURN(Checkpoint source, Checkpoint::open(parts().anchor()));
  DW_ASSIGN_OR_RETURN(const std::vector<Delta> deltas, parts().open_deltas());
  DW_ASSIGN_OR_RETURN(std::vector<TensorSteps> steps, collect_steps(source, deltas, route_.schema));
  std::erase_if(steps, [&](const TensorSteps& one) { return !replica_.set_of[one.index]; });
  const auto newer = std::stable_partition(
      steps.begin(), steps.end(), [](const TensorSteps& one) { return one.from != nullptr; });
  const Target target = route_.target();
  DW_RETURN_IF_ERROR(build_in_place({target, source, std::span(steps.begin(), newer), true,
                                     &replica_.pool, progress_of(report_.bytes), false}));
  for (const TensorSteps& one : steps) {
    DW_RETURN_IF_ERROR(one.from == nullptr ? stage_newer(one)
                                           : replica_.set_of[one.index]->stage_whole(
                                                 one.index, one.from->view.bytes));
    replica_.pending->staged.push_back(one.index);
  }
  replica_.pending->source = std::move(source);
  return {};
}

Status TensorAttempt::run(const AttemptGoal& goal) {
  const uint64_t version = goal.version;
  replica_.drop();
  clock_.begin("plan");
  const std::optional<Held> from = goal.from_nothing ? std::nullopt : replica_.held;
  if (replica_.beat && (!from || from->version != version)) {
    replica_.beat->fetching(from ? std::optional(from->version) : std::nullopt, version);
  }
  DW_ASSIGN_OR_RETURN(route_,
                      plan_route(*replica_.chain, from, goal, replica_.seen, avoid_, &report_));
  DW_RETURN_IF_ERROR(replica_.check_forms(route_.schema));
  DW_RETURN_IF_ERROR(check_hop_sizes(route_.hops, route_.schema, 0));
  const Manifest& manifest = route_.record.manifest;
  if (route_.hops.empty()) {
    if (!replica_.options.verify_all) return {};
    return replica_.check_digests(replica_.held_tensors(), manifest);
  }
  replica_.pending.emplace();
  replica_.pending->target = {version, route_.record.digest};
  replica_.pending->manifest = manifest;
  DW_RETURN_IF_ERROR(make_folder(replica_.parts_folder()));
  if (route_.from_whole) return stage_whole();
  DW_RETURN_IF_ERROR(stage_deltas());
  return remove_tree(replica_.parts_folder());  // they have served
}

}  // namespace

Status TensorReplicaCore::attempt(const AttemptGoal& goal, PullReport* report, PhaseClock* clock) {
  return go_around_bad_parts(options.repair, kGivenTensors, report,
                             [&](const std::set<std::string>& avoid) -> Attempted {
                               TensorAttempt own(*this, avoid, report, clock);
                               Status status = own.run(goal);
                               return {std::move(status), own.bad_part()};
                             });
}

}  // namespace deltawire
