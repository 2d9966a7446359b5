// Small checkpoints for tests: made in memory, written on request.
#pragma once

#include "base/bytes.h"
#include "tensor/safetensors.h"
#include "tensor/safetensors_writer.h"
#include "tensor/sharded_index.h"
#include "test_files.h"

namespace deltawire::testing {

struct TestTensor {
  std::string name;
  DType dtype = DType::kBF16;
  Shape shape;
  std::vector<uint8_t> bytes;
  bool operator==(const TestTensor&) const = default;
};

// Weight-like bits for floats, arbitrary ones for other types.
inline TestTensor make_tensor(std::string name, DType dtype, Shape shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  TestTensor tensor{std::move(name), dtype, shape,
                    std::vector<uint8_t>(tensor_size_bytes(dtype, shape).value())};
  for (uint8_t& byte : tensor.bytes) byte = uint8_t(random());
  if (dtype == DType::kBF16) {
    for (size_t i = 0; i + 2 <= tensor.bytes.size(); i += 2) {
      const int exponent = 121 - int(__builtin_ctzll(random() | 1ULL << 12));
      store_le(&tensor.bytes[i], uint16_t(exponent << 7 | (random() & 0x807f)));
    }
  }
  return tensor;
}

// Changes about `density` of the elements by a step or, sometimes, a jump.
inline void change(TestTensor* tensor, double density, uint64_t seed) {
  std::mt19937_64 random(seed);
  const size_t width = std::max<size_t>(1, dtype_bits(tensor->dtype) / 8);
  for (size_t i = 0; i + width <= tensor->bytes.size(); i += width) {
    if (double(random() >> 11) / 9007199254740992.0 >= density) continue;
    uint8_t* element = &tensor->bytes[i];
    if (random() % 50 == 0) {
      for (size_t k = 0; k < width; ++k) element[k] = uint8_t(random());
    } else if (width == 2) {
      store_le(element, uint16_t(load_le<uint16_t>(element) + (random() % 2 != 0 ? 1 : -1)));
    } else {
      element[0] = uint8_t(element[0] + 1);
    }
  }
}

inline void write_checkpoint(const fs::path& path, const std::vector<TestTensor>& tensors,
                             const Metadata& metadata = {{"format", "pt"}}) {
  std::vector<TensorSpec> specs;
  for (const TestTensor& tensor : tensors)
    specs.push_back({tensor.name, tensor.dtype, tensor.shape});
  auto writer = must(SafetensorsWriter::create(path, specs, metadata));
  for (const TestTensor& tensor : tensors) ASSERT_TRUE(writer.write(tensor.bytes).ok());
  ASSERT_TRUE(writer.commit().ok());
}

// Writes files a-00001.safetensors, ... with an index and a config beside them.
inline void write_sharded(const fs::path& folder, const std::vector<TestTensor>& tensors,
                          size_t num_files) {
  fs::create_directories(folder);
  std::vector<IndexEntry> index;
  uint64_t total = 0;
  for (size_t f = 0; f < num_files; ++f) {
    std::vector<TestTensor> own;
    const std::string name = "a-0000" + std::to_string(f + 1) + ".safetensors";
    for (size_t i = f; i < tensors.size(); i += num_files) {
      own.push_back(tensors[i]);
      index.push_back({tensors[i].name, name});
      total += tensors[i].bytes.size();
    }
    write_checkpoint(folder / name, own);
  }
  ASSERT_TRUE(write_index(folder, index, total).ok());
  std::ofstream(folder / "config.json") << "{}\n";
}

}  // namespace deltawire::testing
