// Names, dtypes and shapes of a version's tensors. docs/format.md, "The chain".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

// A limit on what is read from a store that is not trusted.
inline constexpr uint64_t kMaxSchemaBytes = uint64_t{256} << 20;

// Sorted by name. Versions that have the same share one object: schemas/<sha-256>.json.
struct Schema {
  struct Tensor {
    std::string name;
    DType dtype = DType::kU8;
    Shape shape;
    bool operator==(const Tensor&) const = default;
  };
  std::vector<Tensor> tensors;

  bool operator==(const Schema&) const = default;
};

std::string serialise_schema(const Schema& schema);
Result<Schema> parse_schema(std::string_view json);

}  // namespace deltawire
