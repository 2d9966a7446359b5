// Tensors that are computed on a GPU and held there for a while: those of a quantised checkpoint,
// some at a time.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "deltawire/store.h"
#include "deltawire/tensor.h"
#include "device/fp8.h"
#include "device/whole.h"

namespace deltawire {

// Tensors whose bytes are made on their way, piece by piece, wherever they are asked for: master
// weights in the host's memory that are published in a narrower dtype, and what the caller makes.
// There is never a rounded copy of a model.

// Floats (F64, F32, F16, BF16) as BF16, F16 or F32; what torch's `.to()` gives on the CPU, in
// integers: to nearest even, F64 by way of F32, and a NaN is one quiet NaN.
bool can_round(DType from, DType to);

// Whether what is published is not there as bytes: the caller makes it, or the tensor is on the
// host and of another dtype.
bool is_computed(const PublishTensor& tensor);

// The tensor's bytes as they are published, from `offset` on. On the host.
Status read_published(const PublishTensor& tensor, uint64_t offset, MutableBytes out);
Result<Digest> published_digest(const PublishTensor& tensor);
// The same as something to put into a store, for as long as the tensor's bytes stay.
std::shared_ptr<const Body> published_body(const PublishTensor& tensor);

// FP8 blocks of weights on a GPU as a tensor to publish.

// A publisher makes the elements of many at a time, or does without them.
class ComputedFp8 final : public Body {
 public:
  // `owner` keeps weights and scales alive.
  ComputedFp8(const cuda::Fp8Weights& weights, std::shared_ptr<const void> owner)
      : weights_(weights), owner_(std::move(owner)) {}
  uint64_t size() const noexcept override { return weights_.num_elements(); }
  // All of it, to memory of the device.
  Status read(uint64_t offset, MutableBytes out) const override;
  const cuda::Fp8Weights& weights() const noexcept { return weights_; }

 private:
  const cuda::Fp8Weights weights_;
  const std::shared_ptr<const void> owner_;
};

// Null: it is not made so.
const cuda::Fp8Weights* fp8_of(const Body* made);
Status unbounded_weights(const std::string& tensor);

// Bytes of a tensor, or of its box, in the dtype that it is published as.
uint64_t published_bytes(const PublishTensor& tensor);

class ComputedTensors {
 public:
  ComputedTensors(const cuda::Context& context, cuda::Stream stream)
      : context_(context), stream_(stream) {}

  struct Wanted {
    const PublishTensor* tensor;
    // Unless null: its old elements. What has changed of them is enough then, where the tensor is
    // made of FP8 blocks and encoders take marks: it is not made.
    const uint8_t* before = nullptr;
  };
  struct There {
    PublishTensor tensor;  // with bytes, unless:
    const cuda::MarkedFp8* marked = nullptr;
  };

  // Calls body(first, there) for windows of them that fit together. They are there until it
  // returns.
  template <class Body>
  Status for_windows(std::span<const Wanted> wanted, const Body& body) {
    for (size_t begin = 0; begin < wanted.size();) {
      const size_t end = end_of_window(wanted, begin);
      DW_ASSIGN_OR_RETURN(const std::vector<There> there, make(wanted.subspan(begin, end - begin)));
      DW_RETURN_IF_ERROR(body(begin, there));
      begin = end;
    }
    return {};
  }
  template <class Body>
  auto with_one(const PublishTensor& tensor, const Body& body) -> decltype(body(tensor)) {
    const Wanted one{&tensor};
    DW_ASSIGN_OR_RETURN(const std::vector<There> there, make({&one, 1}));
    return body(there[0].tensor);
  }

 private:
  static size_t end_of_window(std::span<const Wanted> wanted, size_t begin);
  Result<std::vector<There>> make(std::span<const Wanted> wanted);

  const cuda::Context& context_;
  const cuda::Stream stream_;
  cuda::DeviceBuffer buffer_;
};

}  // namespace deltawire
