// A tensor in host memory.
#pragma once

#include "deltawire/tensor_replica.h"
#include "sync/replica/journal_redo.h"
#include "sync/replica/tensor_memory.h"

namespace deltawire {

class HostTensorMemory final : public TensorMemory {
 public:
  // `scratch`: a folder for copies of tensors too large for memory, when they need one.
  HostTensorMemory(HostTensor tensor, std::filesystem::path scratch)
      : tensor_(std::move(tensor)), scratch_(std::move(scratch)) {}

  Result<Digest> digest(DigestKind kind, const std::vector<BoxDigest>* boxes) override;
  Status stage(const TensorSteps& steps, const Target& target, const std::string& place,
               ThreadPool* pool) override;
  Status stage_whole(Bytes contents) override;
  uint64_t num_staged() const override;
  Status commit(ThreadPool* pool) override;
  void drop() noexcept override;

 private:
  const HostTensor tensor_;
  const std::filesystem::path scratch_;
  std::vector<RedoEntry> staged_;
  Bytes whole_;
};

}  // namespace deltawire
