// A single publisher, in one call or in two halves with the trainer's next step between them.
#include <algorithm>
#include <map>

#include "base/guard.h"
#include "publish/impl.h"

namespace deltawire {

namespace {

Schema schema_of(std::span<const PublishTensor> tensors) {
  std::map<std::string, TensorSpec> by_name;  // a tensor may come in boxes
  for (const PublishTensor& tensor : tensors) {
    const TensorView& view = tensor.view;
    by_name[view.name] = view;
  }
  Schema schema;
  for (auto& [name, tensor] : by_name) schema.tensors.push_back(std::move(tensor));
  return schema;
}

}  // namespace

Publisher::Impl::Impl(std::shared_ptr<Store> store_, PublishOptions options_)
    : store(std::move(store_)),
      options(std::move(options_)),
      on_disk(std::get_if<SnapshotInFolder>(&options.snapshot)),
      anchors(std::get_if<Anchors>(&options.anchors)),
      pool(diff_threads(options.limits)) {}
Publisher::Impl::~Impl() = default;

Status Publisher::Impl::take_tensors(Tensors given, Attempt* attempt) {
  // one rank may hold nothing, but not all of them
  if (given.empty() && options.ranks.world == 1) {
    return invalid_argument("there are no tensors to publish");
  }
  DW_ASSIGN_OR_RETURN(attempt->tensors, check_tensors(given));
  const auto& tensors = attempt->tensors;
  if (!device && std::any_of(tensors.begin(), tensors.end(), on_device)) {
    if (on_disk != nullptr) {
      return unsupported("a snapshot in a folder is compared on the host: keep it in memory, or " +
                         std::string("give tensors in the host's memory"));
    }
    const bool pinned = std::get<SnapshotInMemory>(options.snapshot).pinned;
    DW_ASSIGN_OR_RETURN(device, PublishDevice::open(options.limits, options.cuda, pinned, tensors));
  }
  return {};
}

Result<Publisher::Impl::Attempt> Publisher::Impl::begin(Tensors given, FullSource* source,
                                                        Step step) {
  Attempt attempt;
  attempt.step = step;
  attempt.unfit = captured
                      ? invalid_argument("a version is captured already; call finish() first")
                      : guard_memory("publish", [&] { return prepare(given, source, &attempt); });
  if (options.ranks.world == 1) DW_RETURN_IF_ERROR(Status(attempt.unfit));
  return attempt;
}

// Everything that precedes the work on tensors. Rank 0 creates the run, and its side files are the
// version's.
Status Publisher::Impl::prepare(Tensors given, FullSource* source, Attempt* attempt) {
  DW_RETURN_IF_ERROR(take_tensors(given, attempt));
  if (source->extra_files) DW_RETURN_IF_ERROR(SideFiles::check(*source->extra_files));
  if (options.ranks.rank != 0) return {};
  DW_RETURN_IF_ERROR(ensure_chain());
  if (uncertain) DW_RETURN_IF_ERROR(find_head_again());
  if (options.ranks.world == 1) DW_RETURN_IF_ERROR(check_schema(schema_of(attempt->tensors)));
  return put_sides(source);
}

// For the tensors of all ranks, or of a single publisher before anything is put.
Status Publisher::Impl::check_schema(const Schema& next) const {
  if (!head || options.schema_change) return {};
  const std::string change = describe_change(schema, next);
  if (change.empty()) return {};
  return invalid_argument("the tensors are not those of version " +
                          std::to_string(head->manifest.version) + ": " + change +
                          "; publish another model to a store of its own, or set schema_change if "
                          "the tensors of this one are meant to change");
}

// Later changes of the files do not matter, because the store has what was read.
Status Publisher::Impl::put_sides(FullSource* source) {
  DW_ASSIGN_OR_RETURN(source->sides,
                      SideFiles::gather(source->extra_files, parent().manifest, store));
  return source->sides->put(next_version(),
                            [this] { return !options.progress || options.progress(0, 1); });
}

// A version is also new if only its side files are.
Result<NewState> Publisher::Impl::join(const std::vector<PublishRecord>& ranks,
                                       const FullSource& source) const {
  DW_ASSIGN_OR_RETURN(NewState state, join_pieces(ranks, parent()));
  DW_RETURN_IF_ERROR(check_schema(state.schema));
  state.unchanged = state.unchanged && !source.sides->changed();
  return state;
}

// Everything that needs the tensors.
Status Publisher::Impl::make_draft(const FullSource& source, bool keep, Attempt* attempt) {
  const Tensors tensors = attempt->tensors;
  attempt->is_free = std::async(std::launch::async, [this] { return check_free(); });
  std::string full_reason = why_whole();
  if (full_reason.empty()) {
    DW_ASSIGN_OR_RETURN(attempt->draft,
                        draft_delta_or_rebuild(tensors, source, keep, attempt->clock, &full_reason,
                                               &attempt->report));
    if (full_reason.empty()) return {};
    attempt->draft.abandon();
  }
  DW_ASSIGN_OR_RETURN(attempt->draft,
                      draft_full(tensors, source, full_reason, attempt->clock, &attempt->report));
  return {};
}

// `source`: null if the tensors may have changed since capture().
Status Publisher::Impl::end(const FullSource* source, Attempt* attempt) {
  Draft& draft = attempt->draft;
  PublishReport& report = attempt->report;
  if (draft.stream) {
    DW_RETURN_IF_ERROR(draft.stream->finish(draft.state.change.removed));
    add_phase(draft.stream->upload_phase(), &report);
    draft.manifest.parts = draft.stream->parts();
  }
  if (Status status = attempt->is_free.get(); !status.ok()) {
    draft.abandon();
    return status;
  }
  describe_state(draft.state, &report);
  report.committed = !draft.state.unchanged || options.origin.commit_unchanged;
  if (!report.committed) {
    static_cast<Identity&>(report) = head->identity();
    return source ? source->check() : Status();
  }
  DW_RETURN_IF_ERROR(commit(&draft, source, attempt->clock, &report));
  describe_head(&report);
  notice_dense(attempt->tensors, &report);
  advance(attempt->tensors, source != nullptr, draft, attempt->clock, &report);
  if (source) add_anchor_if_due(attempt->tensors, draft, *source, attempt->clock, &report);
  return {};
}

PublishReport Publisher::Impl::report_of(Attempt attempt) const {
  PublishReport report = std::move(attempt.report);
  report.weights_bytes = bytes_of(attempt.tensors);
  report.seconds = attempt.clock.now();
  return report;
}

Status Publisher::Impl::publish_in_one_go(const FullSource& source, Attempt* attempt) {
  if (options.ranks.world == 1) {
    Status made = make_draft(source, false, attempt);
    if (!made.ok()) {  // the error may come from a file that was modified while it was read
      DW_RETURN_IF_ERROR(source.check());
      return made;
    }
    return end(&source, attempt);
  }
  return publish_as_rank(source, attempt);
}

Result<PublishReport> Publisher::Impl::publish_once(Tensors tensors, FullSource source, Step step) {
  DW_ASSIGN_OR_RETURN(Attempt attempt, begin(tensors, &source, step));
  DW_RETURN_IF_ERROR(publish_in_one_go(source, &attempt));
  return report_of(std::move(attempt));
}

// A version stored whole needs the tensors until the end, and so do changes that are too large to
// keep.
bool Publisher::Impl::needs_tensors(const Attempt& attempt) const {
  if (!attempt.draft.stream) return true;
  if (snapshot->needs_changes() && !attempt.draft.kept->complete()) return true;
  Manifest next;
  next.version = next_version();
  next.chain_bytes = head->manifest.chain_bytes + attempt.draft.stream->payload_bytes();
  return anchors != nullptr && anchor_due(*anchors, next, anchor);
}

Status Publisher::Impl::capture_once(Tensors tensors, FullSource source, Step step) {
  DW_ASSIGN_OR_RETURN(Attempt attempt, begin(tensors, &source, step));
  attempt.over = options.ranks.world != 1;
  if (attempt.over) {
    DW_RETURN_IF_ERROR(publish_in_one_go(source, &attempt));
  } else {
    DW_RETURN_IF_ERROR(make_draft(source, true, &attempt));
    attempt.over = needs_tensors(attempt);
    if (attempt.over) DW_RETURN_IF_ERROR(end(&source, &attempt));
  }
  if (attempt.over) attempt.draft = {};  // its bodies and blocks
  captured = std::make_unique<Attempt>(std::move(attempt));
  return {};
}

Result<PublishReport> Publisher::Impl::finish_once() {
  if (!captured) return invalid_argument("nothing was captured");
  const std::unique_ptr<Attempt> attempt = std::move(captured);
  if (!attempt->over) DW_RETURN_IF_ERROR(end(nullptr, &*attempt));
  return report_of(std::move(*attempt));
}

// After a failure the chain's head is uncertain: another publisher may have been first, or a commit
// may still appear. The next publish reads the head again.

Result<PublishReport> Publisher::Impl::publish(Tensors tensors, FullSource source, Step step) {
  return noted(publish_once(tensors, std::move(source), step));
}

Status Publisher::Impl::capture(Tensors tensors, FullSource source, Step step) {
  return noted(capture_once(tensors, std::move(source), step));
}

Result<PublishReport> Publisher::Impl::finish() { return noted(finish_once()); }

}  // namespace deltawire
