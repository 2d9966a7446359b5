// FP8 blocks of weights on a GPU as a tensor to publish.
#pragma once

#include <memory>

#include "base/bytes.h"
#include "deltawire/publisher.h"
#include "deltawire/store.h"
#include "device/fp8.h"

namespace deltawire {

// A publisher makes the elements of many at a time, or does without them.
class Fp8Made final : public Body {
 public:
  // `owner` keeps weights and scales alive.
  Fp8Made(const cuda::Fp8Weights& weights, std::shared_ptr<const void> owner)
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

}  // namespace deltawire
