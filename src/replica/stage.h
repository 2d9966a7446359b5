// The last step before anything changes: what a tensor's bytes will become, as absolute values,
// proven at both ends. Where the bytes are, in a file or in somebody's memory, is not its business.
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

// Space for a copy of one tensor: in memory, or in a file when the tensor is large.
class ScratchCopy {
 public:
  // `number` tells copies in one folder apart. Larger than `in_memory`, it lives in a file, whose
  // pages the kernel can write out.
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
  const TensorView& held;                // what is there; stays as it is
  const std::filesystem::path& scratch;  // for copies of tensors too large for memory
  StageMemory memory = share_stage_memory(kUsualMemory);
  Ahead* ahead = nullptr;  // what was decoded before; null: nothing was
};

// One sparse change of the whole tensor, whose digests are proven in the pass that decodes it.
bool is_one_proven_step(const StageJob& job);

// Hands what differs between the held bytes and the target's to `take`, in entries of bounded size.
// Before the first one, all is checked: BaseMismatch when what is held is not what the steps
// expect, Corruption when they do not lead to the target.
//
// One sparse step, which is what a replica that keeps up sees, is decoded from the held bytes
// themselves. Anything else works on a copy.
Status stage_tensor(const StageJob& job, ThreadPool* pool,
                    const std::function<Status(RedoEntry)>& take);

}  // namespace deltawire
