// `tight` from a device. Statistics come from there, models are fitted here as the CPU's encoder
// does, and blocks are coded there, as many at a time as the scratch has room for.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>

#include "codec/cuda/carve.h"
#include "codec/cuda/device_parts.h"
#include "codec/cuda/tight_models.h"
#include "codec/cuda/tight_tables.h"
#include "codec/cuda/workspace.h"
#include "codec/leb128.h"
#include "codec/tight_payload.h"

namespace deltawire::cuda {
namespace {

constexpr size_t kNumSlots = 2;  // one is fetched while the other is worked on

struct BlockName {
  uint32_t array, number;
};

// A block's bytes, in one of the pieces that came from the device.
struct CodedBlock {
  size_t piece = 0;
  uint64_t offset = 0;
  uint32_t num_bytes = 0, num_changed = 0;
};

// Room for what is expected of a block, and some more; or for anything.
void make_room(const tight::Model& model, unsigned width, double factor, TightEncodeArray* array) {
  constexpr uint32_t kAll = 1U << tight::kBlockLog2;
  uint32_t at = 0;
  for (size_t c = 0; c < kMaxClasses; ++c) {
    array->room[c] = at;
    const double mean =
        model.fitted ? tight::mean_count(model.mean_codes[c], kAll, tight::kBlockLog2) : 64;
    const double room = factor * (1.1 * mean + 5 * std::sqrt(mean) + 32);
    at += c < model.split.num_classes ? uint32_t(std::min<double>(room, kAll)) : 0;
  }
  array->room[kMaxClasses] = at;
  // The most that a change can take: raw bits of a gap, a sign, a raw value, three symbols.
  const uint64_t worst = uint64_t{std::min(at, kAll)} * ((21 + 8 * width + 7) / 8 + 6) + 1024;
  array->out_bytes =
      uint32_t(std::min<uint64_t>(worst, factor > 100 ? worst : 2 * at + 1024) & ~3U);
}

// One slot's memory on the device and what comes back of it.
struct Slot {
  TightEncodeWork work{};
  TightEncodeBlock* blocks = nullptr;
  TightEncodeResult* results = nullptr;
  uint64_t* places = nullptr;
  uint8_t* gathered = nullptr;
  // On the host.
  std::vector<BlockName> names;
  TightEncodeResult* host_results = nullptr;
  uint64_t* host_places = nullptr;
};

class BlockCoder {
 public:
  BlockCoder(std::span<const DevicePair> pairs, const std::vector<tight::Model>& models,
             size_t scratch_bytes, Workspace* workspace, Stream stream)
      : pairs_(pairs),
        models_(models),
        workspace_(*workspace),
        width_(pairs[0].layout.width),
        slot_bytes_(scratch_bytes / kNumSlots),
        stream_(stream) {}

  Status open() {
    size_t num_tables = 0;
    for (size_t i = 0; i < pairs_.size(); ++i) {
      const tight::Model& model = models_[i];
      TightEncodeArray array{};
      array.old_data = pairs_[i].old_data;
      array.new_data = pairs_[i].new_data;
      array.num_elements = pairs_[i].num_elements;
      array.keys = make_keys(model.split);
      fill_contexts(model, array.context_of_key);
      std::copy_n(model.q, kMaxClasses, array.q);
      std::copy_n(model.mean_codes, kMaxClasses, array.mean_codes);
      array.fitted = model.fitted ? 1 : 0;
      array.first_table = uint32_t(num_tables);
      array.num_contexts = model.num_contexts;
      num_tables += num_value_tables(model);
      arrays_.push_back(array);
    }
    std::vector<EncodeTable> tables(num_tables);
    for (size_t i = 0; i < pairs_.size(); ++i) {
      make_encode_tables(models_[i], uint8_t(width_), tables.data() + arrays_[i].first_table);
    }
    const size_t array_bytes = arrays_.size() * sizeof(TightEncodeArray);
    const size_t table_bytes = num_tables * sizeof(EncodeTable);
    DW_ASSIGN_OR_RETURN(uint8_t* const models, workspace_.get(Workspace::kModels, array_bytes));
    DW_ASSIGN_OR_RETURN(uint8_t* const at, workspace_.get(Workspace::kTables, table_bytes));
    DW_ASSIGN_OR_RETURN(memory_, workspace_.get(Workspace::kSlots, kNumSlots * slot_bytes_));
    DW_ASSIGN_OR_RETURN(gaps_, gap_tables(stream_));
    device_arrays_ = reinterpret_cast<TightEncodeArray*>(models);
    tables_ = reinterpret_cast<EncodeTable*>(at);
    DW_RETURN_IF_ERROR(copy(tables_, tables.data(), table_bytes, stream_));
    for (size_t s = 0; s < kNumSlots; ++s) {
      DW_ASSIGN_OR_RETURN(streams_[s], workspace_.stream(s));
    }
    return {};
  }

