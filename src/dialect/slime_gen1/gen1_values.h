// Values of slime's first generation. A file has one array of values for all its parameters, in the
// dtype that torch promotes them to: bf16 beside f32 is stored as f32. The way back is exact or it
// is refused. Integers do all the work: the bits of NaN, -0 and subnormals survive, on any machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire::gen1 {

// torch's names: "bfloat16". Empty, none: a dtype that the dialect's files cannot hold.
std::string_view torch_dtype_name(DType dtype) noexcept;
std::optional<DType> parse_torch_dtype(std::string_view name) noexcept;

// Whether every value of `narrow` can be stored in `wide` and had back.
bool holds_exactly(DType wide, DType narrow) noexcept;
// What torch makes of two arrays that it joins, if the values of both survive it.
std::optional<DType> promote_exactly(DType a, DType b) noexcept;

// `wide` holds `narrow` exactly. Corruption names the first value that `narrow` does not have.
Result<std::vector<uint8_t>> narrow_values(DType wide, DType narrow, Bytes values);
std::vector<uint8_t> widen_values(DType narrow, DType wide, Bytes values);

// Where the first NaN is; none: there is none.
std::optional<uint64_t> find_nan(DType dtype, Bytes values) noexcept;

// The dialect's checksum, as a decimal number of up to 65 bits: the XOR of all position bytes,
// and, one bit further up, the XOR of all values as float64.
std::string checksum(Bytes positions, DType dtype, Bytes values);

}  // namespace deltawire::gen1
