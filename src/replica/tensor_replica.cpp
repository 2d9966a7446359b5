#include "deltawire/tensor_replica.h"
#include "base/folder.h"

#include <unistd.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/guard.h"
#include "chain/names.h"
#include "replica/device_tensors.h"
#include "replica/local_state.h"
#include "replica/plan_pull.h"
#include "replica/recognise.h"
#include "replica/tensor_replica_impl.h"
#include "replica/tensor_set.h"
#include "replica/tensor_sink.h"
#include "replica/tensors.h"
#include "tensor/box.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

Status check_tensor(const LiveTensor& tensor) {
  DW_RETURN_IF_ERROR(check_box(tensor.box, tensor.dtype, tensor.shape));
  DW_RETURN_IF_ERROR(tensor_size_bytes(tensor.dtype, tensor.shape).status());
  DW_ASSIGN_OR_RETURN(const uint64_t size,
                      tensor_size_bytes(tensor.dtype, box_shape(tensor.box, tensor.shape)));
  if (size == tensor.bytes.size()) return {};
  return invalid_argument("expected " + std::to_string(size) + " bytes, got " +
                          std::to_string(tensor.bytes.size()));
}

// Of one tensor.
Status check_boxes(std::span<const LiveTensor> boxes) {
  const LiveTensor& first = boxes[0];
  for (size_t i = 1; i < boxes.size(); ++i) {
    if (!same_form(boxes[i], first)) {
      return invalid_argument(place_of(boxes[i]) + ": given as " + form_of(first) + " and as " +
                              form_of(boxes[i]));
    }
    for (size_t j = 0; j < i; ++j) {
      if (boxes[i].bytes.empty() || boxes[j].bytes.empty()) continue;
      if (!overlap(boxes[i].box, boxes[j].box)) continue;
      return invalid_argument(place_of(boxes[i]) + (boxes[i].box == boxes[j].box
                                                        ? ": is given twice"
                                                        : ": meets " + place_of(boxes[j])));
    }
  }
  return {};
}

}  // namespace

Status TensorReplicaCore::open(std::vector<LiveTensor> tensors) {
  for (LiveTensor& tensor : tensors) {
    DW_RETURN_IF_ERROR(check_tensor(tensor).at(place_of(tensor)));
    tensor.box = normalise_box(std::move(tensor.box), tensor.shape);
  }
  DW_ASSIGN_OR_RETURN(Chain opened, open_chain(store, options.accept));
  chain.emplace(std::move(opened));
  DW_ASSIGN_OR_RETURN(WorkFolder folder, WorkFolder::make(options.scratch));
  scratch.emplace(std::move(folder));
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const LiveTensor& a, const LiveTensor& b) { return a.name < b.name; });
  const bool boxes = std::any_of(tensors.begin(), tensors.end(), [](const LiveTensor& tensor) {
    return !tensor.box.whole() && !tensor.bytes.empty();
  });
  memory = share_tensor_memory(options.limits.memory_bytes);
  now.memory = memory.work;
  if (boxes) memory.waiting_bytes /= 2;  // one half for arrays, one for backings
  spill = std::make_unique<SpillSpace>(scratch->path(), memory.waiting_bytes);
  if (boxes) boxed = std::make_unique<BoxedTensors>(&pool, scratch->path(), memory, spill.get());
  size_t next_box = tensors.size();  // behind all tensors
  for (size_t begin = 0, end = 0; begin < tensors.size(); begin = end) {
    while (end < tensors.size() && tensors[end].name == tensors[begin].name) ++end;
    DW_RETURN_IF_ERROR(add_tensor(std::span(tensors).subspan(begin, end - begin), &next_box));
  }
  for (const auto& set : arrays) {
    if (set) sets.push_back(set.get());
  }
  if (boxed) sets.push_back(boxed.get());
  if (options.heartbeat) {
    const std::string id = random_hex(16);
    beat = std::make_unique<ReplicaBeat>(
        store, options.name.empty() ? default_name(std::to_string(::getpid()), id) : options.name,
        id);
  }
  return {};
}

