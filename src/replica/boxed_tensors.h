// Tensors of which a replica's arrays hold only boxes: slices of tensor parallelism, shards.
//
// A payload may cover more than a box, and most codecs need the old values of everything that the
// payload covers. So a box alone can neither be decoded nor proven by the digest of its tensor, and
// a tensor that is not held whole has a backing: a file with all of its bytes. Deltas are decoded
// from the backing and proven as usual. The changes inside a box go to its array as absolute
// values. Before and after the write, an array is proven by the digest of the same box of the
// backing.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"
#include "deltawire/tensor.h"
#include "replica/journal_redo.h"
#include "replica/limits.h"
#include "replica/tensor_set.h"

namespace deltawire {

// Cutting a change of a tensor down to a box.

// A change of contiguous bytes that starts at `begin`.
struct CutChange {
  uint64_t begin = 0, size_bytes = 0;
  CodecId codec = CodecId::kRaw;
  std::vector<uint8_t> payload;
  uint64_t num_changed = 0;
};

// The part of an entry in absolute values (codec gaps or raw) that lies inside a box, in bytes of
// the box's contents. None: nothing in the box changes.
Result<std::optional<CutChange>> cut_to_box(const RedoEntry& redo, const Box& box);

class BoxedTensors final : public TensorSet {
 public:
  // `folder` holds the backings; `spill` holds the changes for the arrays.
  BoxedTensors(ThreadPool* pool, std::filesystem::path folder, TensorMemory memory,
               SpillSpace* spill)
      : pool_(pool),
        folder_(std::move(folder)),
        memory_(memory),
        spill_(spill),
        own_spill_(folder_, memory.waiting_bytes) {}

  // An array that holds a box.
  struct Piece {
    size_t array = 0;
    Box box;
    ArraySet* set = nullptr;
  };
  // Boxes do not overlap.
  void add(size_t number, TensorSpec form, std::vector<Piece> pieces);

  // Creates the backings from the arrays, if the arrays hold all of each tensor. False: parts of
  // some tensors are not held.
  Result<bool> gather();

  Status check(std::span<const size_t> which, const Manifest& manifest) override;
  Status stage(std::span<const TensorSteps> steps, const Target& target,
               const Progress& progress) override;
  Status stage_whole(size_t number, Bytes contents) override;
  uint64_t num_staged() const override { return 0; }  // counted by the sets of the arrays
  Status commit() override;
  Status check_written(std::span<const size_t> which, const Manifest& manifest) override;
  // Updates the backings. Not called during the engine's pause.
  Status settle() override;
  void drop() noexcept override;
  void forget() noexcept override;

 private:
  struct Tensor {
    TensorSpec form;
    uint64_t size_bytes = 0;
    std::vector<Piece> pieces;
    std::shared_ptr<MutableFile> backing = {};  // null: unknown
    // Staged:
    std::shared_ptr<MutableFile> next = {};  // a new backing, or
    std::vector<ArrayChange> changes = {};   // changes to this backing
    std::vector<Digest> written = {};        // digests of the pieces after commit()
  };
  Result<std::shared_ptr<MutableFile>> make_backing(size_t number, uint64_t size_bytes) const;
  Status check_pieces(std::span<const size_t> which);
  Status check_arrays(std::span<const size_t> which,
                      const std::function<const Digest&(const Tensor&, size_t piece)>& expected);
  Status stage_one(const TensorSteps& steps, const Target& target, ThreadPool* inner);

  ThreadPool* const pool_;
  const std::filesystem::path folder_;
  const TensorMemory memory_;
  SpillSpace* const spill_;
  SpillSpace own_spill_;  // for changes of backings
  bool committed_ = false;
  std::map<size_t, Tensor> tensors_;
};

}  // namespace deltawire
