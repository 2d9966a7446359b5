// `indices` and `gaps` onto a device: heads are read here, positions are checked and used there.
#include "codec/cuda/device_parts.h"
#include "codec/cuda/lists_payload.h"
#include "codec/cuda/patch_status.h"
#include "codec/cuda/workspace.h"
#include "kernels/cuda/lists.h"

namespace deltawire::cuda {
namespace {

uint64_t room_for(const ListsPayload& lists) { return (lists.body.size() + 15) / 16 * 16; }

class ListsApplier {
 public:
  ListsApplier(std::span<const NumberedPatch> patches, const DeviceOptions& options, Stream stream)
      : patches_(patches), options_(options), stream_(stream) {}

  Status open() {
    for (const NumberedPatch& numbered : patches_) {
      const DevicePatch& patch = numbered.patch;
      Result<ListsPayload> lists =
          open_lists(patch.codec, patch.layout.width, patch.num_elements, patch.payload);
      if (!lists.ok()) {
        return Status(lists.status()).at("patch " + std::to_string(numbered.number));
      }
      opened_.push_back(*lists);
    }
    // As many at a time as the scratch takes. One that is larger gets more than that.
    uint64_t size = 0;
    for (size_t i = 0; i < opened_.size(); ++i) {
      if (i == 0 || size + room_for(opened_[i]) > options_.scratch_bytes) {
        begins_.push_back(i);
        size = 0;
      }
      size += room_for(opened_[i]);
    }
    begins_.push_back(opened_.size());
    return {};
  }

  bool in_one_go() const { return begins_.size() <= 2; }

  Status run(bool write, DeviceTimes* times) {
    for (size_t k = 0; k + 1 < begins_.size(); ++k) {
      DW_RETURN_IF_ERROR(run_some(begins_[k], begins_[k + 1], write, times));
    }
    return {};
  }

 private:
  Status run_some(size_t begin, size_t end, bool write, DeviceTimes* times) {
    Workspace& workspace = *options_.workspace;
    uint64_t size = 0;
    for (size_t i = begin; i < end; ++i) size += room_for(opened_[i]);
    DW_ASSIGN_OR_RETURN(uint8_t * at, workspace.get(Workspace::kSlots, size));
    std::vector<ListPatch> work;
    for (size_t i = begin; i < end; ++i) {
      const ListsPayload& lists = opened_[i];
      const DevicePatch& patch = patches_[i].patch;
      DW_RETURN_IF_ERROR(copy(at, lists.body.data(), lists.body.size(), stream_));
      work.push_back({patch.data, patch.num_elements, at, at + lists.positions().size(),
                      lists.count, lists.entry_bytes, lists.absolute ? 1U : 0U, 0});
      at += room_for(lists);
    }
    DW_ASSIGN_OR_RETURN(uint8_t* const scratch,
                        workspace.get(Workspace::kTables, apply_lists_scratch(work)));
    DW_ASSIGN_OR_RETURN(uint8_t* const status_at,
                        workspace.get(Workspace::kStatus, sizeof(PatchStatus)));
    auto* const status = reinterpret_cast<PatchStatus*>(status_at);
    DW_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::create());
    PatchStatus found{};
    DW_RETURN_IF_ERROR(fill_zero(status, sizeof found, stream_));
    DW_RETURN_IF_ERROR(watch.start(stream_));
    DW_RETURN_IF_ERROR(check_lists(work, scratch, status, stream_));
    if (write) {
      const unsigned width = patches_[begin].patch.layout.width;
      DW_RETURN_IF_ERROR(scatter_lists(work, width, scratch, status, stream_));
    }
    DW_ASSIGN_OR_RETURN(const double time, watch.stop(stream_));
    if (times != nullptr) times->coding += time;
    DW_RETURN_IF_ERROR(copy(&found, status, sizeof found, stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    return to_status(found, "near change",
                     [&](uint32_t array) { return patches_[begin + array].number; });
  }

  const std::span<const NumberedPatch> patches_;
  const DeviceOptions& options_;
  const Stream stream_;
  std::vector<ListsPayload> opened_;
  std::vector<size_t> begins_;  // of the patches that are worked on together, and the end
};

}  // namespace

Status apply_lists_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream, DeviceTimes* times) {
  ListsApplier applier(patches, options, stream);
  DW_RETURN_IF_ERROR(applier.open());
  if (write && options.all_or_nothing && !applier.in_one_go()) {
    DW_RETURN_IF_ERROR(applier.run(false, times));
  }
  return applier.run(write, times);
}

}  // namespace deltawire::cuda
