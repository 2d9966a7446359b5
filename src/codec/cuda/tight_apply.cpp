// `tight` onto a device, as many blocks at a time as the scratch has room for.
#include <algorithm>
#include <array>

#include "codec/cuda/checked_tight.h"
#include "codec/cuda/device_parts.h"
#include "codec/cuda/tight_tables.h"
#include "codec/cuda/workspace.h"
#include "digest/sums.h"

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

  // What all blocks look things up in; those that are decoded need no tables.
  Status open_tables(bool with_sums, bool decoded) {
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
    if (!decoded) {
      DW_RETURN_IF_ERROR(copy(frequencies, prepared_.tables.data(), table_bytes, stream_));
      DW_RETURN_IF_ERROR(expand_tables(frequencies, tables, prepared_.tables.size(), stream_));
    }
    if (with_sums) {
      DW_RETURN_IF_ERROR(
          fill_zero(common_.sums, prepared_.arrays.size() * sizeof(ArraySums), stream_));
    }
    return fill_zero(common_.status, sizeof(PatchStatus), stream_);
  }

  // After the tables. Chunks that stay need no memory of slots.
  Status open_slots(const CheckedTight& checked) {
    const ChunkPlan& plan = checked.plan;
    places_ = checked.places;
    const size_t slot_bytes = checked.all_stay() ? 0 : plan.slot_bytes;
    DW_ASSIGN_OR_RETURN(uint8_t* const memory,
                        workspace_.get(Workspace::kSlots, plan.num_slots * slot_bytes));
    for (size_t s = 0; s < plan.num_slots; ++s) {
      Slot& slot = slots_.emplace_back();
      slot.memory = memory + s * slot_bytes;
      DW_ASSIGN_OR_RETURN(slot.streams.scans, workspace_.stream(s));
      DW_ASSIGN_OR_RETURN(slot.streams.chains, workspace_.stream(Workspace::kChains + s));
    }
    return {};
  }

  enum Pass : uint8_t {
    kCheck,          // nothing is written
    kCheckAndWrite,  // each chunk is checked before anything of it is written
    kPatch,          // has been checked already, or need not be: written as it is decoded
    kWriteKept,      // after kCheck: chunks that have stayed are written, others patched
    kList,           // nothing is written: changes go to lists
  };
  // Goes through all chunks, after what the caller's stream was given; its later work comes after.
  Status run(const std::vector<Chunk>& chunks, Pass pass) {
    for (const Slot& slot : slots_) DW_RETURN_IF_ERROR(order_after(slot.streams.chains, stream_));
    for (size_t i = 0; i < chunks.size(); ++i) {
      Slot slot = slots_[i % slots_.size()];
      const bool stays = places_[i] != nullptr;
      if (stays) slot.memory = places_[i];
      if (pass == kList) slot.list = lists_[i];
      DW_RETURN_IF_ERROR(run_chunk(chunks[i], slot, pass == kWriteKept && !stays ? kPatch : pass));
    }
    for (const Slot& slot : slots_) DW_RETURN_IF_ERROR(order_after(stream_, slot.streams.chains));
    return {};
  }

  // Goes through all chunks with kList. Lists are good if result() says so.
  Status list(const std::vector<Chunk>& chunks, ChangeLists* out) {
    std::vector<uint64_t> sizes;
    for (const Chunk& chunk : chunks) {
      sizes.push_back(values_at(chunk) + chunk.load.changes * width_);
    }
    DW_ASSIGN_OR_RETURN(lists_, out->take(sizes));
    for (size_t i = 0; i < chunks.size(); ++i) append_lists(chunks[i], lists_[i], &out->lists);
    return run(chunks, kList);
  }

  Status result() {
    PatchStatus found{};
    DW_RETURN_IF_ERROR(copy(&found, common_.status, sizeof found, stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    return to_status(found, "block", [&](uint32_t array) { return patches_[array].number; });
  }

  // After result(), of arrays that were written from end to end, by blocks that share no word.
  Status fetch_digests(std::vector<std::optional<Digest>>* out) {
    std::vector<ArraySums> sums(patches_.size());
    DW_RETURN_IF_ERROR(copy(sums.data(), common_.sums, sums.size() * sizeof(ArraySums), stream_));
    DW_RETURN_IF_ERROR(wait(stream_));
    for (size_t i = 0; i < patches_.size(); ++i) {
      const auto& [model, blocks] = prepared_.payloads[i];
      const DevicePatch& patch = patches_[i].patch;
      const bool whole_words = !model.tiles.tiled() || patch.layout.columns * width_ % 8 == 0;
      if (!whole_words || !patch.regions.empty() ||
          std::any_of(blocks.begin(), blocks.end(), [](Bytes block) { return block.empty(); })) {
        continue;
      }
      (*out)[patches_[i].number] = finish_sums(sums[i], patch.num_elements * uint64_t{width_});
    }
    return {};
  }

 private:
  struct Slot {
    uint8_t* memory = nullptr;
    uint8_t* list = nullptr;  // of kList: positions of all changes, then their values
    TightDecodeStreams streams;
  };

  static uint64_t values_at(const Chunk& chunk) {
    return carved_bytes(chunk.load.changes * sizeof(uint32_t));
  }
  // A list for blocks side by side whose elements are in the same memory.
  void append_lists(const Chunk& chunk, uint8_t* memory, std::vector<SwapList>* out) const {
    const TightDecodeBlock* before = nullptr;
    for (const TightDecodeBlock& block :
         prepared_.blocks.subspan(chunk.first_block, chunk.load.blocks)) {
      const uint32_t count = block.end[kMaxClasses - 1];
      if (before != nullptr && before->data == block.data) {
        out->back().count += count;
      } else {
        out->push_back({block.data, reinterpret_cast<uint32_t*>(memory) + block.first_change,
                        memory + values_at(chunk) + uint64_t{block.first_change} * width_, count,
                        width_, 0});
      }
      before = &block;
    }
  }

  Status send(const Chunk& chunk, const ChunkMemory& memory, Stream stream) {
    uint8_t* to = memory.payload;
    for (const Bytes bytes : chunk.payload) {
      DW_RETURN_IF_ERROR(copy(to, bytes.data(), bytes.size(), stream));
      to += bytes.size();
    }
    return copy(memory.blocks, prepared_.blocks.data() + chunk.first_block,
                chunk.load.blocks * sizeof(TightDecodeBlock), stream);
  }

  Status run_chunk(const Chunk& chunk, const Slot& slot, Pass pass) {
    ChunkMemory memory;
    memory.lay_out(slot.memory, chunk.load, width_);
    const TightDecodeStreams streams = slot.streams;
    if (pass != kWriteKept) DW_RETURN_IF_ERROR(send(chunk, memory, streams.chains));
    TightDecodeWork work = common_;
    work.blocks = memory.blocks;
    work.num_blocks = uint32_t(chunk.load.blocks);
    work.num_coded = uint32_t(chunk.load.coded);
    work.payload = memory.payload;
    work.streams = memory.streams;
    work.ranks = memory.ranks;
    work.values = memory.values;
    if (pass == kWriteKept) return write_tight(work, width_, streams);
    if (pass == kPatch) return patch_tight(work, width_, streams);
    if (pass == kList) {
      work.ranks = reinterpret_cast<uint32_t*>(slot.list);
      work.listed = slot.list + values_at(chunk);
      return list_tight(work, width_, streams);
    }
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
  std::vector<uint8_t*> places_;  // see CheckedTight
  std::vector<uint8_t*> lists_;   // of each chunk, for kList
};

// What has been copied from its memory has arrived.
void give_back(std::shared_ptr<CheckedTight>* checked, Workspace* workspace) {
  if (*checked == nullptr) return;
  workspace->give_back_pinned(std::move((*checked)->prepared.memory));
  workspace->give_back_pinned(std::move((*checked)->payload));
  checked->reset();
}

Status run_passes(TightApplier* applier, const CheckedTight& checked, const DeviceOptions& options,
                  bool write) {
  const std::vector<Chunk>& chunks = checked.plan.chunks;
  if (options.lists != nullptr) return applier->list(chunks, options.lists);
  if (!write) return applier->run(chunks, TightApplier::kCheck);
  // Chunks stay from a check that has passed, or because all or nothing is to be written.
  if (!options.all_or_nothing) return applier->run(chunks, TightApplier::kWriteKept);
  if (chunks.size() == 1) return applier->run(chunks, TightApplier::kCheckAndWrite);
  DW_RETURN_IF_ERROR(applier->run(chunks, TightApplier::kCheck));
  DW_RETURN_IF_ERROR(applier->result());
  return applier->run(chunks, TightApplier::kWriteKept);
}

}  // namespace

Status apply_tight_patches(std::span<const NumberedPatch> patches, const DeviceOptions& options,
                           bool write, Stream stream) {
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
  DW_RETURN_IF_ERROR(applier.open_tables(with_sums, known && kept->all_stay()));
  const uint64_t scratch_bytes = less_tables(options, 0).scratch_bytes;
  if (!known) {
    kept->plan = plan_chunks(patches, kept->prepared.blocks, scratch_bytes);
    kept->places.assign(kept->plan.chunks.size(), nullptr);
    const bool twice = write && options.all_or_nothing && kept->plan.chunks.size() > 1;
    if (twice || options.apply_follows) DW_RETURN_IF_ERROR(place_chunks(options, kept.get()));
    // Of regions there may be a piece for each tile: too many copies. From mapped files, which
    // lists are made of, one thread copies slowly.
    const bool in_pieces = std::any_of(patches.begin(), patches.end(), [](const auto& numbered) {
      return !numbered.patch.regions.empty();
    });
    if (options.apply_follows || options.lists != nullptr || in_pieces) {
      DW_RETURN_IF_ERROR(gather_payloads(options, kept.get()));
    }
  }
  DW_RETURN_IF_ERROR(applier.open_slots(*kept));
  DW_RETURN_IF_ERROR(run_passes(&applier, *kept, options, write));
  DW_RETURN_IF_ERROR(wait(stream));
  DW_RETURN_IF_ERROR(applier.result());
  if (with_sums) DW_RETURN_IF_ERROR(applier.fetch_digests(options.patched_digests));
  kept->good = !write && options.apply_follows;
  if (!kept->good) give_back(&kept, &workspace);
  return {};
}

}  // namespace deltawire::cuda
