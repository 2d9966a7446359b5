// `indices` and `gaps` onto a device: heads are read here, positions are checked and used there.
#include "codec/checks.h"
#include "codec/cuda/device_parts.h"
#include "codec/cuda/patch_status.h"
#include "codec/cuda/workspace.h"
#include "codec/gaps_body.h"
#include "codec/indices_body.h"
#include "codec/leb128.h"
#include "kernels/cuda/lists.h"

namespace deltawire::cuda {
namespace {

// A payload's head, and its lists.
struct Lists {
  unsigned entry_bytes = 0;
  uint64_t count = 0;
  Bytes body;
};

Result<Lists> open_payload(const DevicePatch& patch) {
  Lists lists;
  lists.body = patch.payload;
  if (patch.codec == CodecId::kGaps) {
    DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(patch.num_elements, &lists.body));
    lists.entry_bytes = header.gap_width;
    lists.count = header.count;
  } else {
    lists.entry_bytes = position_width(patch.num_elements);
    DW_RETURN_IF_ERROR(take_leb128("change count", &lists.body, &lists.count));
    if (lists.count == 0 || lists.count > patch.num_elements) {
      return bad_payload("change count", "1 to " + std::to_string(patch.num_elements), lists.count);
    }
  }
  const uint64_t record = lists.entry_bytes + patch.layout.width;
  if (lists.body.size() / record != lists.count || lists.body.size() % record != 0) {
    return bad_payload("size of positions and values", lists.count * record, lists.body.size());
  }
  return lists;
}

}  // namespace

Status apply_lists_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream, DeviceTimes* times) {
  uint64_t size = 0;
  std::vector<Lists> opened;
  for (const NumberedPatch& numbered : patches) {
    Result<Lists> lists = open_payload(numbered.patch);
    if (!lists.ok()) {
      return Status(lists.status()).at("patch " + std::to_string(numbered.number));
    }
    opened.push_back(*lists);
    size += (lists->body.size() + 15) / 16 * 16;
  }
  Workspace& workspace = *options.workspace;
  DW_ASSIGN_OR_RETURN(uint8_t* const bytes, workspace.get(Workspace::kSlots, size));
  std::vector<ListPatch> work;
  uint64_t at = 0;
  for (size_t i = 0; i < patches.size(); ++i) {
    const Lists& lists = opened[i];
    const DevicePatch& patch = patches[i].patch;
    uint8_t* const begin = bytes + at;
    DW_RETURN_IF_ERROR(copy(begin, lists.body.data(), lists.body.size(), stream));
    at += (lists.body.size() + 15) / 16 * 16;
    work.push_back({patch.data, patch.num_elements, begin, begin + lists.count * lists.entry_bytes,
                    lists.count, lists.entry_bytes, patch.codec == CodecId::kIndices ? 1U : 0U, 0});
  }
  DW_ASSIGN_OR_RETURN(uint8_t* const scratch,
                      workspace.get(Workspace::kTables, apply_lists_scratch(work)));
  DW_ASSIGN_OR_RETURN(uint8_t* const status_at,
                      workspace.get(Workspace::kStatus, sizeof(PatchStatus)));
  auto* const status = reinterpret_cast<PatchStatus*>(status_at);
  DW_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::create());
  PatchStatus found{};
  DW_RETURN_IF_ERROR(fill_zero(status, sizeof found, stream));
  DW_RETURN_IF_ERROR(watch.start(stream));
  DW_RETURN_IF_ERROR(check_lists(work, scratch, status, stream));
  if (write) {
    DW_RETURN_IF_ERROR(scatter_lists(work, patches[0].patch.layout.width, scratch, status, stream));
  }
  DW_ASSIGN_OR_RETURN(const double time, watch.stop(stream));
  if (times != nullptr && write) times->coding += time;
  DW_RETURN_IF_ERROR(copy(&found, status, sizeof found, stream));
  DW_RETURN_IF_ERROR(wait(stream));
  return to_status(found, "near change", [&](uint32_t array) { return patches[array].number; });
}

}  // namespace deltawire::cuda
