// Tensors in a GPU's memory: patched in place from the payloads themselves, with nothing dense in
// between.
//
// prepare() proves that what is there is what the payloads were made for, and that they are sound;
// what they lead to is proven by commit(), when it has been written. A tensor that comes in other
// boxes than runs of rows, or whole, is built on the host.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/cuda.h"
#include "sync/replica/tensor_set.h"

namespace deltawire {

class DeviceTensors final : public TensorSet {
 public:
  static Result<std::unique_ptr<DeviceTensors>> open(const TensorReplicaOptions& options,
                                                     ThreadPool* pool);

  void add(size_t number, LiveTensor tensor) override;
  Status check(std::span<const size_t> which, const Manifest& manifest) override;
  Status stage(std::span<const TensorSteps> steps, const Target& target,
               const Progress& progress) override;
  Status stage_whole(size_t number, Bytes contents) override;
  uint64_t num_staged() const override { return num_staged_; }
  Status commit() override;
  void drop() noexcept override;

 private:
  // An entry of a delta, kept until commit().
  struct Change {
    size_t number;  // of its tensor
    uint64_t begin, size_bytes;
    CodecId codec;
    std::vector<uint8_t> payload;
    std::string place;  // for messages
  };
  struct Whole {
    size_t number;
    Bytes contents;
    std::vector<uint8_t> owned;
  };

  DeviceTensors(cuda::Context context, cuda::Stream stream, ThreadPool* pool)
      : context_(std::move(context)), stream_(stream), pool_(pool) {}

  Status fetch(const LiveTensor& tensor, MutableBytes out);
  Status check_base(std::span<const TensorSteps* const> steps);
  Status stage_on_host(const TensorSteps& steps, const Target& target);
  std::vector<cuda::Patch> patches_of(std::span<const Change> changes, size_t first) const;

  cuda::Context context_;
  const cuda::Stream stream_;
  ThreadPool* const pool_;
  std::map<size_t, LiveTensor> tensors_;
  // Changes of a turn are of different bytes: they can be written side by side.
  std::vector<std::vector<Change>> turns_;
  std::vector<Whole> wholes_;
  uint64_t num_staged_ = 0;
};

}  // namespace deltawire
