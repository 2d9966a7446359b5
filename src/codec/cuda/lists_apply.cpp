// `gaps` onto a device: heads are read here, positions are checked and used there.
#include "codec/cuda/device_parts.h"
#include "codec/cuda/lists_batch.h"
#include "codec/cuda/workspace.h"
#include "kernels/cuda/lists.h"

namespace deltawire::cuda {
namespace {

class ListsApplier {
 public:
  ListsApplier(std::span<const NumberedPatch> patches, const DeviceOptions& options, Stream stream)
      : patches_(patches), options_(options), stream_(stream) {}

  Status open() {
    for (const NumberedPatch& numbered : patches_) {
      const DevicePatch& patch = numbered.patch;
      Result<ListsPayload> lists =
          open_lists(patch.layout.width, patch.num_elements, patch.payload);
      if (!lists.ok()) {
        return Status(lists.status()).at("patch " + std::to_string(numbered.number));
      }
      opened_.push_back(*lists);
    }
    return {};
  }

  bool in_one_go() const { return begins(true).size() <= 2; }

  // To check takes gaps alone.
  Status run(bool write) {
    const std::vector<size_t> parts = begins(write);
    for (size_t k = 0; k + 1 < parts.size(); ++k) {
      DW_RETURN_IF_ERROR(run_some(parts[k], parts[k + 1], write));
    }
    return {};
  }

 private:
  // Where those begin that are worked on together, and the end: as many at a time as the scratch
  // takes. One that is larger gets more than that.
  std::vector<size_t> begins(bool write) const {
    const uint64_t most = options_.scratch_bytes - options_.scratch_bytes / 32;  // and tables
    std::vector<size_t> begins;
    uint64_t size = 0;
    for (size_t i = 0; i < opened_.size(); ++i) {
      if (i == 0 || size + opened_[i].room(write) > most) {
        begins.push_back(i);
        size = 0;
      }
      size += opened_[i].room(write);
    }
    begins.push_back(opened_.size());
    return begins;
  }

  Status run_some(size_t begin, size_t end, bool write) {
    Workspace& workspace = *options_.workspace;
    std::vector<ListPatch> work;
    uint64_t size = 0;
    for (size_t i = begin; i < end; ++i) {
      const ListsPayload& lists = opened_[i];
      const DevicePatch& patch = patches_[i].patch;
      work.push_back(
          {patch.data, patch.num_elements, nullptr, nullptr, lists.count, lists.gap_bytes, 0});
      size += lists.room(write);
    }
    const size_t table_bytes = (apply_lists_scratch(work) + 255) / 256 * 256;
    DW_ASSIGN_OR_RETURN(uint8_t* const scratch,
                        workspace.get(Workspace::kSlots, table_bytes + size));
    uint8_t* at = scratch + table_bytes;
    for (size_t i = begin; i < end; ++i) {
      const ListsPayload& lists = opened_[i];
      const Bytes sent = lists.sent(write);
      DW_RETURN_IF_ERROR(copy(at, sent.data(), sent.size(), stream_));
      work[i - begin].gaps = at;
      work[i - begin].values = at + lists.gaps().size();
      at += lists.room(write);
    }
    DW_ASSIGN_OR_RETURN(uint8_t* const status_at,
                        workspace.get(Workspace::kStatus, sizeof(PatchStatus)));
    auto* const status = reinterpret_cast<PatchStatus*>(status_at);
    PatchStatus found{};
    DW_RETURN_IF_ERROR(fill_zero(status, sizeof found, stream_));
    DW_RETURN_IF_ERROR(check_lists(work, scratch, status, stream_));
    if (write) {
      const unsigned width = patches_[begin].patch.layout.width;
      DW_RETURN_IF_ERROR(scatter_lists(work, width, scratch, status, stream_));
    }
    DW_RETURN_IF_ERROR(copy(&found, status, sizeof found, stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    return to_status(found, "near change",
                     [&](uint32_t array) { return patches_[begin + array].number; });
  }

  const std::span<const NumberedPatch> patches_;
  const DeviceOptions& options_;
  const Stream stream_;
  std::vector<ListsPayload> opened_;
};

}  // namespace

Status apply_lists_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream) {
  ListsApplier applier(patches, options, stream);
  DW_RETURN_IF_ERROR(applier.open());
  if (write && options.all_or_nothing && !applier.in_one_go()) {
    DW_RETURN_IF_ERROR(applier.run(false));
  }
  return applier.run(write);
}

}  // namespace deltawire::cuda
