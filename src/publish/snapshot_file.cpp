#include "publish/snapshot_file.h"

#include <algorithm>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "publish/diff.h"
#include "publish/rounding.h"
#include "replica/overwrite.h"
#include "store/bodies.h"
#include "tensor/box_rows.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kLoggedShare = 8;  // of the snapshot's bytes are folded
constexpr uint64_t kSnapshotPieceBytes = uint64_t{1} << 20;

fs::path checkpoint_folder(const fs::path& folder) { return folder / "checkpoint"; }

Status write_body(const fs::path& path, const Body& body) {
  DW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < body.size(); at += piece.size()) {
    piece.resize(size_t(std::min(kSnapshotPieceBytes, body.size() - at)));
    DW_RETURN_IF_ERROR(body.read(at, piece));
    DW_RETURN_IF_ERROR(file.write(piece));
  }
  return file.commit();
}

}  // namespace

FileSnapshot::FileSnapshot(const Chain& chain, fs::path folder, const PublishOptions& options)
    : chain_(chain),
      folder_(std::move(folder)),
      when_(std::get<SnapshotInFolder>(options.snapshot).advance),
      slab_bytes_(share_memory(options.limits.memory_bytes, options.part_bytes).item_bytes),
      store_(std::make_shared<OverlayStore>(chain.shared_store())) {}

Result<std::unique_ptr<FileSnapshot>> FileSnapshot::open(const Chain& chain, fs::path folder,
                                                         uint64_t version,
                                                         const PublishOptions& options,
                                                         const std::vector<ObjectAtHand>& at_hand) {
  DW_RETURN_IF_ERROR(make_folder(checkpoint_folder(folder)));
  std::unique_ptr<FileSnapshot> snapshot(new FileSnapshot(chain, std::move(folder), options));
  ReplicaOptions replica;
  replica.limits.threads = publish_threads(options);
  replica.heartbeat = false;   // it serves nobody
  replica.sync_files = false;  // every tensor is checked when it is compared with
  replica.limits.memory_bytes = options.limits.memory_bytes;
  replica.accept.trust = options.keys.trust;
  replica.progress = options.progress;
  DW_ASSIGN_OR_RETURN(
      snapshot->replica_,
      Replica::open(snapshot->store_, checkpoint_folder(snapshot->folder_), std::move(replica)));
  if (!snapshot->stays_behind(version)) DW_RETURN_IF_ERROR(snapshot->bring_to(version, at_hand));
  // With the lock held, what else an earlier process kept is of no use to anybody.
  DW_RETURN_IF_ERROR(snapshot->remove_other_parts());
  return snapshot;
}

Status FileSnapshot::discard(const fs::path& folder) {
  return remove_tree(checkpoint_folder(folder));
}

Status FileSnapshot::bring_to(uint64_t version, const std::vector<ObjectAtHand>& at_hand) {
  log_.reset();
  checkpoint_.reset();
  for (const ObjectAtHand& object : at_hand) store_->offer(object.name, object.body);
  const Result<PullReport> report = replica_->pull(version);
  store_->withdraw_all();
  DW_RETURN_IF_ERROR(Status(report.status()));
  DW_ASSIGN_OR_RETURN(checkpoint_, Checkpoint::open(report->path));
  return {};
}

Result<std::optional<OldPiece>> FileSnapshot::find(const TensorView& form, const Box& box) const {
  const CheckpointTensor* const tensor = checkpoint_->find(form.name);
  if (tensor == nullptr || tensor->view.dtype != form.dtype || tensor->view.shape != form.shape) {
    return std::optional<OldPiece>();
  }
  const Bytes all = tensor->view.bytes;
  const auto made = log_ ? log_->find(form.name) : nullptr;
  if (box.whole()) return std::optional(OldPiece{all, nullptr, nullptr, made});
  const BoxRows rows(box, form.dtype, form.shape);
  if (rows.count() <= 1) {  // in one piece
    const uint64_t begin = rows.count() == 0 ? 0 : rows.position(0);
    const uint64_t size = rows.count() * rows.row_bytes();
    return std::optional(OldPiece{all.subspan(begin, size), nullptr, nullptr,
                                  made ? made_from(made, begin, size) : nullptr});
  }
  const uint64_t size = rows.count() * rows.row_bytes();
  DW_ASSIGN_OR_RETURN(const auto owner, allocate_bytes(size));
  std::vector<uint8_t> whole(made ? all.size() : 0);
  if (made) DW_RETURN_IF_ERROR(made->read(0, whole, nullptr));
  copy_box_out(box, form.dtype, form.shape, made ? Bytes(whole) : all, {owner.get(), size});
  return std::optional(OldPiece{{owner.get(), size}, owner});
}

SnapshotMemory FileSnapshot::memory() const {
  SnapshotMemory memory;
  if (!checkpoint_) return memory;
  for (const CheckpointTensor& tensor : checkpoint_->tensors()) {
    memory.disk += tensor.view.bytes.size();
  }
  return memory;
}