Status TensorReplicaCore::add_tensor(std::span<const LiveTensor> boxes, size_t* next_box) {
  DW_RETURN_IF_ERROR(check_boxes(boxes));
  const LiveTensor& first = boxes[0];
  const size_t number = forms.size();
  const TensorView view{first, {}};
  forms.push_back({view, 0, 0});
  sizes.push_back(tensor_size_bytes(first.dtype, first.shape).value());  // was checked
  set_of.push_back(nullptr);
  std::vector<BoxedTensors::Piece> pieces;
  for (const LiveTensor& tensor : boxes) {
    if (!tensor.box.whole() && tensor.bytes.empty()) continue;
    DW_ASSIGN_OR_RETURN(ArraySet* const set, arrays_for(tensor));
    const size_t array = tensor.box.whole() ? number : (*next_box)++;
    set->add(array, tensor);
    if (tensor.box.whole()) {
      if (tensor.memory == Memory::kHost) {
        now.tensors.push_back({tensor, tensor.bytes});
      }
      set_of.back() = set;
    } else {
      pieces.push_back({array, tensor.box, set});
    }
  }
  if (pieces.empty()) return {};
  set_of.back() = boxed.get();
  boxed->add(number, view, std::move(pieces));
  return {};
}

Result<ArraySet*> TensorReplicaCore::arrays_for(const LiveTensor& tensor) {
  std::unique_ptr<ArraySet>& set = arrays[size_t(tensor.memory)];
  if (!set && tensor.memory == Memory::kHost) {
    set = std::make_unique<HostTensors>(&pool, scratch->path(), memory.work, spill.get(), &ahead);
  }
  if (!set) {
    DW_ASSIGN_OR_RETURN(set, DeviceTensors::open(options, tensor, &pool, scratch->path(),
                                                 memory.work, spill.get()));
  }
  return set.get();
}

std::vector<size_t> TensorReplicaCore::held_tensors() const {
  std::vector<size_t> all;
  for (size_t i = 0; i < set_of.size(); ++i) {
    if (set_of[i] != nullptr) all.push_back(i);
  }
  return all;
}

Result<std::optional<uint64_t>> TensorReplicaCore::head() {
  return find_head(proven ? std::optional(proven->version) : std::nullopt);
}

void TensorReplicaCore::drop() {
  pending.reset();
  for (TensorSet* const set : sets) set->drop();
  spill->clear();
}

Status TensorReplicaCore::check_forms(const Schema& schema) const {
  for (size_t i = 0; i < std::max(schema.tensors.size(), forms.size()); ++i) {
    const bool given = i < forms.size(), wanted = i < schema.tensors.size();
    if (!given || (wanted && schema.tensors[i].name < forms[i].view.name)) {
      return invalid_argument("tensor " + quote(schema.tensors[i].name) + ": the version has it, " +
                              "and it was not given");
    }
    const TensorView& own = forms[i].view;
    if (!wanted || own.name < schema.tensors[i].name) {
      return invalid_argument("tensor " + quote(own.name) + ": was given, and the version does " +
                              "not have it");
    }
    const TensorSpec& other = schema.tensors[i];
    if (!same_form(own, other)) {
      return invalid_argument("tensor " + quote(own.name) + ": the version has " + form_of(other) +
                              ", given was " + form_of(own));
    }
  }
  return {};
}

Status TensorReplicaCore::check_digests(const std::vector<size_t>& which, const Manifest& manifest,
                                        When when) {
  for (TensorSet* const set : sets) {
    std::vector<size_t> own;
    std::copy_if(which.begin(), which.end(), std::back_inserter(own),
                 [&](size_t number) { return set_of[number] == set; });
    if (own.empty()) continue;
    DW_RETURN_IF_ERROR(when == When::kBefore ? set->check(own, manifest)
                                             : set->check_written(own, manifest));
  }
  return {};
}

Status TensorReplicaCore::recognise(const PullGoal& goal, PullReport*, PhaseClock* clock) {
  const std::optional<uint64_t> wanted = goal.version ? goal.version : goal.head;
  if (held || recognised || !wanted) return {};
  clock->begin("recognise");
  const auto holds = [&](const VersionRecord& record) -> Result<bool> {
    DW_ASSIGN_OR_RETURN(const Schema schema, chain->schema(record.manifest));
    if (!check_forms(schema).ok()) return false;
    DW_RETURN_IF_ERROR(states_of(schema, record.manifest).status());
    std::vector<size_t> all = held_tensors();
    // A small tensor shows soon that it is another version.
    std::stable_sort(all.begin(), all.end(),
                     [&](size_t a, size_t b) { return sizes[a] < sizes[b]; });
    const Status status = check_digests(all, record.manifest);
    if (status.code() == Code::kBaseMismatch) return false;
    if (!status.ok()) return status;
    return true;
  };
  recognised = true;
  if (boxed) {
    DW_ASSIGN_OR_RETURN(const bool all,
                        guard_memory("gathering boxes", [&] { return boxed->gather(); }));
    if (!all) return {};  // parts of tensors are anybody's
  }
  Result<std::optional<Held>> found = recognise_version(*chain, *wanted, holds);
  recognised = found.ok();
  DW_ASSIGN_OR_RETURN(held, std::move(found));
  proven = held;
  return {};
}