  // Codes `names`; those that lacked room are left in `*again`.
  Status run(const std::vector<BlockName>& names, double room_factor,
             std::vector<std::vector<CodedBlock>>* coded, std::vector<BlockName>* again) {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      make_room(models_[i], width_, room_factor, &arrays_[i]);
    }
    DW_RETURN_IF_ERROR(
        copy(device_arrays_, arrays_.data(), arrays_.size() * sizeof(TightEncodeArray), stream_));
    for (const Stream own : streams_) DW_RETURN_IF_ERROR(follow(own, stream_));
    DW_RETURN_IF_ERROR(make_host_room(names));
    std::deque<size_t> busy;
    size_t next_slot = 0;
    for (size_t begin = 0; begin < names.size();) {
      if (busy.size() == kNumSlots) {
        DW_RETURN_IF_ERROR(finish(busy.front(), coded, again));
        busy.pop_front();
      }
      const size_t end = fitting(names, begin);
      DW_RETURN_IF_ERROR(start(next_slot, names, begin, end));
      busy.push_back(next_slot);
      next_slot = (next_slot + 1) % kNumSlots;
      begin = end;
    }
    for (const size_t slot : busy) DW_RETURN_IF_ERROR(finish(slot, coded, again));
    for (const Stream own : streams_) DW_RETURN_IF_ERROR(follow(stream_, own));
    return {};
  }

  const std::deque<std::vector<uint8_t>>& pieces() const { return pieces_; }
  const std::string& lack() const { return lack_; }  // of the last block that lacked room

 private:
  uint64_t cost(const BlockName& name) const {
    const TightEncodeArray& array = arrays_[name.array];
    return uint64_t{array.room[kMaxClasses]} * (4 + 2 * width_) + array.out_bytes +
           sizeof(TightEncodeBlock) + sizeof(TightEncodeResult) + sizeof(uint64_t);
  }

  size_t fitting(const std::vector<BlockName>& names, size_t begin) const {
    constexpr uint64_t kRounding = 16 * 256;
    uint64_t sum = kRounding;
    size_t end = begin;
    do {
      sum += cost(names[end++]);
    } while (end < names.size() && sum + cost(names[end]) <= slot_bytes_);
    return end;
  }

  // For the results of as many blocks as a slot can take.
  Status make_host_room(const std::vector<BlockName>& names) {
    size_t most = 0;
    for (size_t begin = 0; begin < names.size();) {
      const size_t end = fitting(names, begin);
      most = std::max(most, end - begin);
      begin = end;
    }
    host_slot_bytes_ = most * sizeof(TightEncodeResult) + (most + 1) * sizeof(uint64_t);
    DW_ASSIGN_OR_RETURN(host_results_,
                        workspace_.get(Workspace::kHostResults, kNumSlots * host_slot_bytes_));
    return {};
  }

