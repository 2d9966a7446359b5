#include "deltawire/publisher.h"

#include <algorithm>

#include "base/sync_point.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "chain/read_records.h"
#include "delta/delta_reader.h"
#include "deltawire/checkpoint.h"
#include "publish/impl.h"
#include "publish/snapshot_file.h"
#include "store/probe.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

Status check_snapshot(const PublishOptions& options) {
  if (const auto* const in_memory = std::get_if<SnapshotInMemory>(&options.snapshot)) {
    if (!in_memory->pinned || std::holds_alternative<Anchors>(options.anchors)) return {};
    return invalid_argument(
        "every version is stored whole, so there is no snapshot to keep in pinned memory");
  }
  if (std::get<SnapshotInFolder>(options.snapshot).folder.empty()) {
    return invalid_argument("the snapshot's folder has no name");
  }
  if (options.ranks.world > 1) {
    return invalid_argument("ranks keep their boxes of the snapshot in memory, not in a folder");
  }
  return {};
}

Status check_options(const PublishOptions& options) {
  DW_RETURN_IF_ERROR(check_snapshot(options));
  if (options.part_bytes == 0) return invalid_argument("a part must have a size");
  if (options.limits.memory_bytes < kLeastMemory) {
    return invalid_argument("the memory limit must be " + std::to_string(kLeastMemory >> 20) +
                            " MiB or more");
  }
  const Ranks& ranks = options.ranks;
  if (ranks.world == 0 || ranks.rank >= ranks.world) {
    return invalid_argument("rank " + std::to_string(ranks.rank) + " of " +
                            std::to_string(ranks.world) + ": ranks count from 0");
  }
  if (ranks.world > 1 && !ranks.all_gather) {
    return invalid_argument("ranks need an all_gather to exchange what they have published");
  }
  return check_codec(options.codec);
}

// A run may become quantised later: its seed may be a quantised checkpoint of another tool.
Status check_quantization(const std::string& ours, const Manifest& upon) {
  if (upon.quantization.empty() || upon.quantization == ours) return {};
  return invalid_argument("version " + std::to_string(upon.version) + " is quantised as " +
                          upon.quantization + ", and this publisher " +
                          (ours.empty() ? "does not quantise" : "quantises as " + ours) +
                          "; replicas would mix the two");
}

// A new run must begin in an empty folder, without foreign files or remains of another run.
// `folder` is empty if the store is not a folder. Leftovers of killed processes and hidden files
// are ignored.
Status check_folder_is_empty(const std::string& folder) {
  if (folder.empty()) return {};
  std::error_code error;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.starts_with(".") || name == "lost+found" || name.ends_with(".tmp") ||
        name + "/" == kProbePrefix) {
      continue;
    }
    // Another publisher may have created a run meanwhile.
    if (std::filesystem::exists(std::filesystem::path(folder) / kRunName, error)) break;
    return invalid_argument(folder + ": is neither empty nor a store: it holds " + quote(name) +
                            " and no run.json; publish to a new or empty folder");
  }
  return {};
}

Result<std::vector<FullFile>> files_of_tensors(std::span<const PublishTensor> tensors,
                                               const Contents& contents) {
  std::vector<WholeTensor> wholes;
  for (size_t i = 0; i < tensors.size(); ++i) {
    wholes.push_back({tensors[i].view, {{tensors[i].box, contents[i]}}});
  }
  return lay_out_checkpoint(std::move(wholes));
}

FullSource source_of(std::span<const PublishTensor> tensors,
                     const std::optional<SidePaths>& extra_files) {
  return {[=](const Contents& contents) { return files_of_tensors(tensors, contents); },
          extra_files};
}

}  // namespace

Status Publisher::Impl::open() {
  DW_RETURN_IF_ERROR(check_options(options));
  DW_ASSIGN_OR_RETURN(keys, read_keys(options.keys));
  DW_ASSIGN_OR_RETURN(const Capabilities can, store->capabilities());
  if (!can.put_if_absent && !options.single_writer) {
    return unsupported(store->url() +
                       ": this store cannot put an object only if it is absent, so two publishers "
                       "could overwrite each other; set single_writer if there will only be one");
  }
  Result<Chain> opened = open_with_keys(store, keys);
  if (!opened.ok() && opened.status().code() == Code::kNotFound) {
    if (on_disk != nullptr) {
      DW_RETURN_IF_ERROR(options.new_run ? forget_runs(*store, *on_disk)
                                         : check_no_run_was_here(*store, *on_disk));
    }
    return options.ranks.rank == 0 ? check_folder_is_empty(store->local_folder()) : Status();
  }
  DW_RETURN_IF_ERROR(Status(opened.status()));
  chain = std::move(*opened);
  DW_RETURN_IF_ERROR(read_head());
  DW_RETURN_IF_ERROR(check_noted());
  // Ranks learn which boxes they hold when they publish. The snapshot is not read if the next
  // version is stored whole.
  if (head && anchors != nullptr && options.ranks.world == 1 && whole_reason.empty()) {
    DW_RETURN_IF_ERROR(ensure_snapshot({}));
  }
  note_head();
  return {};
}

