// Small tensors for the bench's own tests.
#pragma once

#include <cstring>
#include <random>
#include <vector>

#include "lab/bench/data.h"

namespace deltawire::cli {

// Owns the memory of a BenchTensor; keep it alive.
struct TensorInMemory {
  std::vector<uint8_t> before, after, work;
  BenchTensor tensor;

  TensorInMemory(Layout layout, std::vector<uint8_t> old_bytes, std::vector<uint8_t> new_bytes)
      : before(std::move(old_bytes)), after(std::move(new_bytes)), work(before) {
    tensor.name = "w";
    tensor.layout = layout;
    tensor.before = before;
    tensor.after = after;
    tensor.work = work;
  }
};

template <class Element>
TensorInMemory tensor_of(Layout layout, const std::vector<Element>& before,
                         const std::vector<Element>& after) {
  const auto bytes = [](const std::vector<Element>& elements) {
    const auto* begin = reinterpret_cast<const uint8_t*>(elements.data());
    return std::vector<uint8_t>(begin, begin + elements.size() * sizeof(Element));
  };
  return TensorInMemory(layout, bytes(before), bytes(after));
}

// Random elements of this width; about one in `one_in` changes (0: none).
inline TensorInMemory random_tensor(uint8_t width, size_t num_elements, unsigned one_in) {
  std::mt19937_64 random(width * 1000 + num_elements + one_in);
  std::vector<uint8_t> before(num_elements * width);
  for (uint8_t& byte : before) byte = uint8_t(random());
  std::vector<uint8_t> after = before;
  for (size_t i = 0; one_in != 0 && i < num_elements; ++i) {
    if (random() % one_in == 0) after[i * width + random() % width] ^= uint8_t(random() % 255 + 1);
  }
  return TensorInMemory({width, 0, 0xff}, std::move(before), std::move(after));
}

}  // namespace deltawire::cli
