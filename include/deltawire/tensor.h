// The tensor: a named array in Hugging Face checkpoint coordinates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

class Body;  // deltawire/store.h

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

// The memory that holds bytes: the host's, or that of the GPU in use (see device/cuda.h).
enum class Memory : uint8_t { kHost, kCuda };

// A tensor without its bytes. What has bytes, boxes or digests beside it begins with one.
struct TensorSpec {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;

  bool operator==(const TensorSpec&) const = default;
};

// Whatever their names.
bool same_form(const auto& a, const auto& b) { return a.dtype == b.dtype && a.shape == b.shape; }

// A tensor whose bytes live elsewhere: in a mapped file, in a trainer's memory.
struct TensorView : TensorSpec {
  std::span<const uint8_t> bytes;
};

// Offset and extent per dimension. Without dimensions: all of the tensor.
struct Box {
  Shape offset, extent;

  bool whole() const noexcept { return offset.empty(); }
  bool operator==(const Box&) const = default;
};

// "0,512+1024,512": offsets, then extents.
std::string box_to_string(const Box& box);
Result<Box> parse_box(std::string_view text);

// InvalidArgument unless the box lies inside the shape and cuts no byte in two.
Status check_box(const Box& box, DType dtype, const Shape& shape);
// The shape of the box's contents.
Shape box_shape(const Box& box, const Shape& shape);

// Copies a box out of a row-major tensor into a contiguous array, and back. The box must have
// passed check_box; the arrays must have the sizes that shape and box imply.
void copy_box_out(const Box& box, DType dtype, const Shape& shape, std::span<const uint8_t> tensor,
                  std::span<uint8_t> contents);
void copy_box_in(const Box& box, DType dtype, const Shape& shape, std::span<const uint8_t> contents,
                 std::span<uint8_t> tensor);

// A tensor, or this rank's box of one.
struct PublishTensor {
  TensorView view;  // bytes are the box's contents; shape is the whole tensor's
  Box box;
  Memory memory = Memory::kHost;  // where the bytes are
  // The dtype that the bytes really have, where they are rounded on their way: F64, F32, F16 or
  // BF16 that are published as BF16, F16 or F32; on a GPU, F32 or F16 as BF16. Nothing larger than
  // a piece is rounded at a time.
  std::optional<DType> source = {};
  // The caller's word that it is what the last version has: its bytes are not compared. They are
  // still read where a version is stored whole, and where the chain does not know their digest.
  bool unchanged = false;
  // In place of `view.bytes`, which is empty then: the bytes as they are published, made as they
  // are asked for, by several threads at once, a second time where they are needed again. For
  // tensors that are computed from others, so that there is never a copy of all of them. `memory`
  // says which memory read() writes to; on a GPU it is asked for all of the tensor at once, and
  // must have written it when it returns. What it fails with, publish() fails with, and nothing is
  // committed.
  std::shared_ptr<const Body> computed = {};
};

// A tensor, or a box of one, that the caller owns and that outlives the replica. Its bytes may be
// read at any time but during commit(), and are to be written by the replica alone.
struct LiveTensor : TensorSpec {  // of the whole tensor
  std::span<uint8_t> bytes;
  Memory memory = Memory::kHost;  // where the bytes are
  Box box = {};                   // what the bytes are of the tensor
};

}  // namespace deltawire
