#include "codec/cuda/checked_tight.h"

#include <algorithm>
#include <cstring>

namespace deltawire::cuda {
namespace {

constexpr uint64_t kMostGathered = uint64_t{256} << 20;  // pinned memory is the whole machine's

bool is_same(const DevicePatch& a, const DevicePatch& b) {
  return a.data == b.data && a.num_elements == b.num_elements && a.codec == b.codec &&
         a.layout == b.layout && a.payload.data() == b.payload.data() &&
         a.payload.size() == b.payload.size() && a.regions == b.regions;
}

}  // namespace

bool CheckedTight::is_of(std::span<const NumberedPatch> others) const {
  return good && std::equal(patches.begin(), patches.end(), others.begin(), others.end(),
                            [](const NumberedPatch& a, const NumberedPatch& b) {
                              return a.number == b.number && is_same(a.patch, b.patch);
                            });
}

bool CheckedTight::all_stay() const {
  return std::find(places.begin(), places.end(), nullptr) == places.end();
}

Status place_chunks(const DeviceOptions& options, CheckedTight* checked) {
  Workspace& workspace = *options.workspace;
  const unsigned width = checked->patches[0].patch.layout.width;
  const std::vector<Chunk>& chunks = checked->plan.chunks;
  checked->places.assign(chunks.size(), nullptr);
  uint64_t room = options.keep_bytes.value_or(0);
  if (!options.keep_bytes) {
    DW_ASSIGN_OR_RETURN(const uint64_t free, free_memory());
    room = (free + workspace.kept_bytes()) / 4;
  }
  // Elements of other widths have theirs.
  room -= std::min<uint64_t>(room, workspace.kept_bytes() - workspace.kept_bytes(width));
  if (workspace.kept_bytes(width) > room) workspace.stop_keeping(width);
  std::vector<uint64_t> sizes;
  uint64_t taken = 0;
  for (const Chunk& chunk : chunks) {
    const uint64_t size = ChunkMemory().lay_out(nullptr, chunk.load, width);
    if (taken + size > room) break;
    sizes.push_back(size);
    taken += size;
  }
  if (sizes.empty()) return {};
  const Result<uint8_t*> memory = workspace.keep(width, taken);
  if (!memory.ok()) {
    return memory.status().code() == Code::kOutOfMemory ? Status() : memory.status();
  }
  uint8_t* at = *memory;
  for (size_t i = 0; i < sizes.size(); ++i) {
    checked->places[i] = at;
    at += sizes[i];
  }
  return {};
}

Status gather_payloads(const DeviceOptions& options, CheckedTight* checked) {
  std::vector<Chunk>& chunks = checked->plan.chunks;
  std::vector<uint64_t> places;
  uint64_t size = 0;
  for (size_t i = 0; i < chunks.size(); ++i) {
    places.push_back(size);
    if (checked->places[i] == nullptr) size += chunks[i].load.payload_bytes;
  }
  if (size == 0 || size > kMostGathered) return {};
  DW_ASSIGN_OR_RETURN(checked->payload, options.workspace->take_pinned(size));
  struct Piece {
    uint8_t* to;
    Bytes from;
  };
  std::vector<Piece> pieces;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (checked->places[i] != nullptr) continue;
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
