// Patches through a map: positions are checked and used on the device, all of them before the first
// write.
#include <map>

#include "codec/cuda/lists_payload.h"
#include "codec/cuda/patch_status.h"
#include "format/layout.h"
#include "sync/cuda/context.h"
#include "sync/cuda/tensor_map.h"

namespace deltawire::cuda {
namespace {

struct OpenPatch {
  size_t number = 0;  // in the call
  TensorMap map;
  ListsPayload lists;
  uint64_t room() const { return (lists.body.size() + 15) / 16 * 16; }
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
struct Group {
  unsigned width = 0;
  std::vector<OpenPatch> patches;
};

std::vector<Group> make_groups(std::map<unsigned, std::vector<OpenPatch>> by_width,
                               uint64_t scratch_bytes) {
  std::vector<Group> groups;
  for (auto& [width, patches] : by_width) {
    uint64_t size = 0;
    for (OpenPatch& patch : patches) {
      if (size == 0 || size + patch.room() > scratch_bytes) {
        groups.push_back({width, {}});
        size = 0;
      }
      size += patch.room();
      groups.back().patches.push_back(std::move(patch));
    }
  }
  return groups;
}

Status run_group(Context::Impl& impl, const Group& group, bool write, Stream stream) {
  uint64_t size = 0;
  for (const OpenPatch& patch : group.patches) size += patch.room();
  DW_ASSIGN_OR_RETURN(uint8_t * at, impl.workspace.get(Workspace::kSlots, size));
  std::vector<ListPatch> lists;
  std::vector<MappedList> mapped;
  std::vector<MappedPiece> pieces;
  for (const OpenPatch& patch : group.patches) {
    const ListsPayload& from = patch.lists;
    DW_RETURN_IF_ERROR(copy(at, from.body.data(), from.body.size(), stream));
    lists.push_back({nullptr, patch.map.num_elements, at, at + from.positions().size(), from.count,
                     from.entry_bytes, from.absolute ? 1U : 0U, 0});
    MappedList list{
        lists.back(), {}, patch.map.num_dims, uint32_t(patch.map.pieces.size()), pieces.size()};
    std::copy(patch.map.shape.begin(), patch.map.shape.end(), list.shape);
    mapped.push_back(list);
    pieces.insert(pieces.end(), patch.map.pieces.begin(), patch.map.pieces.end());
    at += patch.room();
  }
  const size_t check_bytes = (apply_lists_scratch(lists) + 255) / 256 * 256;
  DW_ASSIGN_OR_RETURN(
      uint8_t* const scratch,
      impl.workspace.get(Workspace::kTables, check_bytes + mapped_scratch(mapped, pieces.size())));
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
  std::map<unsigned, std::vector<OpenPatch>> by_width;
  for (size_t i = 0; i < patches.size(); ++i) {
    Result<OpenPatch> open = open_patch(patches[i], i);
    if (!open.ok()) return std::move(open).status().at("patch " + std::to_string(i));
    if (open->lists.count == 0) continue;
    by_width[layout_of(patches[i].tensor->dtype).width].push_back(std::move(*open));
  }
  const std::vector<Group> groups = make_groups(std::move(by_width), impl_->scratch_bytes());
  if (groups.size() > 1) {  // one checks itself before it writes
    for (const Group& group : groups) DW_RETURN_IF_ERROR(run_group(*impl_, group, false, stream));
  }
  for (const Group& group : groups) DW_RETURN_IF_ERROR(run_group(*impl_, group, true, stream));
  return {};
}

}  // namespace deltawire::cuda
