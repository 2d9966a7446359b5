// Arrays of any framework as tensors, without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>
#include <string>
#include <vector>

#include "deltawire/publisher.h"
#include "deltawire/tensor_replica.h"

namespace deltawire::python {

namespace nb = nanobind;

// Python's deltawire._core.Tensor: keeps its array alive. What is published may be read-only; what
// a replica writes may not.
struct Tensor : TensorSpec {  // of the whole tensor
  Box box;                    // what the bytes are of it
  std::span<uint8_t> bytes;
  Memory memory = Memory::kHost;
  std::optional<DType> source;  // what the bytes really are, where they are converted on their way
  bool unchanged = false;       // by the caller's word
  bool writable = false;
  nb::ndarray<nb::ro> array;                  // whose bytes they are
  std::shared_ptr<const Body> computed = {};  // to be published in place of `bytes`
};

std::vector<PublishTensor> to_publish(const std::vector<const Tensor*>& tensors);
// In host memory; Unsupported otherwise.
std::vector<TensorView> to_views(const std::vector<const Tensor*>& tensors);
// InvalidArgument for arrays that cannot be written.
std::vector<LiveTensor> to_patch(const std::vector<const Tensor*>& tensors);

void bind_tensors(nb::module_& module);

}  // namespace deltawire::python
