#include <algorithm>
#include <cstring>

#include "codec/cuda/tight_tables.h"
#include "codec/cuda/workspace.h"
#include "kernels/bf16.h"

namespace deltawire::cuda {
namespace {

constexpr size_t kHostFetchBytes = size_t{64} << 20;  // at a time

size_t new_bytes(const DevicePair& pair) {
  return pair.num_elements * (pair.kind == NewKind::kF32AsBf16 ? 4 : pair.layout.width);
}

// The new array as elements of the old one's type.
std::vector<uint8_t> rounded(const DevicePair& pair, const uint8_t* data) {
  std::vector<uint8_t> out(pair.num_elements * pair.layout.width);
  if (pair.kind == NewKind::kSame) {
    std::memcpy(out.data(), data, out.size());
    return out;
  }
  for (size_t i = 0; i < pair.num_elements; ++i) {
    const uint32_t wide = pair.kind == NewKind::kF32AsBf16
                              ? load_le<uint32_t>(data + 4 * i)
                              : f32_of_f16(load_le<uint16_t>(data + 2 * i));
    store_le(out.data() + 2 * i, uint16_t(bf16_of_f32(wide)));
  }
  return out;
}

}  // namespace

Result<std::vector<DeviceEncoded>> encode_on_host(std::span<const DevicePair> pairs,
                                                  const DeviceOptions& options, Stream stream) {
  const Codec& codec = *find_codec(CodecId::kTight);
  std::vector<DeviceEncoded> out(pairs.size());
  for (size_t begin = 0; begin < pairs.size();) {
    size_t end = begin, size = 0;
    std::vector<size_t> places;
    do {
      places.push_back(size);
      const DevicePair& pair = pairs[end++];
      size += (pair.num_elements * pair.layout.width + new_bytes(pair) + 15) / 16 * 16;
    } while (end < pairs.size() && size < kHostFetchBytes);
    DW_ASSIGN_OR_RETURN(uint8_t* const fetched,
                        options.workspace->get(Workspace::kHostBytes, size));
    for (size_t i = begin; i < end; ++i) {
      const size_t old_bytes = pairs[i].num_elements * pairs[i].layout.width;
      uint8_t* const at = fetched + places[i - begin];
      DW_RETURN_IF_ERROR(copy(at, pairs[i].old_data, old_bytes, stream));
      DW_RETURN_IF_ERROR(copy(at + old_bytes, pairs[i].new_data, new_bytes(pairs[i]), stream));
    }
    DW_RETURN_IF_ERROR(wait(stream));
    std::vector<Status> failures(end - begin);
    parallel_for(options.pool, end - begin, [&](size_t k, unsigned) {
      const DevicePair& pair = pairs[begin + k];
      const uint8_t* const at = fetched + places[k];
      const size_t old_bytes = pair.num_elements * pair.layout.width;
      const std::vector<uint8_t> now = rounded(pair, at + old_bytes);
      Result<Encoded> encoded = codec.encode(pair.layout, {at, old_bytes}, now, nullptr);
      if (encoded.ok()) {
        out[begin + k] = {std::move(*encoded)};
        if (options.new_digests) out[begin + k].new_digest = digest_of(DigestKind::kSum128, now);
      } else {
        failures[k] = encoded.status();
      }
    });
    for (Status& failure : failures) DW_RETURN_IF_ERROR(std::move(failure));
    begin = end;
  }
  return out;
}

}  // namespace deltawire::cuda
