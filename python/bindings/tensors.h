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

// Python's deltawire._core.Tensor. Keeps its array alive.
struct Tensor : TensorSpec {  // of the whole tensor
  Box box;                    // the part that `bytes` holds
  std::span<uint8_t> bytes;
  Memory memory = Memory::kHost;
  std::optional<DType> source;  // the dtype of `bytes`, if they are converted while publishing
  bool unchanged = false;       // the caller says so; not compared
  bool writable = false;
  nb::ndarray<nb::ro> array;                  // owns `bytes`
  std::shared_ptr<const Body> computed = {};  // published instead of `bytes`
};

std::vector<PublishTensor> to_publish(const std::vector<const Tensor*>& tensors);
// Unsupported if a tensor is not in host memory.
std::vector<TensorView> to_views(const std::vector<const Tensor*>& tensors);
// InvalidArgument for arrays that cannot be written.
std::vector<LiveTensor> to_patch(const std::vector<const Tensor*>& tensors);

void bind_tensors(nb::module_& module);

}  // namespace deltawire::python
