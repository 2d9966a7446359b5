// `tight` from a device. Statistics come from there, models are fitted here as the CPU's encoder
// does, and blocks are coded there, as many at a time as the scratch has room for.
#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <functional>

#include "codec/cuda/device_parts.h"
#include "codec/cuda/tight_payloads.h"
#include "codec/cuda/tight_tables.h"
#include "codec/cuda/workspace.h"

namespace deltawire::cuda {
namespace {

constexpr size_t kNumSlots = Workspace::kCodecStreams;

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
  // On the host, all but the names pinned.
  std::vector<BlockName> names;
  TightEncodeBlock* host_blocks = nullptr;
  TightEncodeResult* host_results = nullptr;
  uint64_t* host_places = nullptr;
};

class BlockCoder {
 public:
  BlockCoder(std::span<const DevicePair> pairs, const std::vector<tight::Model>& models,
             const DeviceOptions& options, Stream stream)
      : pairs_(pairs),
        models_(models),
        workspace_(*options.workspace),
        options_(options),
        width_(pairs[0].layout.width),
        slot_bytes_(options.scratch_bytes / kNumSlots / kCarveAlign * kCarveAlign),
        stream_(stream) {}

  Status open() {
    const size_t num = pairs_.size();
    std::vector<uint32_t> first_table(num + 1);
    for (size_t i = 0; i < num; ++i) {
      first_table[i + 1] = first_table[i] + uint32_t(num_value_tables(models_[i]));
    }
    const size_t num_tables = first_table[num];
    TableFrequencies *host_tables = nullptr, *frequencies = nullptr;
    const auto lay_out = [&](Carve carve, TightEncodeArray** arrays, TableFrequencies** tables) {
      *arrays = carve.take<TightEncodeArray>(num);
      *tables = carve.take<TableFrequencies>(num_tables);
      return carve.size();
    };
    const size_t size = lay_out(Carve(nullptr), &arrays_, &host_tables);
    DW_ASSIGN_OR_RETURN(uint8_t* const host, workspace_.get(Workspace::kHostTables, size));
    DW_ASSIGN_OR_RETURN(uint8_t* const models, workspace_.get(Workspace::kModels, size));
    DW_ASSIGN_OR_RETURN(uint8_t* const tables,
                        workspace_.get(Workspace::kTables, num_tables * sizeof(EncodeTable)));
    DW_ASSIGN_OR_RETURN(memory_, workspace_.get(Workspace::kSlots, kNumSlots * slot_bytes_));
    DW_ASSIGN_OR_RETURN(gaps_, gap_tables(stream_));
    lay_out(Carve(host), &arrays_, &host_tables);
    lay_out(Carve(models), &device_arrays_, &frequencies);
    tables_ = reinterpret_cast<EncodeTable*>(tables);
    parallel_for(options_.pool, num, [&](size_t i, unsigned) {
      arrays_[i] = describe_array(i, first_table[i]);
      make_value_tables(models_[i], uint8_t(width_), host_tables + first_table[i]);
    });
    DW_RETURN_IF_ERROR(
        copy(frequencies, host_tables, num_tables * sizeof(TableFrequencies), stream_));
    DW_RETURN_IF_ERROR(expand_tables(frequencies, tables_, num_tables, stream_));
    for (size_t s = 0; s < kNumSlots; ++s) {
      DW_ASSIGN_OR_RETURN(streams_[s], workspace_.stream(s));
    }
    return {};
  }

