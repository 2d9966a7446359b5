// Shared by tests of device/cuda.h.
#pragma once

#include "cuda/device_arrays.h"
#include "device/cuda.h"
#include "format/layout.h"

namespace deltawire::cuda {

constexpr uint64_t kMiB = uint64_t{1} << 20;

inline Context make_context(uint64_t scratch_bytes = 256 * kMiB,
                            std::optional<uint64_t> kept_bytes = {}) {
  ContextOptions options;
  options.scratch_bytes = scratch_bytes;
  options.kept_bytes = kept_bytes;
  Result<Context> context = Context::create(options);
  EXPECT_TRUE(context.ok()) << context.status().to_string();
  return std::move(*context);
}

// How much of the changes decoded by a check stays on the device: none, some, all.
inline const std::optional<uint64_t> kKept[] = {0, 5 * kMiB, std::nullopt};

// A float for each width.
inline DType dtype_of(unsigned width) {
  return width == 1   ? DType::kF8_E4M3
         : width == 2 ? DType::kBF16
         : width == 4 ? DType::kF32
                      : DType::kF64;
}

// A pair on host and device, in the types of the public header.
struct BothSides {
  HostPair host;
  DType dtype = DType::kBF16;
  OnDevice old_array, new_array;

  BothSides() = default;
  explicit BothSides(HostPair pair, size_t skew = 0)
      : host(std::move(pair)),
        dtype(dtype_of(host.width)),
        old_array(host.old_bytes, skew),
        new_array(host.new_bytes, skew == 0 ? 0 : skew + 1) {}

  uint64_t size() const { return host.old_bytes.size(); }
  DeviceArray before() const { return {dtype, old_array.data(), size()}; }
  NewArray after() const { return {dtype, new_array.data()}; }
  Pair pair() const { return {before(), after()}; }
};

inline std::vector<Pair> pairs_of(const std::vector<BothSides>& arrays) {
  std::vector<Pair> pairs;
  for (const BothSides& array : arrays) pairs.push_back(array.pair());
  return pairs;
}

inline std::vector<Patch> patches_of(const std::vector<BothSides>& arrays,
                                     const std::vector<Coded>& coded) {
  std::vector<Patch> patches;
  for (size_t i = 0; i < arrays.size(); ++i) {
    patches.push_back({arrays[i].before(), coded[i].codec, coded[i].payload});
  }
  return patches;
}

inline Encoded cpu_encode(std::string_view codec, DType dtype, const HostPair& pair) {
  Layout layout = layout_of(dtype);
  layout.rows = pair.rows;
  layout.columns = pair.columns;
  return good(find_codec(codec)->encode(layout, pair.old_bytes, pair.new_bytes, nullptr));
}

// Wider floats of every kind, and the bf16 values they round to.
struct WideFloats {
  DType dtype;
  std::vector<uint8_t> wide, rounded;
};

inline WideFloats make_wide(uint64_t seed, DType dtype, size_t n) {
  // Zeros, subnormals, infinities, NaNs, ties to either side, values that round to infinity.
  constexpr uint32_t kF32[] = {0,          0x80000000, 1,          0x807fffff, 0x00008000,
                               0x00018000, 0x7f800000, 0xff800000, 0x7f800001, 0xffc12345,
                               0x3f808000, 0x3f818000, 0x3f808001, 0x7f7fffff, 0x7f7f8000};
  constexpr uint32_t kF16[] = {0,      0x8000, 1,      0x83ff, 0x0400, 0x7c00, 0xfc00,
                               0x7c01, 0xfe12, 0x3c04, 0x3c0c, 0x3c05, 0x7bff};
  Random random(seed);
  const size_t bytes = dtype == DType::kF32 ? 4 : 2;
  WideFloats made{dtype, std::vector<uint8_t>(n * bytes), std::vector<uint8_t>(n * 2)};
  for (size_t i = 0; i < n; ++i) {
    const uint64_t kind = random() % 16;
    uint32_t value = uint32_t(random() >> (64 - 8 * bytes));
    if (kind < 4)
      value = bytes == 4 ? kF32[random() % std::size(kF32)] : kF16[random() % std::size(kF16)];
    if (kind > 6 && bytes == 4) value = uint32_t(make_value(random, 4, Content::kWeights));
    std::memcpy(made.wide.data() + i * bytes, &value, bytes);
    const uint16_t bf16 = uint16_t(bf16_of_f32(bytes == 4 ? value : f32_of_f16(value)));
    std::memcpy(made.rounded.data() + i * 2, &bf16, 2);
  }
  return made;
}

// For tests of each codec: names of tests have no dashes.
inline std::string codec_in_name(const ::testing::TestParamInfo<const char*>& codec) {
  std::string name = codec.param;
  std::erase(name, '-');
  return name;
}

inline bool mentions(const Status& status, std::string_view words) {
  return status.message().find(words) != std::string::npos;
}

}  // namespace deltawire::cuda
