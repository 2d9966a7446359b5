// `tight` onto a device, as many blocks at a time as the scratch has room for.
#include "codec/cuda/patch_status.h"
#include "codec/cuda/tight_chunks.h"
#include "codec/cuda/tight_prepare.h"
#include "codec/cuda/tight_tables.h"
#include "codec/cuda/workspace.h"

namespace deltawire::cuda {
namespace {

uint64_t table_bytes(const PreparedPatches& prepared) {
  return prepared.arrays.size() * sizeof(TightDecodeArray) +
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
  Status open_tables() {
    const size_t array_bytes = prepared_.arrays.size() * sizeof(TightDecodeArray);
    const size_t table_bytes = prepared_.tables.size() * sizeof(TableFrequencies);
    TightDecodeArray* arrays = nullptr;
    TableFrequencies* frequencies = nullptr;
    const auto lay_out = [&](Carve carve) {
      arrays = carve.take<TightDecodeArray>(prepared_.arrays.size());
      frequencies = carve.take<TableFrequencies>(prepared_.tables.size());
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

}  // namespace

Status apply_tight_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream, DeviceTimes* times) {
  DW_ASSIGN_OR_RETURN(const PreparedPatches prepared, prepare_patches(patches, options));
  less_tables(options, table_bytes(prepared));  // slots of an earlier call make room for them
  TightApplier applier(patches, prepared, options.workspace, stream);
  DW_RETURN_IF_ERROR(applier.open_tables());
  const uint64_t scratch_bytes = less_tables(options, 0).scratch_bytes;
  const ChunkPlan plan = plan_chunks(patches, prepared.blocks, scratch_bytes);
  const std::vector<Chunk>& chunks = plan.chunks;
  DW_RETURN_IF_ERROR(applier.open_slots(plan));
  DW_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::create());
  DW_RETURN_IF_ERROR(watch.start(stream));
  TightApplier::Pass pass = !write                   ? TightApplier::kCheck
                            : options.all_or_nothing ? TightApplier::kCheckAndWrite
                                                     : TightApplier::kPatch;
  if (pass == TightApplier::kCheckAndWrite && chunks.size() > 1) {
    DW_RETURN_IF_ERROR(applier.run(chunks, TightApplier::kCheck));
    DW_RETURN_IF_ERROR(applier.result());
    pass = TightApplier::kPatch;
  }
  DW_RETURN_IF_ERROR(applier.run(chunks, pass));
  DW_ASSIGN_OR_RETURN(const double time, watch.stop(stream));
  if (times != nullptr) times->coding += time;
  return applier.result();
}

}  // namespace deltawire::cuda
