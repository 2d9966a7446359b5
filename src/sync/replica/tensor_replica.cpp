#include "deltawire/tensor_replica.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <set>

#include "base/log.h"
#include "base/thread_pool.h"
#include "chain/chain.h"
#include "chain/keys.h"
#include "chain/plan.h"
#include "sync/chain_state.h"
#include "sync/replica/beat.h"
#include "sync/replica/build.h"
#include "sync/replica/device_tensors.h"
#include "sync/replica/eager_parts.h"
#include "sync/replica/fetch.h"
#include "sync/replica/host_tensors.h"
#include "sync/replica/limits.h"
#include "sync/replica/local_layout.h"
#include "sync/replica/phase_clock.h"
#include "sync/replica/recognise.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr const char* kPlace = "the tensors given";

Status check_tensors(const std::vector<LiveTensor>& tensors) {
  std::set<std::string_view> names;
  for (const LiveTensor& tensor : tensors) {
    const std::string place = "tensor " + quote(tensor.name);
    const Result<uint64_t> size = tensor_size_bytes(tensor.dtype, tensor.shape);
    if (!size.ok()) return Status(size.status()).at(place);
    if (*size != tensor.bytes.size()) {
      return invalid_argument(place + ": expected " + std::to_string(*size) + " bytes, got " +
                              std::to_string(tensor.bytes.size()));
    }
    if (!names.insert(tensor.name).second) return invalid_argument(place + ": is given twice");
  }
  return {};
}

std::string form(DType dtype, const Shape& shape) {
  return std::string(dtype_name(dtype)) + " " + shape_to_string(shape);
}

}  // namespace

struct TensorReplica::Impl {
  Impl(std::shared_ptr<Store> the_store, TensorReplicaOptions the_options)
      : store(std::move(the_store)), options(std::move(the_options)), pool(options.threads) {}

  const std::shared_ptr<Store> store;
  const TensorReplicaOptions options;
  ThreadPool pool;
  std::optional<Chain> chain;
  std::unique_ptr<ReplicaBeat> beat;
  std::optional<WorkFolder> scratch;
  std::vector<CheckpointTensor> forms;  // sorted by name; bytes may be a device's
  // Every tensor, by its number in `forms`, is in one of them.
  std::array<std::unique_ptr<TensorSet>, 2> sets;  // by kind of memory; null: has none
  std::vector<TensorSet*> set_of;

  std::optional<Held> held;
  bool recognised = false;  // what the tensors held at first has been looked at
  std::optional<VersionRecord> seen;

  struct Pending {
    Held target;
    Manifest manifest;
    std::vector<size_t> staged;        // tensors to write
    std::optional<Checkpoint> source;  // what whole contents point into
    PullReport report;
  };
  std::optional<Pending> pending;

  Status open(std::vector<LiveTensor> tensors);
  Result<std::optional<uint64_t>> head();
  Result<PullReport> prepare(std::optional<uint64_t> wanted);
  Result<PullReport> commit();

  // One way to the version; leaves `pending`.
  Status attempt(bool from_nothing, uint64_t version, PullReport* report, PhaseClock* clock);
  Status check_forms(const Schema& schema) const;
  Status recognise(uint64_t wanted);
  Status stage_deltas(const Plan& plan, PullReport* report, PhaseClock* clock);
  Status stage_whole(const Plan& plan, PullReport* report, PhaseClock* clock);
  Status stage_steps(const std::vector<TensorSteps>& steps, const Target& target,
                     const Progress& progress);
  Status check_digests(const std::vector<size_t>& which, const Manifest& manifest);
  Result<TensorSet*> set_for(Memory memory);
  void drop();
  fs::path hop_folder(size_t hop) const { return scratch->path() / ("hop-" + std::to_string(hop)); }
  Result<std::vector<FetchItem>> items_of(const std::vector<Hop>& hops) const;
  PartFile part_file(const std::vector<Hop>& hops, size_t hop, size_t part) const {
    return {hop_folder(hop) / ("part-" + std::to_string(part)),
            store->url() + "/" + hops[hop].parts[part].name};
  }
  Result<std::vector<Delta>> open_deltas(const std::vector<Hop>& hops) const;
  Progress progress_of(const PullReport& report, uint64_t done_before) const;
};

