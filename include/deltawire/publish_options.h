// Options of a publisher. Options that exclude each other are one variant.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "deltawire/keys.h"
#include "deltawire/limits.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"

namespace deltawire {

// ---- where the snapshot is: the last committed state, which the next one is compared with

// The snapshot is in the same memory as the tensors.
struct SnapshotInMemory {
  bool pinned = false;  // of tensors on a GPU: in the host's pinned memory, not in the GPU's
};

// On disk, so that a restarted trainer goes on without fetching anything. A snapshot that is
// missing, stale or damaged is rebuilt from the chain. InvalidArgument with ranks; Unsupported with
// tensors on a GPU.
struct SnapshotInFolder {
  std::filesystem::path folder;
  bool per_run = false;  // a folder of snapshots, by run id; else it is of one run
};

using SnapshotPlace = std::variant<SnapshotInMemory, SnapshotInFolder>;

// ---- which versions are stored whole

// The seed, and beside their deltas: every so many versions (0: never), and, if by_bytes, when the
// deltas since the last anchor have grown larger than it. Ranks leave that to `compact --anchor`.
struct Anchors {
  uint64_t every = 0;
  bool by_bytes = true;
};

// All of them. There are no deltas, and nothing is kept to compare with: a snapshot's folder then
// only holds a note of the store, so that one that has gone is noticed.
struct OnlyAnchors {};

using AnchorChoice = std::variant<Anchors, OnlyAnchors>;

// ---- others

// Called when all parts are in the store; nothing is committed unless it exits with 0.
struct Hook {
  std::string command = {};  // of a shell; empty: none
  double timeout_seconds = 600;
};

// What every rank gives, by rank, of a group of processes that the caller has (MPI, NCCL, gloo).
// All ranks call it equally often. It fails, on every rank that waits, when a rank ended or does
// not come in time: rank 0 may take as long as a whole version takes to store.
using AllGather = std::function<Result<std::vector<std::string>>(std::string_view mine)>;

// A rank of a sharded trainer: each publishes its boxes; rank 0 commits when all are in, and is the
// one that signs. Kilobytes for each rank go through `all_gather`, from the thread that publishes.
struct Ranks {
  unsigned rank = 0, world = 1;
  AllGather all_gather = {};  // where there are several
};

// Of a chain that follows another project's versions, number by number (bridge/bridge.h).
struct Origin {
  std::string place = {};         // where versions come from; each manifest says it. Empty: nowhere
  uint64_t first_version = 0;     // of a new run: those before it are not there
  bool commit_unchanged = false;  // a version in which nothing changed is a version all the same
  // The tensors were made from the snapshot's: one that is damaged is not made anew behind the
  // caller's back (BaseMismatch).
  bool made_from_snapshot = false;
};

struct PublishOptions {
  SnapshotPlace snapshot;
  AnchorChoice anchors;
  Keys keys;
  Ranks ranks;
  Hook hook_before_commit;
  Origin origin;
  Limits limits;
  CudaOptions cuda;
  // A codec's name; "auto": the smallest, for each tensor.
  std::string codec = "auto";
  // Versions that are stored whole are the files of a plain checkpoint, which engines can load from
  // the store, though these are larger than packed ones.
  bool plain_files = false;
  uint64_t part_bytes = uint64_t{64} << 20;
  // How the tensors were quantised before publishing: JSON, stored in every manifest; empty if they
  // were not. A run with another quantisation is refused (InvalidArgument), because its bytes have
  // another meaning.
  std::string quantization = {};
  // Allows tensors to be added or removed or to change their shape or dtype. Otherwise a version
  // with other tensors than the previous one is refused (InvalidArgument), because it may be
  // another model.
  bool schema_change = false;
  bool new_run = false;        // begin one though the snapshot says that the store held another
  bool single_writer = false;  // allow a store without conditional put
  // Go on from the newest version that the store has when the publisher is opened, though it has
  // lost versions, or holds others under their numbers (Corruption otherwise). The first version is
  // stored whole and says so. No part of those before it is read, so this also helps where parts
  // are missing or damaged. Replicas that hold a lost version refuse the new one (Corruption)
  // unless they are told its number.
  bool accept_loss = false;
  Progress progress;
};

}  // namespace deltawire
