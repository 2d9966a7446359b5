// `tight` onto a device, as many blocks at a time as the scratch has room for.
#include <algorithm>
#include <array>

#include "codec/cuda/checked_tight.h"
#include "codec/cuda/patch_status.h"
#include "codec/cuda/tight_tables.h"
#include "codec/cuda/workspace.h"
#include "digest/finish_sums.h"

namespace deltawire::cuda {
namespace {

using ArraySums = std::array<uint64_t, 2>;  // lanes of sum128

uint64_t table_bytes(const PreparedPatches& prepared) {
  return prepared.arrays.size() * (sizeof(TightDecodeArray) + sizeof(ArraySums)) +
         prepared.tables.size() * (sizeof(TableFrequencies) + sizeof(DecodeTable));
}

class TightApplier {
 public:
  TightApplier(std::span<const NumberedPatch> patches, const PreparedPatches& prepared,
               Workspace* workspace, Stream stream)
      : patches_(patches),
        prepared_(prepared),
        workspace_(*workspace),
        width_(patches[0].patch.layout.width),
        stream_(stream) {}

  // What all blocks look things up in.
  Status open_tables(bool with_sums) {
    const size_t array_bytes = prepared_.arrays.size() * sizeof(TightDecodeArray);
    const size_t table_bytes = prepared_.tables.size() * sizeof(TableFrequencies);
    TightDecodeArray* arrays = nullptr;
    TableFrequencies* frequencies = nullptr;
    const auto lay_out = [&](Carve carve) {
      arrays = carve.take<TightDecodeArray>(prepared_.arrays.size());
      frequencies = carve.take<TableFrequencies>(prepared_.tables.size());
      common_.sums = with_sums ? carve.take<uint64_t>(2 * prepared_.arrays.size()) : nullptr;
      return carve.size();
    };
    DW_ASSIGN_OR_RETURN(uint8_t* const models,
                        workspace_.get(Workspace::kModels, lay_out(Carve(nullptr))));
    lay_out(Carve(models));
    DW_ASSIGN_OR_RETURN(
        uint8_t* const tables_at,
        workspace_.get(Workspace::kTables, prepared_.tables.size() * sizeof(DecodeTable)));
    auto* const tables = reinterpret_cast<DecodeTable*>(tables_at);
    DW_ASSIGN_OR_RETURN(uint8_t* const status_at,
                        workspace_.get(Workspace::kStatus, sizeof(PatchStatus)));
    DW_ASSIGN_OR_RETURN(const GapTables* gaps, gap_tables(stream_));
    common_.arrays = arrays;
    common_.gap_tables = gaps->decode.data<GapTable>();
    common_.value_tables = tables;
    common_.status = reinterpret_cast<PatchStatus*>(status_at);
    DW_RETURN_IF_ERROR(copy(arrays, prepared_.arrays.data(), array_bytes, stream_));
    DW_RETURN_IF_ERROR(copy(frequencies, prepared_.tables.data(), table_bytes, stream_));
    DW_RETURN_IF_ERROR(expand_tables(frequencies, tables, prepared_.tables.size(), stream_));
    if (with_sums) {
      DW_RETURN_IF_ERROR(
          fill_zero(common_.sums, prepared_.arrays.size() * sizeof(ArraySums), stream_));
    }
    return fill_zero(common_.status, sizeof(PatchStatus), stream_);
  }

  // After the tables.
  Status open_slots(const ChunkPlan& plan) {
    DW_ASSIGN_OR_RETURN(uint8_t* const memory,
                        workspace_.get(Workspace::kSlots, plan.num_slots * plan.slot_bytes));
    for (size_t s = 0; s < plan.num_slots; ++s) {
      Slot& slot = slots_.emplace_back();
      slot.memory = memory + s * plan.slot_bytes;
      DW_ASSIGN_OR_RETURN(slot.streams.scans, workspace_.stream(s));
      DW_ASSIGN_OR_RETURN(slot.streams.chains, workspace_.stream(Workspace::kChains + s));
      DW_RETURN_IF_ERROR(order_after(slot.streams.chains, stream_));
    }
    return {};
  }

  enum Pass : uint8_t {
    kCheck,          // nothing is written
    kCheckAndWrite,  // each chunk is checked before anything of it is written
    kPatch,          // has been checked already, or need not be: written as it is decoded
  };
  // Goes through all chunks. Later work of the caller's stream comes after.
  Status run(const std::vector<Chunk>& chunks, Pass pass) {
    for (size_t i = 0; i < chunks.size(); ++i) {
      DW_RETURN_IF_ERROR(run_chunk(chunks[i], slots_[i % slots_.size()], pass));
    }
    for (const Slot& slot : slots_) DW_RETURN_IF_ERROR(order_after(stream_, slot.streams.chains));
    return {};
  }

