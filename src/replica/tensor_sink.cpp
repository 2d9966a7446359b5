
#include <algorithm>

#include "base/folder.h"
#include "replica/build.h"
#include "replica/local_state.h"
#include "replica/tensor_replica_impl.h"

namespace deltawire {

Status TensorSink::begin() {
  replica_.drop();
  return remove_tree(work_folder());
}

Status TensorSink::look_at_plan() {
  const Plan& plan = attempt_.plan;
  DW_RETURN_IF_ERROR(replica_.check_forms(plan.schema));
  if (plan.hops.empty()) return {};
  replica_.pending.emplace();
  replica_.pending->target = {plan.target.manifest.version, plan.target.digest};
  replica_.pending->manifest = plan.target.manifest;
  return {};
}

Result<bool> TensorSink::is_there() {
  if (replica_.options.verify_all) {
    attempt_.clock.begin("verify");
    DW_RETURN_IF_ERROR(
        replica_.check_digests(replica_.held_tensors(), attempt_.plan.target.manifest));
  }
  return true;
}

Status TensorSink::stage(const ReadySteps& ready) {
  std::vector<size_t> untouched;
  std::vector<TensorSteps> steps;
  for (const TensorSteps& one : ready.steps) {
    if (one.entries.empty()) {
      untouched.push_back(one.index);
    } else {
      steps.push_back(one);
    }
  }
  const Target target = target_of(attempt_.plan);
  if (replica_.options.verify_all) {
    DW_RETURN_IF_ERROR(replica_.check_digests(untouched, target.manifest));
  }
  for (TensorSet* const set : replica_.sets) {
    std::vector<TensorSteps> own;
    std::copy_if(steps.begin(), steps.end(), std::back_inserter(own),
                 [&](const TensorSteps& one) { return replica_.set_of[one.index] == set; });
    if (own.empty()) continue;
    DW_RETURN_IF_ERROR(set->stage(own, target, attempt_.progress.of_building()));
    for (const TensorSteps& one : own) replica_.pending->staged.push_back(one.index);
  }
  return {};
}

// A tensor that a later delta added: the whole version does not contain it.
Status TensorSink::stage_newer(const TensorSteps& steps) {
  DW_ASSIGN_OR_RETURN(const MutableBytes space, replica_.spill->take(replica_.sizes[steps.index]));
  const std::string& place = steps.entries.front()->place;
  DW_RETURN_IF_ERROR(advance_tensor(steps, target_of(attempt_.plan), place, space, &replica_.pool));
  return replica_.set_of[steps.index]->stage_whole(steps.index, space);
}

// Applies the deltas to the fetched files of a whole version.
Status TensorSink::build(FetchedVersion version) {
  std::vector<TensorSteps>& steps = version.steps;
  std::erase_if(steps, [&](const TensorSteps& one) { return !replica_.set_of[one.index]; });
  const auto newer = std::stable_partition(
      steps.begin(), steps.end(), [](const TensorSteps& one) { return one.from != nullptr; });
  const Target target = target_of(attempt_.plan);
  DW_RETURN_IF_ERROR(
      build_in_place({target, *version.whole, std::span(steps.begin(), newer), true, &replica_.pool,
                      attempt_.progress.of_building(), replica_.memory.work}));
  for (const TensorSteps& one : steps) {
    DW_RETURN_IF_ERROR(one.from == nullptr ? stage_newer(one)
                                           : replica_.set_of[one.index]->stage_whole(
                                                 one.index, one.from->view.bytes));
    replica_.pending->staged.push_back(one.index);
  }
  replica_.pending->source = std::move(version.whole);
  return {};
}

// The files of a whole version are needed until commit().
Status TensorSink::finish() {
  return replica_.pending->source ? Status() : remove_tree(work_folder());
}

}  // namespace deltawire