// To advance, a store in a folder is as near as a copy would be; who stays behind needs it for
// long. On a full disk the part is fetched when it is needed.
Status FileSnapshot::keep_part(const std::string& name, const Body& body) {
  if (!store_->local_folder().empty() && !may_stay_behind(*checkpoint_)) return {};
  const fs::path path = part_folder() / part_file_name(name);
  const auto keep = [&]() -> Status {
    DW_RETURN_IF_ERROR(make_folder(part_folder()));
    DW_RETURN_IF_ERROR(write_body(path, body));
    DW_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> kept, MappedFile::open(path));
    const std::lock_guard lock(mutex_);
    kept_.push_back({name, file_body(std::move(kept))});
    return {};
  };
  const Status status = keep();
  if (!status.ok()) log_event(LogLevel::kWarning, "snapshot.part_not_kept", {{"error", status}});
  return {};
}

Status FileSnapshot::remove_other_parts() const {
  if (!log_) return remove_tree(part_folder());
  std::error_code error;
  std::vector<fs::path> others;
  for (fs::directory_iterator it(part_folder(), error), end; !error && it != end;
       it.increment(error)) {
    const fs::path& path = it->path();
    if (!log_->part_files().contains(path.filename().string())) others.push_back(path);
  }
  for (const fs::path& path : others) DW_RETURN_IF_ERROR(remove_tree(path));
  return {};
}

// From the version that the checkpoint holds.
Status FileSnapshot::open_log(uint64_t version) {
  DW_ASSIGN_OR_RETURN(std::optional<Checkpoint> held, open_as_left(&*replica_));
  if (!held) return unsupported("the checkpoint has to be repaired or finished first");
  const ReplicaState& state = *replica_->state();
  if (state.version >= version) return unsupported("nothing to log");
  DW_ASSIGN_OR_RETURN(VersionRecord base, chain_.version(state.version));
  if (base.digest.hex() != state.manifest) return base_mismatch("another history");
  if (!may_stay_behind(*held)) return unsupported("the checkpoint is in memory");
  checkpoint_ = std::move(*held);
  SnapshotLog::Limits limits;
  limits.bytes = memory().disk / kLoggedShare;
  limits.slab_bytes = slab_bytes_;
  if (version - state.version > limits.versions) return unsupported("too many versions");
  log_.emplace(std::move(base), store_, part_folder(), limits);
  for (uint64_t next = state.version + 1; next <= version; ++next) {
    DW_RETURN_IF_ERROR(add_to_log(next));
  }
  return {};
}

Status FileSnapshot::add_to_log(uint64_t version) {
  if (!may_stay_behind(*checkpoint_)) return unsupported("the checkpoint is in memory");
  DW_ASSIGN_OR_RETURN(const VersionRecord next, chain_.version(version));
  DW_RETURN_IF_ERROR(log_->add(next));
  DW_ASSIGN_OR_RETURN(const Schema schema, chain_.schema(next.manifest));
  return log_->join(*checkpoint_, schema);
}

// Writing to files in memory takes less time than decoding a delta when they are read.
bool FileSnapshot::may_stay_behind(const Checkpoint& held) const {
  return when_ == SnapshotAdvance::kLater ||
         (when_ == SnapshotAdvance::kAuto && !is_in_memory(held));
}

// Whether the version can be had of the checkpoint and a log. Whatever is wrong, the chain has it.
bool FileSnapshot::stays_behind(uint64_t version) {
  const Status status = log_ ? add_to_log(version) : open_log(version);
  if (status.ok()) return true;
  log_event(LogLevel::kDebug, "snapshot.not_behind", {{"reason", status}});
  return false;
}

// False: it has to be brought there by what was published.
Result<bool> FileSnapshot::overwrite_with(const Advance& next) {
  if (next.kept != nullptr) return false;
  std::vector<NewContents> changed;
  for (size_t i = 0; i < next.tensors.size(); ++i) {
    const PublishTensor& tensor = next.tensors[i];
    const uint64_t logged = log_ ? log_->num_changed(tensor.view.name) : 0;
    if (!next.pieces[i].changed && logged == 0) continue;
    if (!tensor.box.whole() || on_device(tensor) || is_made(tensor)) return false;
    changed.push_back({tensor.view, logged + next.pieces[i].num_changed});
  }
  return overwrite(&*replica_, next.version, changed);
}

Status FileSnapshot::advance(const Advance& next) {
  std::vector<ObjectAtHand> at_hand = next.at_hand;
  at_hand.insert(at_hand.end(), kept_.begin(), kept_.end());
  Status status;
  if (!stays_behind(next.version)) {
    const Result<bool> there = overwrite_with(next);
    log_.reset();
    status = there.status();
    if (there.ok() && !*there) status = bring_to(next.version, at_hand);
  }
  kept_.clear();
  DW_SYNC_POINT("snapshot: at the new version");
  DW_RETURN_IF_ERROR(std::move(status));
  return remove_other_parts();
}

}  // namespace deltawire