Status TensorReplica::Impl::open(std::vector<LiveTensor> tensors) {
  DW_RETURN_IF_ERROR(check_tensors(tensors));
  DW_ASSIGN_OR_RETURN(ChainOptions how, chain_options({}, options.trust_key));
  DW_ASSIGN_OR_RETURN(Chain opened, Chain::open(store, std::move(how)));
  chain.emplace(std::move(opened));
  DW_ASSIGN_OR_RETURN(WorkFolder folder, WorkFolder::make(options.scratch));
  scratch.emplace(std::move(folder));
  std::sort(tensors.begin(), tensors.end(),
            [](const LiveTensor& a, const LiveTensor& b) { return a.name < b.name; });
  for (LiveTensor& tensor : tensors) {
    DW_ASSIGN_OR_RETURN(TensorSet* const set, set_for(tensor.memory));
    set->add(forms.size(), tensor);
    forms.push_back({{tensor.name, tensor.dtype, tensor.shape, tensor.bytes}, 0, 0});
    set_of.push_back(set);
  }
  if (options.heartbeat) {
    beat =
        std::make_unique<ReplicaBeat>(store, options.name.empty() ? process_name() : options.name);
  }
  return {};
}

Result<TensorSet*> TensorReplica::Impl::set_for(Memory memory) {
  std::unique_ptr<TensorSet>& set = sets[size_t(memory)];
  if (!set && memory == Memory::kHost) set = std::make_unique<HostTensors>(&pool, scratch->path());
  if (!set) {
    DW_ASSIGN_OR_RETURN(set, DeviceTensors::open(options, &pool));
  }
  return set.get();
}

Result<std::optional<uint64_t>> TensorReplica::Impl::head() {
  if (!held) return chain->head();
  DW_ASSIGN_OR_RETURN(Chain::Newest newest, chain->newest_after(held->version));
  if (newest.record) seen = std::move(newest.record);
  return newest.version;
}

void TensorReplica::Impl::drop() {
  pending.reset();
  for (const auto& set : sets) {
    if (set) set->drop();
  }
}

Progress TensorReplica::Impl::progress_of(const PullReport& report, uint64_t done_before) const {
  if (!options.progress) return {};
  const uint64_t total = report.bytes + report.weights_bytes;
  return [this, done_before, total](uint64_t done, uint64_t) {
    return options.progress(std::min(total, done_before + done), total);
  };
}

// The version's tensors must be those that were given, one by one: then a number in its schema is
// one in `memories`.
Status TensorReplica::Impl::check_forms(const Schema& schema) const {
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
    const Schema::Tensor& other = schema.tensors[i];
    if (own.dtype != other.dtype || own.shape != other.shape) {
      return invalid_argument("tensor " + quote(own.name) + ": the version has " +
                              form(other.dtype, other.shape) + ", given was " +
                              form(own.dtype, own.shape));
    }
  }
  return {};
}

Status TensorReplica::Impl::check_digests(const std::vector<size_t>& which,
                                          const Manifest& manifest) {
  for (const auto& set : sets) {
    std::vector<size_t> own;
    std::copy_if(which.begin(), which.end(), std::back_inserter(own),
                 [&](size_t number) { return set_of[number] == set.get(); });
    if (!own.empty()) DW_RETURN_IF_ERROR(set->check(own, manifest));
  }
  return {};
}

