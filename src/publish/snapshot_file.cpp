#include "publish/snapshot_file.h"

#include <algorithm>

#include "base/file.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/sync_point.h"
#include "diff/computed_tensors.h"
#include "diff/diff.h"
#include "replica/local_file.h"
#include "replica/overwrite.h"
#include "store/bodies.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

std::string file_name(std::string object) {
  std::replace(object.begin(), object.end(), '/', '_');
  return object;
}

fs::path checkpoint_folder(const fs::path& folder) { return folder / "checkpoint"; }

}  // namespace

FileSnapshot::FileSnapshot(const Chain& chain, fs::path folder)
    : folder_(std::move(folder)), store_(std::make_shared<OverlayStore>(chain.shared_store())) {}

Result<std::unique_ptr<FileSnapshot>> FileSnapshot::open(const Chain& chain, fs::path folder,
                                                         uint64_t version,
                                                         const PublishOptions& options,
                                                         const std::vector<ObjectAtHand>& at_hand) {
  DW_RETURN_IF_ERROR(make_folder(checkpoint_folder(folder)));
  std::unique_ptr<FileSnapshot> snapshot(new FileSnapshot(chain, std::move(folder)));
  ReplicaOptions replica;
  replica.limits.threads = diff_threads(options.limits);
  replica.heartbeat = false;   // the snapshot serves no engine
  replica.sync_files = false;  // every tensor is checked when it is compared
  replica.limits.memory_bytes = options.limits.memory_bytes;
  replica.accept.trust = options.keys.trust;
  replica.progress = options.progress;
  DW_ASSIGN_OR_RETURN(
      snapshot->replica_,
      Replica::open(snapshot->store_, checkpoint_folder(snapshot->folder_), std::move(replica)));
  DW_RETURN_IF_ERROR(snapshot->bring_to(version, at_hand));
  // The lock is held, so parts kept by an earlier process are not needed.
  DW_RETURN_IF_ERROR(remove_tree(snapshot->part_folder()));
  return snapshot;
}

Status FileSnapshot::discard(const fs::path& folder) {
  return remove_tree(checkpoint_folder(folder));
}

Status FileSnapshot::bring_to(uint64_t version, const std::vector<ObjectAtHand>& at_hand) {
  checkpoint_.reset();
  PlainFiles plain;
  for (const ObjectAtHand& object : at_hand) {
    store_->offer(object.name, object.body);
    if (object.plain) plain[object.name] = object.plain;
  }
  offer_files(&*replica_, std::move(plain));
  const Result<PullReport> report = replica_->pull(version);
  offer_files(&*replica_, {});
  store_->withdraw_all();
  DW_RETURN_IF_ERROR(Status(report.status()));
  DW_ASSIGN_OR_RETURN(checkpoint_, Checkpoint::open(report->path));
  return {};
}

Result<std::optional<OldPiece>> FileSnapshot::find(const TensorSpec& form, const Box& box) const {
  const CheckpointTensor* const tensor = checkpoint_->find(form.name);
  if (tensor == nullptr || !same_form(tensor->view, form)) {
    return std::optional<OldPiece>();
  }
  return cut_piece(form, tensor->view.bytes, box);
}

SnapshotMemory FileSnapshot::memory() const {
  SnapshotMemory memory;
  if (!checkpoint_) return memory;
  for (const CheckpointTensor& tensor : checkpoint_->tensors()) {
    memory.disk += tensor.view.bytes.size();
  }
  return memory;
}

// Parts are not kept if the store is a local folder. If the disk is full, the part is fetched when
// it is needed.
Status FileSnapshot::keep_part(const std::string& name, const Body& body) {
  if (!store_->local_folder().empty()) return {};
  const fs::path path = part_folder() / file_name(name);
  const auto keep = [&]() -> Status {
    DW_RETURN_IF_ERROR(make_folder(part_folder()));
    DW_RETURN_IF_ERROR(write_body(path, body, nullptr));
    DW_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> kept, MappedFile::open(path));
    const std::lock_guard lock(mutex_);
    kept_.push_back({name, file_body(std::move(kept))});
    return {};
  };
  const Status status = keep();
  if (!status.ok()) log_event(LogLevel::kWarning, "snapshot.part_not_kept", {{"error", status}});
  return {};
}

// False if the snapshot must be advanced with the published objects.
Result<bool> FileSnapshot::overwrite_with(const Advance& next) {
  if (next.kept != nullptr) return false;
  std::vector<NewContents> changed;
  for (size_t i = 0; i < next.tensors.size(); ++i) {
    const PublishTensor& tensor = next.tensors[i];
    if (!next.pieces[i].changed) continue;
    if (!tensor.box.whole() || on_device(tensor) || is_computed(tensor)) return false;
    changed.push_back({tensor.view, next.pieces[i].num_changed});
  }
  return overwrite(&*replica_, next.version, changed);
}

Status FileSnapshot::advance(const Advance& next) {
  std::vector<ObjectAtHand> at_hand = next.at_hand;
  at_hand.insert(at_hand.end(), kept_.begin(), kept_.end());
  const Result<bool> there = overwrite_with(next);
  Status status = there.status();
  if (there.ok() && !*there) status = bring_to(next.version, at_hand);
  kept_.clear();
  DW_SYNC_POINT("snapshot: at the new version");
  DW_RETURN_IF_ERROR(std::move(status));
  return remove_tree(part_folder());
}

}  // namespace deltawire