  // Codes `names`; those that lacked room are left in `*again`.
  Status run(const std::vector<BlockName>& names, double room_factor, TightPayloads* payloads,
             std::vector<BlockName>* again) {
    for (size_t i = 0; i < pairs_.size(); ++i) {
      make_room(models_[i], width_, room_factor, &arrays_[i]);
    }
    DW_RETURN_IF_ERROR(
        copy(device_arrays_, arrays_, pairs_.size() * sizeof(TightEncodeArray), stream_));
    for (size_t s = 0; s < kNumSlots; ++s) DW_RETURN_IF_ERROR(order_after(streams_[s], stream_));
    DW_RETURN_IF_ERROR(make_host_room(names));
    std::deque<size_t> busy;
    size_t next_slot = 0;
    for (size_t begin = 0; begin < names.size();) {
      if (busy.size() == kNumSlots) {
        DW_RETURN_IF_ERROR(fetch(busy.front(), payloads, again));
        busy.pop_front();
      }
      const size_t end = fitting(names, begin);
      DW_RETURN_IF_ERROR(start(next_slot, names, begin, end));
      busy.push_back(next_slot);
      next_slot = (next_slot + 1) % kNumSlots;
      begin = end;
      payloads->write_complete();
    }
    for (const size_t slot : busy) {
      DW_RETURN_IF_ERROR(fetch(slot, payloads, again));
      payloads->write_complete();
    }
    for (size_t s = 0; s < kNumSlots; ++s) DW_RETURN_IF_ERROR(order_after(stream_, streams_[s]));
    return {};
  }

  const std::string& lack() const { return lack_; }  // of the last block that lacked room

 private:
  TightEncodeArray describe_array(size_t i, uint32_t first_table) const {
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
    array.first_table = first_table;
    array.num_contexts = model.num_contexts;
    return array;
  }

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

  // For what goes to the device and comes back of as many blocks as a slot can take.
  Status make_host_room(const std::vector<BlockName>& names) {
    size_t most = 0;
    for (size_t begin = 0; begin < names.size();) {
      const size_t end = fitting(names, begin);
      most = std::max(most, end - begin);
      begin = end;
    }
    const auto lay_out = [&](Carve carve) {
      for (Slot& slot : slots_) {
        slot.host_blocks = carve.take<TightEncodeBlock>(most);
        slot.host_results = carve.take<TightEncodeResult>(most);
        slot.host_places = carve.take<uint64_t>(most + 1);
      }
      return carve.size();
    };
    DW_ASSIGN_OR_RETURN(uint8_t* const host,
                        workspace_.get(Workspace::kHostResults, lay_out(Carve(nullptr))));
    lay_out(Carve(host));
    return {};
  }

  Status start(size_t s, const std::vector<BlockName>& names, size_t begin, size_t end) {
    Slot& slot = slots_[s];
    const size_t count = end - begin;
    slot.names.assign(names.begin() + ptrdiff_t(begin), names.begin() + ptrdiff_t(end));
    uint64_t changes = 0, bytes = 0;
    for (size_t i = 0; i < count; ++i) {
      const BlockName& name = slot.names[i];
      const Tiling tiling = tiling_of(pairs_[name.array]);
      const Tile tile = tiling[name.number];
      slot.host_blocks[i] = {name.array, uint32_t(tile.size()), place_of(tile, tiling.stride()),
                             changes, bytes};
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
    slot.work.with_sums = options_.new_digests;

    const Stream stream = streams_[s];
    DW_RETURN_IF_ERROR(
        copy(slot.blocks, slot.host_blocks, count * sizeof(TightEncodeBlock), stream));
    DW_RETURN_IF_ERROR(collect_tight(slot.work, width_, pairs_[0].kind, stream));
    DW_RETURN_IF_ERROR(code_tight(slot.work, width_, stream));
    DW_RETURN_IF_ERROR(gather_blocks(slot.work, slot.places, slot.gathered, stream));
    DW_RETURN_IF_ERROR(
        copy(slot.host_results, slot.results, count * sizeof(TightEncodeResult), stream));
    return copy(slot.host_places, slot.places, (count + 1) * sizeof(uint64_t), stream);
  }

  Status fetch(size_t s, TightPayloads* payloads, std::vector<BlockName>* again) {
    Slot& slot = slots_[s];
    const Stream stream = streams_[s];
    DW_RETURN_IF_ERROR(wait(stream));
    const size_t count = slot.names.size(), total = slot.host_places[count];
    DW_ASSIGN_OR_RETURN(uint8_t* const bytes, payloads->make_piece(total));
    DW_RETURN_IF_ERROR(copy(bytes, slot.gathered, total, stream));
    DW_RETURN_IF_ERROR(wait(stream));
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
      payloads->add(name, slot.host_places[i], result);
    }
    return {};
  }

