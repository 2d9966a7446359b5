// The trainer's side: turns successive states of a model into versions of a chain.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deltawire/manifest.h"
#include "deltawire/progress.h"
#include "deltawire/publish_options.h"
#include "deltawire/status.h"
#include "deltawire/store.h"
#include "deltawire/tensor.h"

namespace deltawire {

struct PublishReport : Identity {
  bool committed = true;  // false: nothing had changed, `version` is the head
  bool full = false;
  std::string reason;  // when full
  std::string codec;   // asked for
  bool anchored = false;
  uint64_t num_tensors = 0, num_changed_tensors = 0;
  uint64_t num_added = 0, num_removed = 0,
           num_reshaped = 0;  // tensors; reshaped: or of another dtype
  // Of a delta; tensors that were added or reshaped count whole.
  uint64_t num_elements = 0, num_changed = 0;
  uint64_t weights_bytes = 0, bytes = 0;  // of the model; of the parts
  uint64_t num_parts = 0;
  double seconds = 0;
  std::vector<Phase> phases;
  // Most of the weights are float32, and most of their elements changed: masters, perhaps, that
  // engines hold with fewer bits. Said once per publisher, and not of the seed.
  bool dense_float32 = false;
  // Failures outside the commit: the version is published, and later versions catch up on the rest.
  std::vector<std::string> warnings;
  // What a checkpoint's folder holds that does not travel; said once per publisher, and when it
  // changes.
  std::string note;
};

// The size of the snapshot.
struct SnapshotMemory {
  uint64_t host = 0, pinned = 0, device = 0, disk = 0;  // bytes
};

// Holds the snapshot: the last committed state. It advances when, and only when, a manifest is
// committed; after any failure the next publish carries everything. After a Conflict, too: it goes
// on from the version that was first. A store that holds another run by then is refused
// (BaseMismatch), as is one that has lost versions (Corruption). One thread at a time.
//
// Unsupported: a store without conditional put, unless `single_writer`; tensors on a GPU together
// with a snapshot in a folder, or in a build without CUDA; a digest that the build does not have.
class Publisher {
 public:
  // Opens the chain at `store`, or makes a run there at the first publish. A snapshot in a folder
  // that is of another run is refused (BaseMismatch). A store that holds no run, though the
  // snapshot is of one that was published there, is refused too (NotFound) unless `new_run`: it may
  // be a folder whose disk is not mounted. InvalidArgument for options that do not go together.
  static Result<Publisher> open(std::shared_ptr<Store> store, PublishOptions options = {});
  ~Publisher();
  Publisher(Publisher&&) noexcept;
  Publisher& operator=(Publisher&&) noexcept;

  const std::string& run() const noexcept;  // empty until there is one
  SnapshotMemory memory() const;

  // Publishes a state: all tensors of the model, in any order, and the files beside them. Tensors
  // stay as they are until it returns; capture() lets go of them earlier.
  //
  // `extra_files` (config.json, tokenizer, ...) are the version's, all of them, by their file
  // names: replicas of the version have exactly these. None: those of the previous version. New
  // contents are uploaded once; a version where only they differ is a version like any other.
  // InvalidArgument, before anything is uploaded, for what the folder of a checkpoint may not hold
  // (docs/format.md). Of ranks, rank 0's are taken.
  //
  // Ranks call it all, and all succeed or none does: where one fails, the others fail with its code
  // and name it, and nothing is committed. Only where the group itself fails may ranks disagree;
  // the next publish() finds out. `step`, if ranks give it, must be the same on all
  // (InvalidArgument).
  using Paths = std::vector<std::filesystem::path>;
  Result<PublishReport> publish(std::span<const PublishTensor> tensors,
                                const std::optional<Paths>& extra_files = {},
                                std::optional<uint64_t> step = {});
  // publish() in two halves. capture() compares and encodes: when it returns, the tensors may
  // change again. Parts go on their way meanwhile; finish() waits for them, commits, and lets the
  // snapshot follow. It may be called from another thread. One at a time: InvalidArgument for a
  // second capture(). capture() itself takes as long as publish() does where the tensors are needed
  // to the end: versions that are stored whole (the seed, dense ones, anchors), more changes than a
  // quarter of the memory limit, and ranks.
  Status capture(std::span<const PublishTensor> tensors,
                 const std::optional<Paths>& extra_files = {}, std::optional<uint64_t> step = {});
  Result<PublishReport> finish();
  // publish() from a checkpoint on disk, with the files in its folder, but for hidden ones and
  // weights in other formats; folders in it do not travel either. A single file says nothing about
  // others: the version keeps those of the one before.
  Result<PublishReport> publish_checkpoint(const std::filesystem::path& checkpoint);

  struct Impl;  // defined inside the library only
  Impl& impl() noexcept { return *impl_; }

 private:
  explicit Publisher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
