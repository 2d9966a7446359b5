// Tensors in several versions, deltas between them, and the memory of a worker that holds boxes of
// them, with the expected results of staging.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <vector>

#include "format/layout.h"
#include "live/stage.h"
#include "test_files.h"

namespace deltawire {

struct VersionedTensor : TensorSpec {
  std::vector<std::vector<uint8_t>> versions;
};

// Realistic weights in BF16, arbitrary bytes in other types; each element changes with the given
// probability.
inline VersionedTensor make_versions(std::string name, DType dtype, Shape shape, size_t num_deltas,
                                     double density, uint64_t seed) {
  std::mt19937_64 random(seed);
  VersionedTensor made{{std::move(name), dtype, std::move(shape)}, {}};
  std::vector<uint8_t> bytes(must(tensor_size_bytes(made.dtype, made.shape)));
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] =
        dtype == DType::kBF16 && i % 2 == 1 ? uint8_t(0x3a + random() % 4) : uint8_t(random());
  }
  made.versions.push_back(bytes);
  const size_t width = layout_of(dtype).width;
  for (size_t version = 0; version < num_deltas; ++version) {
    for (size_t at = 0; at < bytes.size(); at += width) {
      if (double(random() >> 11) * 0x1p-53 < density) bytes[at] ^= uint8_t(1 + random() % 3);
    }
    made.versions.push_back(bytes);
  }
  return made;
}

// Deltas whose payloads are in memory.
class MadeDeltas {
 public:
  explicit MadeDeltas(size_t count) : deltas_(count) {}

  // Adds an entry to delta `number`, from version `number` to the next, with the named codec.
  void add(size_t number, const VersionedTensor& tensor, const Box& box, const char* codec) {
    DeltaEntry entry;
    entry.tensor = tensor.name;
    entry.dtype = tensor.dtype;
    entry.shape = tensor.shape;
    entry.box = box;
    entry.codec = find_codec(codec)->id();
    const auto contents = [&](size_t version) {
      if (box.whole()) return tensor.versions[version];
      std::vector<uint8_t> out(entry.box_bytes());
      copy_box_out(box, tensor.dtype, tensor.shape, tensor.versions[version], out);
      return out;
    };
    Encoded encoded = must(
        find_codec(codec)->encode(entry.layout(), contents(number), contents(number + 1), nullptr));
    entry.num_changed = encoded.num_changed;
    payloads_.push_back(std::move(encoded.payload));
    const std::string place =
        "delta " + std::to_string(number) + ", tensor \"" + tensor.name + "\"";
    deltas_[number].entries.push_back({std::move(entry), payloads_.back(), place});
  }
  void add_all(const VersionedTensor& tensor, const char* codec, const Box& box = {}) {
    for (size_t i = 0; i < deltas_.size(); ++i) add(i, tensor, box, codec);
  }

  std::vector<Delta>& deltas() { return deltas_; }

 private:
  std::vector<Delta> deltas_;
  std::deque<std::vector<uint8_t>> payloads_;
};

// Cuts one dimension into `parts`, as evenly as possible.
inline std::vector<Box> slices_of(const Shape& shape, size_t dimension, uint64_t parts) {
  std::vector<Box> boxes;
  for (uint64_t i = 0; i < parts; ++i) {
    Box box{Shape(shape.size()), shape};
    box.offset[dimension] = shape[dimension] * i / parts;
    box.extent[dimension] = shape[dimension] * (i + 1) / parts - box.offset[dimension];
    if (box.extent[dimension] != 0) boxes.push_back(std::move(box));
  }
  return boxes;
}

// A box in its own memory: `gap` bytes after each row, and `skew` bytes before the first.
struct BoxMemory {
  Box box;
  size_t gap = 0, skew = 0;

  size_t row_bytes(const TensorSpec& spec) const {
    const Shape extent = box_shape(box, spec.shape);
    return extent.empty() ? must(tensor_size_bytes(spec.dtype, extent))
                          : extent.back() * dtype_bits(spec.dtype) / 8;
  }
  // The memory with a version in it.
  std::vector<uint8_t> filled(const VersionedTensor& tensor, size_t version) const {
    const Shape extent = box_shape(box, tensor.shape);
    std::vector<uint8_t> contents(must(tensor_size_bytes(tensor.dtype, extent)));
    if (box.whole()) {
      contents = tensor.versions[version];
    } else {
      copy_box_out(box, tensor.dtype, tensor.shape, tensor.versions[version], contents);
    }
    const size_t row = row_bytes(tensor), rows = row == 0 ? 0 : contents.size() / row;
    std::vector<uint8_t> memory(skew + rows * (row + gap), 0xa5);
    for (size_t i = 0; i < rows; ++i) {
      std::memcpy(&memory[skew + i * (row + gap)], &contents[i * row], row);
    }
    return memory;
  }
  LocalBox at(const TensorSpec& spec, uint8_t* memory) const {
    LocalBox held{box, memory + skew, {}};
    const Shape extent = box_shape(box, spec.shape);
    if (gap == 0 || extent.size() < 2) return held;
    held.strides.resize(extent.size() - 1);
    int64_t bytes = int64_t(row_bytes(spec) + gap);
    for (size_t d = held.strides.size(); d-- > 0;) {
      held.strides[d] = bytes;
      bytes *= int64_t(extent[d]);
    }
    return held;
  }
};

// The number of elements, as codecs count them, that differ between two memories.
inline uint64_t count_changed(const TensorSpec& spec, const BoxMemory& memory,
                              const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
  const size_t width = layout_of(spec.dtype).width;
  uint64_t count = 0;
  const size_t row = memory.row_bytes(spec) + memory.gap;
  for (size_t at = memory.skew; at < a.size(); at += row) {
    for (size_t i = at; i < at + row - memory.gap; i += width) {
      count += std::memcmp(&a[i], &b[i], width) != 0 ? 1 : 0;
    }
  }
  return count;
}

// Empty, or the first difference between two memories.
inline std::string first_difference(const std::vector<uint8_t>& expected,
                                    const std::vector<uint8_t>& got) {
  if (expected.size() != got.size()) return "sizes differ";
  for (size_t i = 0; i < got.size(); ++i) {
    if (expected[i] != got[i]) {
      return "byte " + std::to_string(i) + " of " + std::to_string(got.size()) + ": expected " +
             std::to_string(expected[i]) + ", got " + std::to_string(got[i]);
    }
  }
  return {};
}

}  // namespace deltawire