Result<PullReport> TensorReplicaCore::prepare(const PullGoal& goal) {
  drop();
  for (TensorSet* const set : sets) {
    Status status = set->settle();
    if (!status.ok()) held.reset();
    DW_RETURN_IF_ERROR(std::move(status));
  }
  DW_RETURN_IF_ERROR(remove_tree(parts_folder()));  // of a whole version: as large as the model
  return prepare_pull(goal);
}

Status TensorReplicaCore::check_usable(uint64_t wanted, PullReport*) {
  if (held || options.repair) return {};
  return base_mismatch(std::string(kGivenTensors) + " hold no version that leads to " +
                       std::to_string(wanted));
}

std::unique_ptr<CatchUpSink> TensorReplicaCore::make_sink(Attempt* attempt) {
  return std::make_unique<TensorSink>(this, attempt);
}

std::optional<Identity> TensorReplicaCore::identity() const {
  if (!held) return {};
  return Identity{chain->run(), held->version, held->manifest.hex()};
}

void TensorReplicaCore::abandon() {
  drop();
  (void)remove_tree(parts_folder());
  if (beat && held) beat->holds(identity(), {});
}

void TensorReplicaCore::keep_report(PullReport* report) {
  report->changed = pending.has_value();
  if (!pending) {
    // They may have held it from the start: nobody has been told yet.
    if (beat && held) beat->holds(identity(), {});
    return;
  }
  for (const TensorSet* const set : sets) {
    report->num_changed += set->num_staged();
    report->staged_device_bytes += set->staged_device_bytes();
  }
  pending->report = *report;
}

Result<PullReport> TensorReplicaCore::commit() {
  PullReport report;
  if (!pending) {
    report.run = chain->run();
    if (held) static_cast<Identity&>(report) = *identity();
    if (held) report.from = held->version;
    return report;
  }
  const Pending step = std::move(*pending);
  pending.reset();
  report = step.report;
  PullReport timed;
  PhaseClock clock(&timed);
  held.reset();  // from here on, until all is written and proven
  clock.begin("patch");
  Status status;
  for (TensorSet* const set : sets) {
    if (status.ok()) status = set->commit();
  }
  if (status.ok() && options.check_commit) {
    clock.begin("check");
    status = check_digests(step.staged, step.manifest, When::kWritten).at("after the patch");
  }
  clock.end();
  report.patch_seconds = clock.now();
  for (const Phase& phase : timed.phases) {
    report.phases.push_back({phase.name, report.seconds + phase.begin, report.seconds + phase.end});
  }
  report.seconds += clock.now();
  if (!status.ok()) {
    for (TensorSet* const set : sets) set->forget();
  }
  drop();
  if (!status.ok()) return status;
  proven = held = step.target;
  if (beat) beat->holds(identity(), {});
  return report;
}

TensorReplica::TensorReplica(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TensorReplica::~TensorReplica() = default;
TensorReplica::TensorReplica(TensorReplica&&) noexcept = default;
TensorReplica& TensorReplica::operator=(TensorReplica&&) noexcept = default;

Result<TensorReplica> TensorReplica::open(std::shared_ptr<Store> store,
                                          std::vector<LiveTensor> tensors,
                                          TensorReplicaOptions options) {
  auto impl = std::make_unique<Impl>(std::move(store), std::move(options));
  DW_RETURN_IF_ERROR(impl->open(std::move(tensors)));
  return TensorReplica(std::move(impl));
}

std::optional<uint64_t> TensorReplica::version() const noexcept {
  return impl_->held ? std::optional(impl_->held->version) : std::nullopt;
}
Result<std::optional<uint64_t>> TensorReplica::head() { return impl_->head(); }
uint64_t TensorReplica::prepare_ahead() { return impl_->prepare_ahead(); }
Result<PullReport> TensorReplica::prepare(const PullGoal& goal) { return impl_->prepare(goal); }
Result<PullReport> TensorReplica::commit() { return impl_->commit(); }

Result<PullReport> TensorReplica::pull(const PullGoal& goal) {
  DW_ASSIGN_OR_RETURN(PullReport prepared, prepare(goal));
  if (!impl_->pending) return prepared;
  return commit();
}

}  // namespace deltawire