  Status start(size_t s, const std::vector<BlockName>& names, size_t begin, size_t end) {
    Slot& slot = slots_[s];
    const size_t count = end - begin;
    slot.names.assign(names.begin() + ptrdiff_t(begin), names.begin() + ptrdiff_t(end));
    std::vector<TightEncodeBlock> blocks;
    uint64_t changes = 0, bytes = 0;
    for (const BlockName& name : slot.names) {
      blocks.push_back({name.array, name.number, changes, bytes});
      changes += arrays_[name.array].room[kMaxClasses];
      bytes += arrays_[name.array].out_bytes;
    }
    const auto lay_out = [&](uint8_t* memory) {
      Carve carve(memory);
      slot.gathered = carve.take<uint8_t>(0);  // over the lists, once they have been coded
      slot.work.ranks = carve.take<uint32_t>(changes);
      slot.work.old_values = carve.take<uint8_t>(changes * width_);
      slot.work.steps = carve.take<uint8_t>(changes * width_);
      slot.work.out = carve.take<uint8_t>(bytes);
      slot.blocks = carve.take<TightEncodeBlock>(count);
      slot.results = carve.take<TightEncodeResult>(count);
      slot.places = carve.take<uint64_t>(count + 1);
      return carve.size();
    };
    const size_t size = lay_out(nullptr);
    if (size > slot_bytes_) {  // one block that needs more than there is
      return Status(Code::kOutOfMemory, "a block of weights that all changed needs " +
                                            std::to_string(size) + " bytes of scratch, there are " +
                                            std::to_string(slot_bytes_));
    }
    lay_out(memory_ + s * slot_bytes_);
    slot.work.arrays = device_arrays_;
    slot.work.blocks = slot.blocks;
    slot.work.num_blocks = uint32_t(count);
    slot.work.gap_tables = gaps_->encode.data<EncodeTable>();
    slot.work.value_tables = tables_;
    slot.work.results = slot.results;
    slot.host_places = reinterpret_cast<uint64_t*>(host_results_ + s * host_slot_bytes_);
    slot.host_results = reinterpret_cast<TightEncodeResult*>(slot.host_places + count + 1);

    const Stream stream = streams_[s];
    DW_RETURN_IF_ERROR(copy(slot.blocks, blocks.data(), count * sizeof(TightEncodeBlock), stream));
    DW_RETURN_IF_ERROR(collect_tight(slot.work, width_, pairs_[0].kind, stream));
    DW_RETURN_IF_ERROR(code_tight(slot.work, width_, stream));
    DW_RETURN_IF_ERROR(gather_blocks(slot.work, slot.places, slot.gathered, stream));
    DW_RETURN_IF_ERROR(
        copy(slot.host_results, slot.results, count * sizeof(TightEncodeResult), stream));
    return copy(slot.host_places, slot.places, (count + 1) * sizeof(uint64_t), stream);
  }

  Status finish(size_t s, std::vector<std::vector<CodedBlock>>* coded,
                std::vector<BlockName>* again) {
    Slot& slot = slots_[s];
    const Stream stream = streams_[s];
    DW_RETURN_IF_ERROR(wait(stream));
    const size_t count = slot.names.size();
    const uint64_t total = slot.host_places[count];
    DW_ASSIGN_OR_RETURN(uint8_t* const bytes, workspace_.get(Workspace::kHostBytes, total));
    DW_RETURN_IF_ERROR(copy(bytes, slot.gathered, total, stream));
    DW_RETURN_IF_ERROR(wait(stream));
    pieces_.emplace_back(bytes, bytes + total);
    for (size_t i = 0; i < count; ++i) {
      const TightEncodeResult& result = slot.host_results[i];
      const BlockName& name = slot.names[i];
      if (result.no_room != 0) {
        const TightEncodeArray& array = arrays_[name.array];
        lack_ = std::to_string(result.total) + " changes, " +
                (result.no_room == 1 ? "room for " + std::to_string(array.room[kMaxClasses])
                                     : std::to_string(array.out_bytes) + " bytes");
        again->push_back(name);
        continue;
      }
      (*coded)[name.array][name.number] = {pieces_.size() - 1, slot.host_places[i],
                                           result.num_bytes, result.total};
    }
    return {};
  }

