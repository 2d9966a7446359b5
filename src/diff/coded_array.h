// A whole array in `exponents` on its way to the store: planned once, coded as it is read, never
// held.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "codec/exponents.h"
#include "delta/encode_items.h"
#include "deltawire/digest.h"
#include "deltawire/store.h"
#include "transfer/part_stream.h"

namespace deltawire {

// Tensors that are coded where they are, on a GPU: what comes from there is what is put.

// A whole array as blocks of `exponents`. Any thread.
class ArrayCoder {
 public:
  virtual ~ArrayCoder() = default;
  virtual Result<std::vector<exponents::BlockPlan>> plan() const = 0;
  // Blocks from `first` on, as many as there are plans, one after the other, to `out`, which has
  // their size. Io if they are not as planned.
  virtual Status code(size_t first, std::span<const exponents::BlockPlan> plans,
                      MutableBytes out) const = 0;
};

// Whole tensors of one look at a GPU. Nobody there holds what is read against what was read before,
// as StableBody does: the last look has to find what the first one has found.
struct CodedThere {
  std::map<std::string, std::shared_ptr<const ArrayCoder>> coders = {};  // by tensor
  std::map<std::string, Digest> digests = {};                            // of the first look
  // The last look: Io, naming the tensor, unless it is what it was. Empty without coders.
  std::function<Status()> check_unchanged = {};
};

// Readers come from front to end, in pieces that end inside a block: that one is kept, or it and
// those behind it where many are coded at a time.
class KeptBlocks {
 public:
  // Kept blocks that have the byte at `at` of the body go to `use`, with where they begin.
  template <class Use>
  bool find(uint64_t at, const Use& use) {
    const std::lock_guard lock(mutex_);
    if (at < begin_ || at - begin_ >= bytes_.size()) return false;
    use(begin_, Bytes(bytes_));
    return true;
  }
  void keep(uint64_t begin, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    bytes_.assign(bytes.begin(), bytes.end());
    begin_ = begin;
  }
  // Blocks that `fill` makes where the ones before them were: new memory is a page fault for every
  // page. They go to `use`.
  template <class Fill, class Use>
  Status make(uint64_t begin, size_t num_bytes, const Fill& fill, const Use& use) {
    const std::lock_guard lock(mutex_);
    bytes_.resize(num_bytes);
    Status status = fill(MutableBytes(bytes_));
    if (!status.ok()) bytes_.clear();
    begin_ = begin;
    if (status.ok()) use(begin_, Bytes(bytes_));
    return status;
  }

 private:
  std::mutex mutex_;
  std::vector<uint8_t> bytes_;
  uint64_t begin_ = 0;
};

// Part of a body that gives the same bytes however often it is read (StableBody), or fails.
class CodedArray {
 public:
  CodedArray(Layout layout, uint64_t begin, uint64_t array_bytes);
  // Planned and coded elsewhere, all of it.
  static Result<CodedArray> there(Layout layout, uint64_t array_bytes,
                                  std::shared_ptr<const ArrayCoder> coder);

  // Every block is planned, in any order, by any thread; then settle().
  size_t num_blocks() const noexcept {  // 0: no codec for this layout, or none is left to plan
    return coder_ == nullptr ? plans_.size() : 0;
  }
  Status plan_block(const Body& plain, size_t block, std::vector<uint8_t>* buffer);
  // False: it does not pay, and the array stays as it is.
  bool settle();

  uint64_t payload_bytes() const noexcept { return directory_->payload_bytes(); }
  // The part of `out`, which begins at `offset`, that the payload at `begin` has.
  Status read(const Body& plain, uint64_t begin, uint64_t offset, MutableBytes out,
              KeptBlocks* kept) const;

 private:
  Status read_there(size_t block, uint64_t begin, uint64_t offset, MutableBytes out,
                    KeptBlocks* kept) const;
  // Blocks from `first` to before the first that `enough` is true of, by its number.
  template <class Enough>
  size_t end_of(size_t first, const Enough& enough) const {
    while (first < directory_->num_blocks() && !enough(first)) ++first;
    return first;
  }
  uint64_t bytes_between(size_t first, size_t last) const {
    return directory_->block_end(last - 1) - directory_->block_begin(first);
  }
  Result<Bytes> plain_block(const Body& plain, size_t block, std::vector<uint8_t>* buffer) const;

  Layout layout_;
  uint64_t begin_, array_bytes_;
  std::shared_ptr<const ArrayCoder> coder_;  // null: coded here
  std::vector<exponents::BlockPlan> plans_;
  std::optional<exponents::Directory> directory_;
  std::vector<uint8_t> front_;  // of the payload
};

// Copies the part of `out`, which begins at `offset`, that `bytes` at `begin` have.
void copy_overlap(Bytes bytes, uint64_t begin, uint64_t offset, MutableBytes out);

// The payload of all of `plain`; null when it does not pay. Reads it once.
Result<std::shared_ptr<const Body>> code_array(Layout layout, std::shared_ptr<const Body> plain,
                                               ThreadPool* pool);

// `plain` gives the same bytes however often it is read (StableBody), or fails. Reads it once. Null
// when packing does not pay.
// Tensors with coders are not read from it where they pay.
Result<std::shared_ptr<const Body>> pack_body(std::shared_ptr<const Body> plain, ThreadPool* pool,
                                              const CodedThere& there = {});

// A tensor that replicas have nothing of, in a delta.

// Its payload, whose codec goes to `entry`. `stream`: it is made while it is put, from a body that
// reads the tensor block by block; else it is made now.
Result<Payload> new_tensor_payload(const EncodeItem& item, const std::string& codec, bool stream,
                                   ThreadPool* pool, DeltaEntry* entry);

}  // namespace deltawire