Status TensorReplica::Impl::recognise(uint64_t wanted) {
  const auto holds = [&](const VersionRecord& record) -> Result<bool> {
    DW_ASSIGN_OR_RETURN(const Schema schema, chain->schema(record.manifest));
    if (!check_forms(schema).ok()) return false;
    DW_RETURN_IF_ERROR(states_of(schema, record.manifest).status());
    std::vector<size_t> all(forms.size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    // A small tensor shows soon that it is another version.
    std::stable_sort(all.begin(), all.end(), [&](size_t a, size_t b) {
      return forms[a].view.bytes.size() < forms[b].view.bytes.size();
    });
    const Status status = check_digests(all, record.manifest);
    if (status.code() == Code::kBaseMismatch) return false;
    if (!status.ok()) return status;
    return true;
  };
  DW_ASSIGN_OR_RETURN(held, recognise_version(*chain, wanted, holds));
  recognised = true;
  return {};
}

Result<std::vector<FetchItem>> TensorReplica::Impl::items_of(const std::vector<Hop>& hops) const {
  std::vector<FetchItem> items;
  for (size_t h = 0; h < hops.size(); ++h) {
    DW_RETURN_IF_ERROR(remove_tree(hop_folder(h)));
    DW_RETURN_IF_ERROR(make_folder(hop_folder(h)));
    for (size_t p = 0; p < hops[h].parts.size(); ++p) {
      fs::path to = part_file(hops, h, p).path;
      if (!hops[h].base) {
        DW_ASSIGN_OR_RETURN(const std::string name, checkpoint_file_of(hops[h].parts[p]));
        if (!is_weights_file(name)) continue;
        to = hop_folder(h) / name;
      }
      items.push_back({hops[h].parts[p], std::move(to)});
    }
  }
  return items;
}

Result<std::vector<Delta>> TensorReplica::Impl::open_deltas(const std::vector<Hop>& hops) const {
  std::vector<Delta> deltas;
  for (size_t h = 0; h < hops.size(); ++h) {
    if (!hops[h].base) continue;
    std::vector<PartFile> parts;
    for (size_t p = 0; p < hops[h].parts.size(); ++p) parts.push_back(part_file(hops, h, p));
    DW_ASSIGN_OR_RETURN(Delta delta, open_delta_parts(parts));
    deltas.push_back(std::move(delta));
  }
  return deltas;
}

Status TensorReplica::Impl::stage_steps(const std::vector<TensorSteps>& steps, const Target& target,
                                        const Progress& progress) {
  for (const auto& set : sets) {
    std::vector<TensorSteps> own;
    std::copy_if(steps.begin(), steps.end(), std::back_inserter(own),
                 [&](const TensorSteps& one) { return set_of[one.index] == set.get(); });
    if (!own.empty()) DW_RETURN_IF_ERROR(set->stage(own, target, progress));
  }
  for (const TensorSteps& one : steps) pending->staged.push_back(one.index);
  return {};
}

// From what the tensors hold: parts are decoded while others arrive.
Status TensorReplica::Impl::stage_deltas(const Plan& plan, PullReport* report, PhaseClock* clock) {
  const Target target{plan.target.manifest, plan.schema};
  const HeldTensors own(kPlace, forms);
  // A tensor may change in each of several hops; and a GPU is fastest with all of them at once.
  const bool as_they_come = plan.hops.size() == 1 && !sets[size_t(Memory::kCuda)];
  clock->end();
  const double fetch_begin = clock->now();
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> items, items_of(plan.hops));
  Fetch fetch(*store, std::move(items));
  EagerParts eager(target, own);
  std::optional<double> stage_begin;
  uint64_t built = 0;
  const auto stage = [&](const std::vector<TensorSteps>& steps, uint64_t fetched) -> Status {
    DW_RETURN_IF_ERROR(stage_steps(steps, target, progress_of(*report, fetched + built)));
    for (const TensorSteps& one : steps) built += forms[one.index].view.bytes.size();
    return {};
  };
  while (true) {
    DW_ASSIGN_OR_RETURN(const std::optional<size_t> part, fetch.next(progress_of(*report, built)));
    if (!stage_begin) stage_begin = clock->now();
    if (!part) break;
    if (!as_they_come) continue;
    DW_ASSIGN_OR_RETURN(const EagerParts::Ready ready, eager.add(part_file(plan.hops, 0, *part)));
    DW_RETURN_IF_ERROR(stage(ready.steps, fetch.received_bytes()));
  }
  DW_ASSIGN_OR_RETURN(const std::vector<Delta> deltas, open_deltas(plan.hops));
  DW_ASSIGN_OR_RETURN(std::vector<TensorSteps> steps, collect_steps(own, deltas, plan.schema));
  if (options.verify_all) {
    std::vector<size_t> untouched;
    for (const TensorSteps& one : steps) {
      if (one.entries.empty()) untouched.push_back(one.index);
    }
    DW_RETURN_IF_ERROR(check_digests(untouched, plan.target.manifest));
  }
  eager.erase_done(&steps);
  std::erase_if(steps, [](const TensorSteps& one) { return one.entries.empty(); });
  DW_RETURN_IF_ERROR(stage(steps, report->bytes));
  report->phases.push_back({"fetch", fetch_begin, clock->at(fetch.last_arrival())});
  report->phases.push_back({"decode", *stage_begin, clock->now()});
  return {};
}