Status Publisher::Impl::read_head() {
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> version, chain->head());
  Newest found;
  if (version) {
    DW_ASSIGN_OR_RETURN(found, chain->version(*version));
    // Only rank 0 commits.
    if (options.ranks.rank == 0) DW_RETURN_IF_ERROR(check_key(*chain, found->manifest));
    DW_RETURN_IF_ERROR(check_quantization(options.quantization, found->manifest));
  }
  if (head) DW_RETURN_IF_ERROR(check_loss(known_head(), found));
  const bool same = head && found && head->digest == found->digest;
  if (!same) {
    snapshot = nullptr;
    head.reset();
    schema = {};
    if (found) {
      DW_ASSIGN_OR_RETURN(schema, chain->schema(found->manifest));
      DW_RETURN_IF_ERROR(states_of(schema, found->manifest).status());
      DW_ASSIGN_OR_RETURN(anchor, newest_anchor(*chain, found->manifest));
      head = std::move(found);
    }
  }
  uncertain = false;
  return {};
}

// Called after a failure. A new version of another publisher is accepted as the base; a store that
// was emptied or replaced is not.
Status Publisher::Impl::find_head_again() {
  DW_RETURN_IF_ERROR(check_run());
  return read_head();
}

Status Publisher::Impl::ensure_chain() {
  if (chain) return {};
  Result<Chain> made = create_chain(store, keys, options.single_writer);
  // Another publisher may have created the run meanwhile. The commit then decides who publishes the
  // seed.
  if (!made.ok() && made.status().code() == Code::kConflict) {
    made = open_with_keys(store, keys);
  }
  DW_RETURN_IF_ERROR(Status(made.status()));
  DW_SYNC_POINT("publish: run made");
  chain = std::move(*made);
  DW_RETURN_IF_ERROR(read_head());
  note_head();
  return {};
}

Status Publisher::Impl::ensure_snapshot(Tensors tensors) {
  // Ranks may hold other boxes than before.
  for (const PublishTensor& tensor : tensors) {
    if (!snapshot) break;
    const auto found = snapshot->find(tensor.view, tensor.box);
    if (found.ok()) continue;
    if (found.status().code() != Code::kNotFound) return found.status();
    snapshot = nullptr;
  }
  if (snapshot) return snapshot->place(tensors, device.get());
  if (on_disk != nullptr) {
    DW_ASSIGN_OR_RETURN(
        snapshot, FileSnapshot::open(*chain, snapshot_folder(), head->manifest.version, options));
    return snapshot->place(tensors, device.get());
  }
  DW_ASSIGN_OR_RETURN(MemoryState state,
                      fetch_state(*chain, head->manifest.version, &pool, options.progress));
  auto made = std::make_unique<MemorySnapshot>(std::move(state), &pool);
  const bool boxes = std::any_of(tensors.begin(), tensors.end(),
                                 [](const PublishTensor& tensor) { return !tensor.box.whole(); });
  if (boxes || options.ranks.world > 1) DW_RETURN_IF_ERROR(made->narrow(tensors));
  snapshot = std::move(made);
  return snapshot->place(tensors, device.get());
}

// Detects stores that were emptied or unmounted, which would accept anything.
Status Publisher::Impl::check_run() const {
  const Result<Chain> now = open_with_keys(store, keys);
  if (!now.ok() && now.status().code() == Code::kNotFound) {
    return not_found(store->url() + ": holds no run any more; it held run " + chain->run() +
                     ": is the store mounted? Nothing was committed");
  }
  DW_RETURN_IF_ERROR(Status(now.status()));
  if (now->run() == chain->run()) return {};
  return base_mismatch(store->url() + ": holds run " + now->run() +
                       " now, this publisher is of run " + chain->run() +
                       "; open a new one to go on there");
}

