// A whole array in `exponents` on its way to the store: planned once, coded as it is read, never
// held.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/thread_pool.h"
#include "codec/exponents.h"
#include "deltawire/store.h"

namespace deltawire {

// Readers come from front to end, in pieces that end inside a block: that one is kept.
class KeptBlock {
 public:
  // The block `id`, if it is the one that is kept, goes to `use`.
  template <class Use>
  bool find(uint64_t id, const Use& use) {
    const std::lock_guard lock(mutex_);
    if (id_ != id) return false;
    use(Bytes(bytes_));
    return true;
  }
  void keep(uint64_t id, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    bytes_.assign(bytes.begin(), bytes.end());
    id_ = id;
  }

 private:
  std::mutex mutex_;
  std::vector<uint8_t> bytes_;
  uint64_t id_ = UINT64_MAX;
};

// Part of a body that gives the same bytes however often it is read (SteadyBody), or fails.
class CodedArray {
 public:
  CodedArray(Layout layout, uint64_t begin, uint64_t array_bytes);

  // Every block is planned, in any order, by any thread; then settle().
  size_t num_blocks() const noexcept { return plans_.size(); }  // 0: no codec for this layout
  Status plan_block(const Body& plain, size_t block, std::vector<uint8_t>* room);
  // False: it does not pay, and the array stays as it is.
  bool settle();

  uint64_t payload_bytes() const noexcept { return directory_->payload_bytes(); }
  // The part of `out`, which begins at `offset`, that the payload at `begin` has. May throw
  // std::bad_alloc.
  Status read(const Body& plain, uint64_t begin, uint64_t offset, MutableBytes out,
              KeptBlock* kept) const;

 private:
  Result<Bytes> plain_block(const Body& plain, size_t block, std::vector<uint8_t>* room) const;

  Layout layout_;
  uint64_t begin_, array_bytes_;
  std::vector<exponents::BlockPlan> plans_;
  std::optional<exponents::Directory> directory_;
  std::vector<uint8_t> front_;  // of the payload
};

// Copies the part of `out`, which begins at `offset`, that `bytes` at `begin` have.
void copy_overlap(Bytes bytes, uint64_t begin, uint64_t offset, MutableBytes out);

// The payload of all of `plain`; null when it does not pay. Reads it once.
Result<std::shared_ptr<const Body>> code_array(Layout layout, std::shared_ptr<const Body> plain,
                                               ThreadPool* pool);

}  // namespace deltawire
