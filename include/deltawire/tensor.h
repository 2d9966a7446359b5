// The tensor: a named array in Hugging Face checkpoint coordinates.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

// Every dtype of the safetensors format. The numbers stay inside the process; files carry the
// names.
enum class DType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8_E5M2,
  kF8_E4M3,
  kF8_E8M0,
  kF4,
  kF6_E2M3,
  kF6_E3M2,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

std::string_view dtype_name(DType dtype) noexcept;  // "BF16"
std::optional<DType> parse_dtype(std::string_view name) noexcept;
uint32_t dtype_bits(DType dtype) noexcept;  // 16; F4 has 4, F6 has 6

using Shape = std::vector<uint64_t>;

// Bytes of an array of this dtype and shape. Fails on overflow, or when packed 4- and 6-bit
// elements do not fill whole bytes.
Result<uint64_t> tensor_size_bytes(DType dtype, const Shape& shape);
Result<uint64_t> num_elements(const Shape& shape);
std::string shape_to_string(const Shape& shape);  // "[2048, 1024]"

// Where bytes are: in the host's memory, or in that of the GPU in use (see deltawire/cuda.h).
enum class Memory : uint8_t { kHost, kCuda };

// A tensor whose bytes live elsewhere: in a mapped file, in a trainer's memory.
struct TensorView {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;
  std::span<const uint8_t> bytes;
};

}  // namespace deltawire