// From a version that is stored whole, through the deltas after it, in files of our own.
Status TensorReplica::Impl::stage_whole(const Plan& plan, PullReport* report, PhaseClock* clock) {
  clock->begin("fetch");
  DW_ASSIGN_OR_RETURN(std::vector<FetchItem> items, items_of(plan.hops));
  {
    Fetch fetch(*store, std::move(items));
    DW_RETURN_IF_ERROR(fetch.finish(progress_of(*report, 0)));
  }
  clock->begin("decode");
  DW_ASSIGN_OR_RETURN(Checkpoint source, Checkpoint::open(hop_folder(0)));
  DW_ASSIGN_OR_RETURN(const std::vector<Delta> deltas, open_deltas(plan.hops));
  DW_ASSIGN_OR_RETURN(const std::vector<TensorSteps> steps,
                      collect_steps(source, deltas, plan.schema));
  const Target target{plan.target.manifest, plan.schema};
  // A tensor that a delta has brought has no room in those files.
  for (const TensorSteps& one : steps) {
    if (one.from == nullptr) {
      return unsupported("tensor " + quote(plan.schema.tensors[one.index].name) +
                         ": came after the version that is stored whole; `deltawire anchor` makes "
                         "one that has it");
    }
  }
  DW_RETURN_IF_ERROR(build_in_place(
      {target, source, steps, true, &pool, progress_of(*report, report->bytes), false}));
  for (const TensorSteps& one : steps) {
    DW_RETURN_IF_ERROR(set_of[one.index]->stage_whole(one.index, one.from->view.bytes));
    pending->staged.push_back(one.index);
  }
  pending->source = std::move(source);
  return {};
}

