// Tensors in the caller's memory that are patched where they are.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "deltawire/box.h"
#include "deltawire/tensor.h"

namespace deltawire {

// A tensor, or a box of one, that the caller owns and that outlives the replica. Its bytes may be
// read at any time but during commit(), and are to be written by the replica alone.
struct LiveTensor {
  std::string name;
  DType dtype = DType::kU8;
  Shape shape;  // of the whole tensor
  std::span<uint8_t> bytes;
  Memory memory = Memory::kHost;  // where the bytes are
  Box box = {};                   // what the bytes are of the tensor
};

}  // namespace deltawire
