// Tensors computed when they are published, such as those of a quantised checkpoint.
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

// Tensors whose bytes are computed piece by piece where they are needed: master weights on the host
// that are published in a narrower dtype, and tensors that the caller computes. No rounded copy of
// the model exists.

// Whether floats (F64, F32, F16, BF16) can be rounded to BF16, F16 or F32. Rounds like torch's
// `.to()` on the CPU: to nearest even, F64 by way of F32, and every NaN becomes one quiet NaN.
bool can_round(DType from, DType to);

// Whether the published bytes must be computed: the caller does it, or the host tensor has another
// dtype.
bool is_computed(const PublishTensor& tensor);

// Reads the published bytes from `offset` on, on the host.
Status read_published(const PublishTensor& tensor, uint64_t offset, MutableBytes out);
Result<Digest> published_digest(const PublishTensor& tensor);
// The published bytes as a body for a store. The tensor's bytes must outlive it.
std::shared_ptr<const Body> published_body(const PublishTensor& tensor);

// FP8 blocks of GPU weights as a published tensor.

// A publisher computes many of them together, or only what changed.
class ComputedFp8 final : public Body {
 public:
  // `owner` keeps weights and scales alive.
  ComputedFp8(const cuda::Fp8Weights& weights, std::shared_ptr<const void> owner)
      : weights_(weights), owner_(std::move(owner)) {}
  uint64_t size() const noexcept override { return weights_.num_elements(); }
  // Reads the whole tensor, into device memory.
  Status read(uint64_t offset, MutableBytes out) const override;
  const cuda::Fp8Weights& weights() const noexcept { return weights_; }

 private:
  const cuda::Fp8Weights weights_;
  const std::shared_ptr<const void> owner_;
};

// Null if the body is not made of FP8 blocks.
const cuda::Fp8Weights* fp8_of(const Body* made);
Status unbounded_weights(const std::string& tensor);

// The size of a tensor, or of its box, in the published dtype.
uint64_t published_bytes(const PublishTensor& tensor);

class ComputedTensors {
 public:
  ComputedTensors(const cuda::Context& context, cuda::Stream stream)
      : context_(context), stream_(stream) {}

  struct Wanted {
    const PublishTensor* tensor;
    // The old elements, or null. With them, a tensor of FP8 blocks is not computed if the encoder
    // accepts marks of what has changed.
    const uint8_t* before = nullptr;
  };
  struct There {
    PublishTensor tensor;  // with its bytes, unless `marked` is set
    const cuda::MarkedFp8* marked = nullptr;
  };

  // Calls body(first, there) for groups of tensors that fit into the buffer. They are valid until
  // it returns.
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