Status TensorReplica::Impl::attempt(bool from_nothing, uint64_t version, PullReport* report,
                                    PhaseClock* clock) {
  drop();
  clock->begin("plan");
  const std::optional<Held> from = from_nothing ? std::nullopt : held;
  if (beat && (!from || from->version != version)) {
    beat->fetching(from ? std::optional(from->version) : std::nullopt, version);
  }
  const bool known = seen && seen->manifest.version == version;
  DW_ASSIGN_OR_RETURN(Plan plan, plan_catch_up(*chain, from, version, known ? &*seen : nullptr));
  DW_RETURN_IF_ERROR(check_target({plan.target.manifest, plan.schema}));
  DW_RETURN_IF_ERROR(check_forms(plan.schema));
  const auto whole =
      std::find_if(plan.hops.rbegin(), plan.hops.rend(), [](const Hop& hop) { return !hop.base; });
  const bool from_whole = whole != plan.hops.rend();
  if (from_whole) plan.hops.erase(plan.hops.begin(), whole.base() - 1);
  report->version = version;
  report->num_hops = plan.hops.size();
  report->num_tensors = plan.schema.tensors.size();
  report->weights_bytes = weights_bytes(plan.schema);
  report->bytes = 0;
  for (const Hop& hop : plan.hops) report->bytes += hop.bytes;
  DW_RETURN_IF_ERROR(check_hop_sizes(plan.hops, plan.schema, 0));
  std::vector<size_t> all(forms.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  if (plan.hops.empty()) {
    return options.verify_all ? check_digests(all, plan.target.manifest) : Status();
  }
  pending.emplace();
  pending->target = {version, plan.target.digest};
  pending->manifest = plan.target.manifest;
  return from_whole ? stage_whole(plan, report, clock) : stage_deltas(plan, report, clock);
}

Result<PullReport> TensorReplica::Impl::prepare(std::optional<uint64_t> wanted) {
  PullReport report;
  report.run = chain->run();
  PhaseClock clock(&report);
  clock.begin("head");
  if (!wanted) {
    DW_ASSIGN_OR_RETURN(wanted, head());
    if (!wanted) return not_found(store->url() + ": nothing was published yet");
  }
  if (!held && !recognised) {
    clock.begin("recognise");
    DW_RETURN_IF_ERROR(recognise(*wanted));
  }
  if (held) report.from = held->version;
  Status status;
  if (held) {
    status = attempt(false, *wanted, &report, &clock);
    if (status.code() == Code::kBaseMismatch) report.repair_reason = status.message();
  } else if (!options.repair) {
    status = base_mismatch(std::string(kPlace) + " hold no version that leads to " +
                           std::to_string(*wanted));
  }
  if (options.repair && (!held || !report.repair_reason.empty())) {
    if (held) {
      log_event(LogLevel::kWarning, "replica.repair", {{"reason", report.repair_reason}});
    }
    status = attempt(true, *wanted, &report, &clock);
    // What is held does not count any more: whatever is wrong came from the store.
    if (status.code() == Code::kBaseMismatch) status = corruption(status.message());
    report.repaired = !report.repair_reason.empty();
  }
  if (!status.ok()) {
    drop();
    if (beat && held) beat->holds(held->version, {});
    return status;
  }
  clock.end();
  report.changed = pending.has_value();
  report.seconds = clock.now();
  if (pending) {
    for (const auto& set : sets) report.num_changed += set ? set->num_staged() : 0;
    pending->report = report;
  }
  return report;
}

Result<PullReport> TensorReplica::Impl::commit() {
  PullReport report;
  if (!pending) {
    report.run = chain->run();
    if (held) report.version = *(report.from = held->version);
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
  for (const auto& set : sets) {
    if (set && status.ok()) status = set->commit();
  }
  if (status.ok() && options.check_commit) {
    clock.begin("check");
    status = check_digests(step.staged, step.manifest).at("after the patch");
  }
  clock.end();
  report.patch_seconds = clock.now();
  for (const Phase& phase : timed.phases) {
    report.phases.push_back({phase.name, report.seconds + phase.begin, report.seconds + phase.end});
  }
  report.seconds += clock.now();
  drop();
  if (!status.ok()) return status;
  held = step.target;
  if (beat) beat->holds(held->version, {});
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
Result<PullReport> TensorReplica::prepare(std::optional<uint64_t> version) {
  return impl_->prepare(version);
}
Result<PullReport> TensorReplica::commit() { return impl_->commit(); }

Result<PullReport> TensorReplica::pull(std::optional<uint64_t> version) {
  DW_ASSIGN_OR_RETURN(PullReport prepared, prepare(version));
  if (!impl_->pending) return prepared;
  return commit();
}

}  // namespace deltawire