  const std::span<const DevicePair> pairs_;
  const std::vector<tight::Model>& models_;
  Workspace& workspace_;
  const DeviceOptions& options_;
  const unsigned width_;
  const size_t slot_bytes_;
  const Stream stream_;
  const GapTables* gaps_ = nullptr;
  TightEncodeArray* arrays_ = nullptr;  // pinned
  TightEncodeArray* device_arrays_ = nullptr;
  EncodeTable* tables_ = nullptr;
  uint8_t* memory_ = nullptr;
  std::array<Slot, kNumSlots> slots_;
  std::array<Stream, kNumSlots> streams_{};
  std::string lack_;
};

// Arrays of several blocks. `meanwhile` is called while the device has something to do.
Result<std::vector<DeviceEncoded>> encode_large(std::span<const DevicePair> pairs,
                                                const DeviceOptions& options, Stream stream,
                                                const std::function<Status()>& meanwhile) {
  DW_ASSIGN_OR_RETURN(const std::vector<tight::Model> models,
                      fit_models(pairs, options, stream, meanwhile));
  BlockCoder coder(pairs, models, options, stream);
  DW_RETURN_IF_ERROR(coder.open());
  DW_RETURN_IF_ERROR(wait(stream));

  TightPayloads payloads(pairs, models, options);
  std::vector<BlockName> names;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const size_t num_blocks = tiling_of(pairs[i]).size();
    for (uint32_t b = 0; b < num_blocks; ++b) names.push_back({uint32_t(i), b});
  }
  for (const double factor : {1.0, 8.0, 1e9}) {
    std::vector<BlockName> again;
    DW_RETURN_IF_ERROR(coder.run(names, factor, &payloads, &again));
    names = std::move(again);
    if (names.empty()) break;
  }
  if (!names.empty()) {
    return Status(Code::kInternal, "block " + std::to_string(names[0].number) + " of array " +
                                       std::to_string(names[0].array) + ", width " +
                                       std::to_string(pairs[0].layout.width) +
                                       ": did not fit the most it could take: " + coder.lack());
  }
  DW_RETURN_IF_ERROR(wait(stream));
  return payloads.take();
}

}  // namespace

Result<std::vector<DeviceEncoded>> encode_tight(std::span<const DevicePair> pairs,
                                                const DeviceOptions& options, Stream stream) {
  std::vector<DevicePair> large, small;
  const auto is_large = [](const DevicePair& pair) { return tiling_of(pair).size() > 1; };
  for (const DevicePair& pair : pairs) (is_large(pair) ? large : small).push_back(pair);
  std::vector<DeviceEncoded> of_large, of_small;
  DW_ASSIGN_OR_RETURN(const Stream beside, options.workspace->stream(Workspace::kSmallArrays));
  DW_RETURN_IF_ERROR(order_after(beside, stream));
  const auto encode_small = [&]() -> Status {
    if (small.empty()) return {};
    DW_ASSIGN_OR_RETURN(of_small, encode_on_host(small, options, beside));
    return {};
  };
  if (large.empty()) {
    DW_RETURN_IF_ERROR(encode_small());
  } else {
    DW_ASSIGN_OR_RETURN(of_large, encode_large(large, options, stream, encode_small));
  }
  std::vector<DeviceEncoded> out;
  size_t next_large = 0, next_small = 0;
  for (const DevicePair& pair : pairs) {
    out.push_back(std::move(is_large(pair) ? of_large[next_large++] : of_small[next_small++]));
  }
  return out;
}

}  // namespace deltawire::cuda
