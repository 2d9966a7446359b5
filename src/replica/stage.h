// The last step before a write: computes a tensor's new bytes as absolute values and proves base
// and result. It does not matter whether the bytes are in files or in memory.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "deltawire/status.h"
#include "replica/journal_redo.h"
#include "replica/limits.h"
#include "replica/tensors.h"

namespace deltawire {

// Space for a copy of one tensor: in memory, or in a file if the tensor is large.
class ScratchCopy {
 public:
  // `number` distinguishes copies in a folder. A copy larger than `in_memory` is a file, whose
  // pages the kernel can evict.
  static Result<ScratchCopy> make(const std::filesystem::path& folder, size_t number, uint64_t size,
                                  uint64_t in_memory) {
    ScratchCopy copy;
    if (size <= in_memory) {
      copy.memory_ = std::make_unique_for_overwrite<uint8_t[]>(size);
      copy.bytes_ = {copy.memory_.get(), size_t(size)};
      return copy;
    }
    DW_ASSIGN_OR_RETURN(MutableFile file,
                        MutableFile::create(folder / ("tensor-" + std::to_string(number)), size));
    copy.file_ = std::make_unique<MutableFile>(std::move(file));
    copy.bytes_ = copy.file_->bytes();
    return copy;
  }
  MutableBytes bytes() const { return bytes_; }

 private:
  std::unique_ptr<uint8_t[]> memory_;
  std::unique_ptr<MutableFile> file_;
  MutableBytes bytes_;
};

class Ahead;

struct StageJob {
  const TensorSteps& steps;  // with at least one entry
  const Target& target;
  const std::string& place;              // of the tensor, for messages
  const TensorView& held;                // the current bytes, which are not changed
  const std::filesystem::path& scratch;  // for copies of tensors too large for memory
  StageMemory memory = share_stage_memory(kUsualMemory);
  Ahead* ahead = nullptr;  // tensors that were decoded early; may be null
};

// Whether the job is one sparse change of the whole tensor, whose digests are proven in the
// decoding pass.
bool is_one_proven_step(const StageJob& job);

// Passes the differences between the held bytes and the target to `take`, in entries of bounded
// size. Everything is checked before the first entry: BaseMismatch if the held bytes are not what
// the steps expect, Corruption if the steps do not lead to the target.
//
// A single sparse step, the usual case of a replica that keeps up, is decoded directly from the
// held bytes. Other steps work on a copy.
Status stage_tensor(const StageJob& job, ThreadPool* pool,
                    const std::function<Status(RedoEntry)>& take);

}  // namespace deltawire
