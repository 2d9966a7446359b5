// Patches through a map: positions are checked and used on the device, all of them before the first
// write.
#include <map>

#include "codec/cuda/lists_payload.h"
#include "codec/cuda/patch_status.h"
#include "device/context.h"
#include "device/tensor_map.h"
#include "format/layout.h"

namespace deltawire::cuda {
namespace {

struct OpenPatch {
  size_t number = 0;  // in the call
  TensorMap map;
  ListsPayload lists;
};

Result<OpenPatch> open_patch(const MappedPatch& patch, size_t number) {
  if (patch.tensor == nullptr) return invalid_argument("no tensor");
  const Codec* const codec = find_codec(patch.codec);
  if (codec == nullptr || (codec->id() != CodecId::kIndices && codec->id() != CodecId::kGaps)) {
    return unsupported("codec " + patch.codec + " through a map; indices and gaps can");
  }
  OpenPatch open;
  open.number = number;
  DW_ASSIGN_OR_RETURN(open.map, map_tensor(*patch.tensor));
  if (patch.payload.empty()) return open;  // nothing changed
  DW_ASSIGN_OR_RETURN(open.lists, open_lists(codec->id(), layout_of(patch.tensor->dtype).width,
                                             open.map.num_elements, patch.payload));
  return open;
}

// Patches of one width that fit the scratch together.
struct PatchGroup {
  unsigned width = 0;
  std::span<const OpenPatch> patches;
};

using PatchesByWidth = std::map<unsigned, std::vector<OpenPatch>>;

// To check takes positions alone.
std::vector<PatchGroup> make_groups(const PatchesByWidth& by_width, uint64_t scratch_bytes,
                                    bool write) {
  const uint64_t most = scratch_bytes - scratch_bytes / 32;  // and tables
  std::vector<PatchGroup> groups;
  for (const auto& [width, patches] : by_width) {
    const std::span<const OpenPatch> all(patches);
    for (size_t begin = 0; begin < all.size();) {
      uint64_t size = all[begin].lists.room(write);
      size_t end = begin + 1;
      while (end < all.size() && size + all[end].lists.room(write) <= most) {
        size += all[end++].lists.room(write);
      }
      groups.push_back({width, all.subspan(begin, end - begin)});
      begin = end;
    }
  }
  return groups;
}

Status run_group(Context::Impl& impl, const PatchGroup& group, bool write, Stream stream) {
  std::vector<ListPatch> lists;
  std::vector<MappedList> mapped;
  std::vector<MappedPiece> pieces;
  uint64_t size = 0;
  for (const OpenPatch& patch : group.patches) {
    const ListsPayload& from = patch.lists;
    lists.push_back({nullptr, patch.map.num_elements, nullptr, nullptr, from.count,
                     from.entry_bytes, from.absolute ? 1U : 0U, 0});
    size += from.room(write);
    if (!write) continue;
    MappedList list{
        lists.back(), {}, patch.map.num_dims, uint32_t(patch.map.pieces.size()), pieces.size()};
    std::copy(patch.map.shape.begin(), patch.map.shape.end(), list.shape);
    mapped.push_back(list);
    pieces.insert(pieces.end(), patch.map.pieces.begin(), patch.map.pieces.end());
  }
  const size_t check_bytes = (apply_lists_scratch(lists) + 255) / 256 * 256;
  const size_t map_bytes =
      write ? (mapped_scratch(mapped, pieces.size()) + 255) / 256 * 256 : size_t{0};
  DW_ASSIGN_OR_RETURN(uint8_t* const scratch,
                      impl.workspace.get(Workspace::kSlots, check_bytes + map_bytes + size));
  uint8_t* at = scratch + check_bytes + map_bytes;
  for (size_t i = 0; i < lists.size(); ++i) {
    const ListsPayload& from = group.patches[i].lists;
    const Bytes sent = from.sent(write);
    DW_RETURN_IF_ERROR(copy(at, sent.data(), sent.size(), stream));
    lists[i].positions = at;
    lists[i].values = at + from.positions().size();
    if (write) mapped[i].list = lists[i];
    at += from.room(write);
  }
  DW_ASSIGN_OR_RETURN(uint8_t* const status_at,
                      impl.workspace.get(Workspace::kStatus, sizeof(PatchStatus)));
  auto* const status = reinterpret_cast<PatchStatus*>(status_at);
  DW_RETURN_IF_ERROR(fill_zero(status, sizeof *status, stream));
  DW_RETURN_IF_ERROR(check_lists(lists, scratch, status, stream));
  if (write) {
    DW_RETURN_IF_ERROR(
        scatter_mapped(mapped, pieces, group.width, scratch + check_bytes, status, stream));
  }
  PatchStatus found{};
  DW_RETURN_IF_ERROR(copy(&found, status, sizeof found, stream));
  DW_RETURN_IF_ERROR(wait(stream));
  return to_status(found, "near change",
                   [&](uint32_t array) { return group.patches[array].number; });
}

}  // namespace

Status Context::apply_mapped(std::span<const MappedPatch> patches, Stream stream) {
  const UseDevice use(impl_->device);
  PatchesByWidth by_width;
  for (size_t i = 0; i < patches.size(); ++i) {
    Result<OpenPatch> open = open_patch(patches[i], i);
    if (!open.ok()) return std::move(open).status().at("patch " + std::to_string(i));
    if (open->lists.count == 0) continue;
    by_width[layout_of(patches[i].tensor->dtype).width].push_back(std::move(*open));
  }
  const uint64_t scratch_bytes = impl_->scratch_left();
  const std::vector<PatchGroup> groups = make_groups(by_width, scratch_bytes, true);
  if (groups.size() > 1) {  // one checks itself before it writes
    for (const PatchGroup& group : make_groups(by_width, scratch_bytes, false)) {
      DW_RETURN_IF_ERROR(run_group(*impl_, group, false, stream));
    }
  }
  for (const PatchGroup& group : groups) DW_RETURN_IF_ERROR(run_group(*impl_, group, true, stream));
  return {};
}

}  // namespace deltawire::cuda