  Status result() {
    PatchStatus found{};
    DW_RETURN_IF_ERROR(copy(&found, common_.status, sizeof found, stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    return to_status(found, "block", [&](uint32_t array) { return patches_[array].number; });
  }

  // After result(), of arrays that were written from end to end.
  Status fetch_digests(std::vector<std::optional<Digest>>* out) {
    std::vector<ArraySums> sums(patches_.size());
    DW_RETURN_IF_ERROR(copy(sums.data(), common_.sums, sums.size() * sizeof(ArraySums), stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    for (size_t i = 0; i < patches_.size(); ++i) {
      const std::vector<Bytes>& blocks = prepared_.payloads[i].blocks;
      if (std::any_of(blocks.begin(), blocks.end(), [](Bytes block) { return block.empty(); })) {
        continue;
      }
      (*out)[patches_[i].number] =
          finish_sums(sums[i], patches_[i].patch.num_elements * uint64_t{width_});
    }
    return {};
  }

 private:
  struct Slot {
    uint8_t* memory = nullptr;
    TightDecodeStreams streams;
  };

  Status run_chunk(const Chunk& chunk, const Slot& slot, Pass pass) {
    ChunkMemory memory;
    memory.lay_out(slot.memory, chunk.load, width_);
    const TightDecodeStreams streams = slot.streams;
    uint8_t* to = memory.payload;
    for (const Bytes bytes : chunk.payload) {
      DW_RETURN_IF_ERROR(copy(to, bytes.data(), bytes.size(), streams.chains));
      to += bytes.size();
    }
    DW_RETURN_IF_ERROR(copy(memory.blocks, prepared_.blocks.data() + chunk.first_block,
                            chunk.load.blocks * sizeof(TightDecodeBlock), streams.chains));
    TightDecodeWork work = common_;
    work.blocks = memory.blocks;
    work.num_blocks = uint32_t(chunk.load.blocks);
    work.num_coded = uint32_t(chunk.load.coded);
    work.payload = memory.payload;
    work.streams = memory.streams;
    work.ranks = memory.ranks;
    work.values = memory.values;
    if (pass == kPatch) return patch_tight(work, width_, streams);
    DW_RETURN_IF_ERROR(check_tight(work, width_, streams));
    return pass == kCheckAndWrite ? write_tight(work, width_, streams) : Status();
  }

  const std::span<const NumberedPatch> patches_;
  const PreparedPatches& prepared_;
  Workspace& workspace_;
  const unsigned width_;
  const Stream stream_;
  TightDecodeWork common_{};  // what is the same for all chunks
  std::vector<Slot> slots_;
};

// What has been copied from its memory has arrived.
void give_back(std::shared_ptr<CheckedTight>* checked, Workspace* workspace) {
  if (*checked == nullptr) return;
  workspace->give_back_pinned(std::move((*checked)->prepared.memory));
  workspace->give_back_pinned(std::move((*checked)->payload));
  checked->reset();
}

Status run_passes(TightApplier* applier, const std::vector<Chunk>& chunks,
                  const DeviceOptions& options, bool write) {
  if (!write) return applier->run(chunks, TightApplier::kCheck);
  if (!options.all_or_nothing) return applier->run(chunks, TightApplier::kPatch);
  if (chunks.size() == 1) return applier->run(chunks, TightApplier::kCheckAndWrite);
  DW_RETURN_IF_ERROR(applier->run(chunks, TightApplier::kCheck));
  DW_RETURN_IF_ERROR(applier->result());
  return applier->run(chunks, TightApplier::kPatch);
}

}  // namespace

Status apply_tight_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream, DeviceTimes* times) {
  Workspace& workspace = *options.workspace;
  std::shared_ptr<CheckedTight>& kept = workspace.checked_tight(patches[0].patch.layout.width);
  const bool known = write && options.as_checked && kept != nullptr && kept->is_of(patches);
  if (!known) {
    give_back(&kept, &workspace);
    kept = std::make_shared<CheckedTight>();
    kept->patches.assign(patches.begin(), patches.end());
    DW_ASSIGN_OR_RETURN(kept->prepared, prepare_patches(patches, options));
  }
  kept->good = false;  // after a failure it stays until the next call, for what is under way
  less_tables(options, table_bytes(kept->prepared));  // slots of an earlier call make room for them
  TightApplier applier(kept->patches, kept->prepared, &workspace, stream);
  const bool with_sums = write && options.patched_digests != nullptr;
  DW_RETURN_IF_ERROR(applier.open_tables(with_sums));
  const uint64_t scratch_bytes = less_tables(options, 0).scratch_bytes;
  if (!known) {
    kept->plan = plan_chunks(patches, kept->prepared.blocks, scratch_bytes);
    if (options.apply_follows) DW_RETURN_IF_ERROR(gather_payloads(options, kept.get()));
  }
  DW_RETURN_IF_ERROR(applier.open_slots(kept->plan));
  DW_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::create());
  DW_RETURN_IF_ERROR(watch.start(stream));
  DW_RETURN_IF_ERROR(run_passes(&applier, kept->plan.chunks, options, write));
  DW_ASSIGN_OR_RETURN(const double time, watch.stop(stream));
  if (times != nullptr) times->coding += time;
  DW_RETURN_IF_ERROR(applier.result());
  if (with_sums) DW_RETURN_IF_ERROR(applier.fetch_digests(options.patched_digests));
  kept->good = !write && options.apply_follows;
  if (!kept->good) give_back(&kept, &workspace);
  return {};
}

}  // namespace deltawire::cuda
