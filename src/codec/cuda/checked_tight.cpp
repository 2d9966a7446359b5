#include "codec/cuda/checked_tight.h"

#include <algorithm>
#include <cstring>

namespace deltawire::cuda {
namespace {

constexpr uint64_t kMostGathered = uint64_t{256} << 20;  // pinned memory is the whole machine's

bool is_same(const DevicePatch& a, const DevicePatch& b) {
  return a.data == b.data && a.num_elements == b.num_elements && a.codec == b.codec &&
         a.layout.width == b.layout.width && a.layout.key_shift == b.layout.key_shift &&
         a.layout.key_mask == b.layout.key_mask && a.payload.data() == b.payload.data() &&
         a.payload.size() == b.payload.size();
}

}  // namespace

bool CheckedTight::is_of(std::span<const NumberedPatch> others) const {
  return good && std::equal(patches.begin(), patches.end(), others.begin(), others.end(),
                            [](const NumberedPatch& a, const NumberedPatch& b) {
                              return a.number == b.number && is_same(a.patch, b.patch);
                            });
}

Status gather_payloads(const DeviceOptions& options, CheckedTight* checked) {
  std::vector<Chunk>& chunks = checked->plan.chunks;
  std::vector<uint64_t> places;
  uint64_t size = 0;
  for (const Chunk& chunk : chunks) {
    places.push_back(size);
    size += chunk.load.payload_bytes;
  }
  if (size > kMostGathered) return {};
  DW_ASSIGN_OR_RETURN(checked->payload, options.workspace->take_pinned(size));
  struct Piece {
    uint8_t* to;
    Bytes from;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < chunks.size(); ++i) {
    uint8_t* to = checked->payload.data() + places[i];
    for (const Bytes from : chunks[i].payload) {
      pieces.push_back({to, from});
      to += from.size();
    }
    chunks[i].payload = {Bytes(checked->payload.data() + places[i], chunks[i].load.payload_bytes)};
  }
  parallel_for(options.pool, pieces.size(), [&](size_t i, unsigned) {
    std::memcpy(pieces[i].to, pieces[i].from.data(), pieces[i].from.size());
  });
  return {};
}

}  // namespace deltawire::cuda