// Finds another publisher's version, or a lost head, before the commit. Sends all requests
// together, because a distant store takes time.
Status Publisher::Impl::check_free() const {
  Status run;
  Result<VersionRecord> other = not_found(""), there = not_found("");
  request_in_parallel(head ? 3 : 2, [&](size_t i) {
    if (i == 0) run = check_run();
    if (i == 1) other = chain->version(next_version());
    if (i == 2) there = chain->version(head->manifest.version);
  });
  DW_RETURN_IF_ERROR(std::move(run));
  if (other.ok()) {
    return conflict(store->url() + ": version " + std::to_string(next_version()) +
                    " was published by another: " + other->manifest.publisher + " at " +
                    other->manifest.created);
  }
  if (other.status().code() != Code::kNotFound) return Status(other.status());
  return head ? check_head(there) : Status();
}

Result<std::optional<CommittedState>> Publisher::Impl::committed_state() {
  if (on_disk == nullptr) return invalid_argument("only a snapshot in a folder can be read");
  std::optional<CommittedState> none;
  if (uncertain) DW_RETURN_IF_ERROR(find_head_again());
  if (!chain || !head) return none;
  DW_RETURN_IF_ERROR(ensure_snapshot({}));
  const Checkpoint& held = static_cast<const FileSnapshot&>(*snapshot).checkpoint();
  return std::optional(CommittedState{held, *head, schema, snapshot_folder()});
}

Result<std::optional<CommittedState>> committed_state(Publisher* publisher) {
  return publisher->impl().committed_state();
}

Result<Publisher> Publisher::open(std::shared_ptr<Store> store, PublishOptions options) {
  auto impl = std::make_unique<Impl>(std::move(store), std::move(options));
  DW_RETURN_IF_ERROR(impl->open());
  return Publisher(std::move(impl));
}

Publisher::Publisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Publisher::~Publisher() = default;
Publisher::Publisher(Publisher&&) noexcept = default;
Publisher& Publisher::operator=(Publisher&&) noexcept = default;

const std::string& Publisher::run() const noexcept {
  static const std::string none;
  return impl_->chain ? impl_->chain->run() : none;
}

SnapshotMemory Publisher::memory() const {
  return impl_->snapshot ? impl_->snapshot->memory() : SnapshotMemory{};
}

Result<PublishReport> Publisher::publish(std::span<const PublishTensor> tensors,
                                         const std::optional<SidePaths>& extra_files,
                                         std::optional<uint64_t> step) {
  return impl_->publish(tensors, source_of(tensors, extra_files), step);
}

Status Publisher::capture(std::span<const PublishTensor> tensors,
                          const std::optional<SidePaths>& extra_files,
                          std::optional<uint64_t> step) {
  return impl_->capture(tensors, source_of(tensors, extra_files), step);
}

Result<PublishReport> Publisher::finish() { return impl_->finish(); }

Result<PublishReport> Publisher::publish_checkpoint(const std::filesystem::path& path) {
  if (impl_->options.ranks.world > 1) {
    return invalid_argument(path.string() +
                            ": ranks publish boxes; publish a checkpoint from one process, with a "
                            "publisher without ranks");
  }
  if (looks_like_delta(path)) {
    return invalid_argument(path.string() + ": a delta, not a checkpoint");
  }
  DW_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(path));
  const std::vector<PublishTensor> tensors = tensors_of(checkpoint);
  FullSource source;
  source.weights = [&](const Contents& contents) {
    return files_of_checkpoint(checkpoint, contents);
  };
  source.check_unchanged = [&]() -> Status {
    Status status = checkpoint.check_unchanged();
    if (status.ok()) return status;
    return Status(status.code(), status.message() + "; nothing was committed, publish again when " +
                                     "it is written");
  };
  std::string note;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    DW_ASSIGN_OR_RETURN(FolderFiles beside, files_beside(checkpoint));
    source.extra_files = std::move(beside.files);
    note = left_out_note(beside.left_out);
  }
  DW_ASSIGN_OR_RETURN(PublishReport report, impl_->publish(tensors, std::move(source)));
  // Reported once, because a watched folder contains the same files again and again.
  if (report.committed && note != impl_->left_out) report.note = note;
  if (report.committed) impl_->left_out = std::move(note);
  return report;
}

}  // namespace deltawire
