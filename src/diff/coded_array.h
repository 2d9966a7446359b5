// A whole array coded with `exponents` on its way to the store: planned once, coded as it is read,
// never held.
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

// Tensors that are coded on a GPU, where they are.

// A whole array as blocks of `exponents`. Thread-safe.
class ArrayCoder {
 public:
  virtual ~ArrayCoder() = default;
  virtual Result<std::vector<exponents::BlockPlan>> plan() const = 0;
  // Codes blocks from `first` on, one for each plan, into `out`, which has their size. Io if they
  // do not match their plans.
  virtual Status code(size_t first, std::span<const exponents::BlockPlan> plans,
                      MutableBytes out) const = 0;
};

// Whole tensors on a GPU. StableBody does not compare repeated reads of them, so the digests are
// computed before the first and after the last read.
struct CodedThere {
  std::map<std::string, std::shared_ptr<const ArrayCoder>> coders = {};  // by tensor
  std::map<std::string, Digest> digests = {};                            // before the first read
  // Io, naming the tensor, if its digest has changed. Empty without coders.
  std::function<Status()> check_unchanged = {};
};

// Readers go from front to end in pieces that end inside a block. Keeps that block, or several if
// many are coded at a time.
class KeptBlocks {
 public:
  // Passes the kept blocks and their position to `use`, if they contain byte `at` of the body.
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
  // `fill` makes new blocks in the memory of the old ones, which avoids page faults. They are
  // passed to `use`.
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

// Reads from a body that returns the same bytes in every read (StableBody), or fails.
class CodedArray {
 public:
  CodedArray(Layout layout, uint64_t begin, uint64_t array_bytes);
  // The whole array, planned and coded by `coder`.
  static Result<CodedArray> there(Layout layout, uint64_t array_bytes,
                                  std::shared_ptr<const ArrayCoder> coder);

  // Plan every block, in any order and from any thread, then call settle().
  size_t num_blocks() const noexcept {  // 0: no codec for this layout, or nothing to plan
    return coder_ == nullptr ? plans_.size() : 0;
  }
  Status plan_block(const Body& plain, size_t block, std::vector<uint8_t>* buffer);
  // False: coding does not save bytes, and the array stays as it is.
  bool settle();

  uint64_t payload_bytes() const noexcept { return directory_->payload_bytes(); }
  // Fills the part of `out` (which begins at `offset`) that overlaps the payload at `begin`.
  Status read(const Body& plain, uint64_t begin, uint64_t offset, MutableBytes out,
              KeptBlocks* kept) const;

 private:
  Status read_there(size_t block, uint64_t begin, uint64_t offset, MutableBytes out,
                    KeptBlocks* kept) const;
  // The first block from `first` on for which `enough` is true.
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

// Copies the part of `bytes` (at `begin`) that overlaps `out` (at `offset`).
void copy_overlap(Bytes bytes, uint64_t begin, uint64_t offset, MutableBytes out);

// The coded payload of `plain`; null if it is not smaller. Reads `plain` once.
Result<std::shared_ptr<const Body>> code_array(Layout layout, std::shared_ptr<const Body> plain,
                                               ThreadPool* pool);

// `plain` must return the same bytes in every read (StableBody), or fail. Reads it once, except for
// tensors with coders that pay. Null if packing does not save enough.
Result<std::shared_ptr<const Body>> pack_body(std::shared_ptr<const Body> plain, ThreadPool* pool,
                                              const CodedThere& there = {});

// Tensors of a delta that replicas do not have yet.

// The payload of a new tensor; sets the codec of `entry`. `stream`: codes it block by block while
// it is put, otherwise now.
Result<Payload> new_tensor_payload(const EncodeItem& item, const std::string& codec, bool stream,
                                   ThreadPool* pool, DeltaEntry* entry);

}  // namespace deltawire
