// The last committed state, which the next one is compared with.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/publisher.h"
#include "diff/diff.h"
#include "replica/memory_state.h"

namespace deltawire {

// An object of the store that is available locally.
struct ObjectAtHand {
  std::string name;
  std::shared_ptr<const Body> body;
  std::shared_ptr<const Body> plain = {};  // the plain file, if the object is packed
};

// The committed version.
struct Advance {
  uint64_t version = 0;
  std::span<const PublishTensor> tensors;
  const std::vector<PieceRecord>& pieces;  // parallel to `tensors`
  std::vector<ObjectAtHand> at_hand;
  const KeptChanges* kept = nullptr;  // the changes; if set, the tensors are not needed
  PublishDevice* device = nullptr;
  // the caller waits, so the tensors should still hold the committed values
  bool tensors_stay = false;
};

class Snapshot : public OldState {
 public:
  // Moves the committed contents of these tensors to the memory of the tensors, host or device.
  virtual Status place(std::span<const PublishTensor>, PublishDevice*) { return {}; }
  virtual SnapshotMemory memory() const { return {}; }
  // Called when a part was put. A snapshot that needs it to advance may keep it. Thread-safe.
  virtual Status keep_part(const std::string&, const Body&) { return {}; }
  // Whether advance() needs the changes or the tensors.
  virtual bool needs_changes() const { return true; }
  // Called after the commit: advances to the committed version. After a failure the snapshot must
  // not be used.
  virtual Status advance(const Advance& next) = 0;
};

// A box of a tensor: a view if it is contiguous, else a copy.
Result<std::optional<OldPiece>> cut_piece(const TensorSpec& form, Bytes all, const Box& box);

// In memory, one buffer per tensor or box, on the host or on a device. Advancing writes only what
// changed.
class MemorySnapshot final : public Snapshot {
 public:
  explicit MemorySnapshot(ThreadPool* pool) : pool_(pool) {}
  MemorySnapshot(MemoryState state, ThreadPool* pool);

  // Keeps only these boxes of a completely fetched state.
  Status narrow(std::span<const PublishTensor> tensors);

  Result<std::optional<OldPiece>> find(const TensorSpec& form, const Box& box) const override;
  Status place(std::span<const PublishTensor> tensors, PublishDevice* device) override;
  SnapshotMemory memory() const override;
  Hashing hashing() const override { return Hashing::kChanged; }
  Status advance(const Advance& next) override;

 private:
  struct Piece {
    Box box;
    bool held = false;
    MutableBytes bytes = {};
    std::shared_ptr<void> owner = {};
    std::shared_ptr<const PublishDevice::Held> on_device = {};

    Status allocate(uint64_t size_bytes);
  };
  struct Tensor : TensorSpec {
    std::vector<Piece> pieces;
  };
  const Piece* find_piece(const TensorSpec& form, const Box& box) const;
  Piece* find_piece(const TensorSpec& form, const Box& box) {
    return const_cast<Piece*>(std::as_const(*this).find_piece(form, box));
  }
  Status advance_tensor(const PublishTensor& tensor, bool changed, PublishDevice* device,
                        Piece* piece);
  Status advance_changes(std::span<const KeptChange> changes, const PieceRecord& record,
                         Piece* piece);
  Status prove(const Advance& next, const std::vector<size_t>& which,
               const std::vector<Piece*>& pieces);
  Status advance_on_device(const Advance& next, const std::vector<size_t>& which,
                           const std::vector<Piece*>& pieces);
  Status replace_on_device(const Advance& next, const std::vector<size_t>& which,
                           const std::vector<Piece*>& pieces);

  ThreadPool* pool_;
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace deltawire
