// Tensors of which a replica's arrays hold boxes: slices of tensor parallelism, shards.
//
// A payload may cover more than a box, and most codecs need the old weights of all that they cover:
// a box alone can neither be decoded nor proven by the digest of its tensor. So a tensor that is
// not held whole has a backing: all of it, in a file. Deltas are decoded from there and proven like
// those of any tensor; what changes inside a box goes to its array, in absolute values. Arrays are
// proven by the digest of the same box of the proven tensor, before they are written and after.
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

// From a change of a tensor to the change of a box of it.

// A change of contiguous bytes, from `begin` on.
struct CutChange {
  uint64_t begin = 0, size_bytes = 0;
  CodecId codec = CodecId::kRaw;
  std::vector<uint8_t> payload;
  uint64_t num_changed = 0;
};

// What an entry in absolute values, of codec gaps or raw, changes inside a box of its tensor: in
// bytes of the box's contents. None when that is nothing.
Result<std::optional<CutChange>> cut_to_box(const RedoEntry& redo, const Box& box);

class BoxedTensors final : public TensorSet {
 public:
  // `folder`: for backings. `spill`: for what arrays are given.
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

  // Makes backings of what the arrays hold, where that is all of a tensor. False: there are tensors
  // of which some is not held, and nothing is known of that.
  Result<bool> gather();

  Status check(std::span<const size_t> which, const Manifest& manifest) override;
  Status stage(std::span<const TensorSteps> steps, const Target& target,
               const Progress& progress) override;
  Status stage_whole(size_t number, Bytes contents) override;
  uint64_t num_staged() const override { return 0; }  // the arrays' sets count
  Status commit() override;
  Status check_written(std::span<const size_t> which, const Manifest& manifest) override;
  // Lets backings follow: not in the pause.
  Status settle() override;
  void drop() noexcept override;
  void forget() noexcept override;

 private:
  struct Tensor {
    TensorSpec form;
    uint64_t size_bytes = 0;
    std::vector<Piece> pieces;
    std::shared_ptr<MutableFile> backing = {};  // null: not known
    // Made ready:
    std::shared_ptr<MutableFile> next = {};  // another backing, or
    std::vector<ArrayChange> changes = {};   // changes of this one
    std::vector<Digest> written = {};        // of the pieces, when they will have been written
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
