#include "device/host_decode.h"

#include <algorithm>
#include <memory>

#include "base/copy_parallel.h"
#include "base/guard.h"
#include "codec/adaptive_encode.h"
#include "codec/gaps.h"
#include "device/context.h"
#include "format/layout.h"

namespace deltawire::cuda {
namespace {

constexpr uint64_t kPinnedBytes = uint64_t{256} << 20;  // limit of old arrays decoded together
constexpr uint64_t kLargePiece = uint64_t{32} << 20;    // pieces of a larger array

// Lists larger than this share of the array are not used.
constexpr uint64_t kListShare = 2;

// Whether the changes can be listed. Their number is known before they are decoded.
bool can_be_listed(const HostPatch& one, uint64_t num_bytes, unsigned width) {
  constexpr uint64_t kGapBytes = 4;  // upper bound for most lists
  const std::optional<uint64_t> said = adaptive::num_changes(one.patch->payload);
  return said && *said <= num_bytes / kListShare / (kGapBytes + width);
}

// `array` holds the old state and is undefined afterwards.
Result<DecodedPatch> decode_one(const HostPatch& one, MutableBytes array, ThreadPool* pool) {
  const Layout layout = array_layout(one.patch->array);
  const Bytes payload = one.patch->payload;
  DecodedPatch decoded;
  if (can_be_listed(one, array.size(), layout.width)) {
    DW_ASSIGN_OR_RETURN(const Changes changes, one.codec->decode(layout, payload, array, pool));
    decoded.bytes = gaps_payload(layout.width, changes.positions, changes.values);
    return decoded;
  }
  DW_RETURN_IF_ERROR(one.codec->apply(layout, payload, array, pool));
  decoded.whole = true;
  decoded.bytes.assign(array.begin(), array.end());
  return decoded;
}

bool is_same(const Patch& a, const Patch& b) {
  return a.array.dtype == b.array.dtype && a.array.data == b.array.data &&
         a.array.size_bytes == b.array.size_bytes && a.codec == b.codec &&
         a.payload.data() == b.payload.data() && a.payload.size() == b.payload.size();
}

}  // namespace

void CheckedPatches::keep(const Patch& patch, DecodedPatch decoded) {
  const uint64_t size = decoded.bytes.capacity();
  if (size > most_bytes_ - size_bytes_) return;
  const Key key{patch.array.data, patch.payload.data()};
  if (kept_.emplace(key, Kept{patch, std::move(decoded)}).second) size_bytes_ += size;
}

std::optional<DecodedPatch> CheckedPatches::take(const Patch& patch) {
  const auto found = kept_.find({patch.array.data, patch.payload.data()});
  if (found == kept_.end() || !is_same(found->second.patch, patch)) return {};
  DecodedPatch decoded = std::move(found->second.decoded);
  size_bytes_ -= decoded.bytes.capacity();
  kept_.erase(found);
  return decoded;
}

void CheckedPatches::clear() noexcept {
  kept_.clear();
  size_bytes_ = 0;
}

// Fills one half of the pinned memory while the other is copied.
Status HostDecoder::fetch_large(const DeviceArray& array, uint8_t* to) {
  const uint64_t size = array.size_bytes, half = kLargePiece;
  DW_ASSIGN_OR_RETURN(uint8_t* const pinned, workspace_.get(Workspace::kHostBytes, 2 * half));
  const auto fetch = [&](uint64_t begin, uint64_t turn) {
    return copy(pinned + turn % 2 * half, static_cast<const uint8_t*>(array.data) + begin,
                std::min(half, size - begin), stream_);
  };
  DW_RETURN_IF_ERROR(fetch(0, 0));
  for (uint64_t begin = 0, turn = 0; begin < size; begin += half, ++turn) {
    const uint64_t end = std::min(begin + half, size);
    DW_RETURN_IF_ERROR(wait(stream_));
    if (end < size) DW_RETURN_IF_ERROR(fetch(end, turn + 1));
    const uint8_t* const from = pinned + turn % 2 * half;
    copy_parallel({from, end - begin}, {to + begin, end - begin}, pool_);
  }
  return {};
}

Result<std::vector<DecodedPatch>> HostDecoder::decode_some(std::span<const HostPatch> patches) {
  std::vector<DecodedPatch> out;
  if (patches.empty()) return out;
  const DeviceArray& first = patches[0].patch->array;
  const auto place_of = [](const HostPatch& one) { return "patch " + std::to_string(one.number); };
  if (first.size_bytes > kPinnedBytes) {
    const auto array = std::make_unique_for_overwrite<uint8_t[]>(first.size_bytes);
    DW_RETURN_IF_ERROR(fetch_large(first, array.get()));
    Result<DecodedPatch> decoded = decode_one(patches[0], {array.get(), first.size_bytes}, pool_);
    if (!decoded.ok()) return std::move(decoded).status().at(place_of(patches[0]));
    out.push_back(std::move(*decoded));
    return out;
  }
  std::vector<uint64_t> places;
  uint64_t size = 0;
  for (const HostPatch& one : patches) {
    const uint64_t room = (one.patch->array.size_bytes + 15) / 16 * 16;
    if (size + room > kPinnedBytes && !places.empty()) break;
    places.push_back(size);
    size += room;
  }
  DW_ASSIGN_OR_RETURN(uint8_t* const pinned, workspace_.get(Workspace::kHostBytes, size));
  for (size_t i = 0; i < places.size(); ++i) {
    const DeviceArray& array = patches[i].patch->array;
    DW_RETURN_IF_ERROR(copy(pinned + places[i], array.data, array.size_bytes, stream_));
  }
  DW_RETURN_IF_ERROR(wait(stream_));
  out.resize(places.size());
  const auto decode = [&](size_t i, ThreadPool* pool) -> Status {
    Result<DecodedPatch> decoded =
        decode_one(patches[i], {pinned + places[i], patches[i].patch->array.size_bytes}, pool);
    if (!decoded.ok()) return std::move(decoded).status().at(place_of(patches[i]));
    out[i] = std::move(*decoded);
    return {};
  };
  // A single patch uses all threads.
  DW_RETURN_IF_ERROR(out.size() == 1
                         ? decode(0, pool_)
                         : parallel_try("decoding", pool_, out.size(),
                                        [&](size_t i, unsigned) { return decode(i, nullptr); }));
  return out;
}

}  // namespace deltawire::cuda