  const std::span<const DevicePair> pairs_;
  const std::vector<tight::Model>& models_;
  Workspace& workspace_;
  const unsigned width_;
  const size_t slot_bytes_;
  const Stream stream_;
  const GapTables* gaps_ = nullptr;
  std::vector<TightEncodeArray> arrays_;
  TightEncodeArray* device_arrays_ = nullptr;
  EncodeTable* tables_ = nullptr;
  uint8_t *memory_ = nullptr, *host_results_ = nullptr;
  size_t host_slot_bytes_ = 0;
  std::array<Slot, kNumSlots> slots_;
  std::array<Stream, kNumSlots> streams_{};
  std::deque<std::vector<uint8_t>> pieces_;
  std::string lack_;
};

Encoded assemble(const tight::Model& model, uint8_t width, const std::vector<CodedBlock>& blocks,
                 const std::deque<std::vector<uint8_t>>& pieces) {
  Encoded out;
  uint64_t size = 0;
  for (const CodedBlock& block : blocks) {
    out.num_changed += block.num_changed;
    size += block.num_bytes;
  }
  if (out.num_changed == 0) return out;
  std::vector<uint8_t> head_buffer(tight::kMaxModelBytes + 16);
  BitWriter head(head_buffer.data());
  tight::write_model(model, width, &head);
  out.payload.reserve(head.bytes().size() + 3 * blocks.size() + size);
  out.payload.assign(head.bytes().begin(), head.bytes().end());
  for (const CodedBlock& block : blocks) put_leb128(block.num_bytes, &out.payload);
  for (const CodedBlock& block : blocks) {
    const uint8_t* const at = pieces[block.piece].data() + block.offset;
    out.payload.insert(out.payload.end(), at, at + block.num_bytes);
  }
  return out;
}

// Arrays of several blocks.
Result<std::vector<Encoded>> encode_large(std::span<const DevicePair> pairs,
                                          const DeviceOptions& options, Stream stream,
                                          DeviceTimes* times) {
  DW_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::create());
  DW_RETURN_IF_ERROR(watch.start(stream));
  DW_ASSIGN_OR_RETURN(const std::vector<tight::Model> models, fit_models(pairs, options, stream));
  BlockCoder coder(pairs, models, options.scratch_bytes, options.workspace, stream);
  DW_RETURN_IF_ERROR(coder.open());
  DW_ASSIGN_OR_RETURN(const double statistics, watch.stop(stream));

  DW_RETURN_IF_ERROR(watch.start(stream));
  std::vector<std::vector<CodedBlock>> coded(pairs.size());
  std::vector<BlockName> names;
  for (size_t i = 0; i < pairs.size(); ++i) {
    coded[i].resize(tight::num_blocks_of(pairs[i].num_elements, tight::kBlockLog2));
    for (uint32_t b = 0; b < coded[i].size(); ++b) names.push_back({uint32_t(i), b});
  }
  for (const double factor : {1.0, 8.0, 1e9}) {
    std::vector<BlockName> again;
    DW_RETURN_IF_ERROR(coder.run(names, factor, &coded, &again));
    names = std::move(again);
    if (names.empty()) break;
  }
  if (!names.empty()) {
    return Status(Code::kInternal, "block " + std::to_string(names[0].number) + " of array " +
                                       std::to_string(names[0].array) + ", width " +
                                       std::to_string(pairs[0].layout.width) +
                                       ": did not fit the most it could take: " + coder.lack());
  }
  DW_ASSIGN_OR_RETURN(const double coding, watch.stop(stream));
  if (times != nullptr) {
    times->statistics += statistics;
    times->coding += coding;
  }

  std::vector<Encoded> out(pairs.size());
  parallel_for(options.pool, pairs.size(), [&](size_t i, unsigned) {
    out[i] = assemble(models[i], pairs[i].layout.width, coded[i], coder.pieces());
  });
  return out;
}

}  // namespace

Result<std::vector<Encoded>> encode_tight(std::span<const DevicePair> pairs,
                                          const DeviceOptions& options, Stream stream,
                                          DeviceTimes* times) {
  std::vector<DevicePair> large, small;
  const auto is_large = [](const DevicePair& pair) {
    return tight::num_blocks_of(pair.num_elements, tight::kBlockLog2) > 1;
  };
  for (const DevicePair& pair : pairs) (is_large(pair) ? large : small).push_back(pair);
  std::vector<Encoded> of_large, of_small;
  if (!large.empty()) {
    DW_ASSIGN_OR_RETURN(of_large, encode_large(large, options, stream, times));
  }
  if (!small.empty()) {
    DW_ASSIGN_OR_RETURN(of_small, encode_on_host(small, options, stream));
  }
  std::vector<Encoded> out;
  size_t next_large = 0, next_small = 0;
  for (const DevicePair& pair : pairs) {
    out.push_back(std::move(is_large(pair) ? of_large[next_large++] : of_small[next_small++]));
  }
  return out;
}

}  // namespace deltawire::cuda
