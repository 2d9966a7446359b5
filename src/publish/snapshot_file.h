// A snapshot on disk: a replica of the chain, kept by its publisher.
//
//   SNAPSHOT/checkpoint/   the replica, with its own lock, state and journal
//   SNAPSHOT/parts/        of the version that is on its way to a remote store
//
// To advance, the tensors of the new version are written over what the files hold
// (replica/overwrite.h). Where that cannot be, it advances like any replica. A crash at any instant
// leaves it at a version of the chain, or known to be none. One that is stale, damaged or missing
// is brought up to date like any replica.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>

#include "deltawire/checkpoint.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"
#include "format/manifest.h"
#include "publish/snapshot.h"
#include "store/forwarding_store.h"

namespace deltawire {

class FileSnapshot final : public Snapshot {
 public:
  // Takes the lock, finishes interrupted work and brings the snapshot to `version`. Conflict if
  // another process holds it; BaseMismatch if it belongs to another run. `at_hand`: objects of that
  // version.
  static Result<std::unique_ptr<FileSnapshot>> open(const Chain& chain,
                                                    std::filesystem::path folder, uint64_t version,
                                                    const PublishOptions& options,
                                                    const std::vector<ObjectAtHand>& at_hand = {});

  // Deletes the checkpoint, which does not match its version, so that it is rebuilt from the chain.
  static Status discard(const std::filesystem::path& folder);

  Result<std::optional<OldPiece>> find(const TensorSpec& form, const Box& box) const override;
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  SnapshotMemory memory() const override;
  Hashing hashing() const override { return Hashing::kChecked; }
  Status keep_part(const std::string& name, const Body& body) override;
  bool needs_changes() const override { return false; }  // it uses the parts
  Status advance(const Advance& next) override;

 private:
  FileSnapshot(const Chain& chain, std::filesystem::path folder);
  Result<bool> overwrite_with(const Advance& next);
  Status bring_to(uint64_t version, const std::vector<ObjectAtHand>& at_hand);
  std::filesystem::path part_folder() const { return folder_ / "parts"; }

  const std::filesystem::path folder_;
  const std::shared_ptr<OverlayStore> store_;
  std::optional<Replica> replica_;
  std::optional<Checkpoint> checkpoint_;
  std::mutex mutex_;
  std::vector<ObjectAtHand> kept_;  // parts of the version being published
};

// The last committed version of a publisher with a snapshot on disk, for callers that derive the
// next version from it tensor by tensor.
struct CommittedState {
  Checkpoint checkpoint;  // valid until the next publish
  VersionRecord record;   // of the version that it is
  Schema schema;
  std::filesystem::path folder;  // of the snapshot
};

// Brings the snapshot to the chain's newest version. None: nothing was published yet.
// InvalidArgument: the snapshot is not in a folder.
Result<std::optional<CommittedState>> committed_state(Publisher* publisher);

}  // namespace deltawire
