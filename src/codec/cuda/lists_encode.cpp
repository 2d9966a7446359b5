// `indices` and `gaps` from a device: diff, look at the counts, write.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "base/guard.h"
#include "codec/cuda/carve.h"
#include "codec/cuda/device_parts.h"
#include "codec/cuda/workspace.h"
#include "codec/gaps_body.h"
#include "codec/indices_body.h"
#include "codec/leb128.h"
#include "digest/finish_sums.h"
#include "kernels/cuda/lists.h"

namespace deltawire::cuda {
namespace {

// Of the elements, how many changes are made room for at first. More is found out and done again.
constexpr uint64_t kExpectedShare = 24;
constexpr uint64_t kListFetchBytes = uint64_t{16} << 20;  // at a time
constexpr uint64_t kSliceBytes = uint64_t{1} << 18;       // that a thread copies at a time

using NewSums = std::array<uint64_t, 2>;  // lanes of sum128 of a new array

struct Pass {
  std::span<const DevicePair> pairs;
  CodecId codec;
  const DeviceOptions& options;
  Stream stream;
  unsigned width() const { return pairs[0].layout.width; }
};

// What of a payload stands before its lists.
struct Head {
  std::vector<uint8_t> bytes;
  unsigned entry_bytes = 0;
};

Head make_head(CodecId codec, uint64_t num_elements, const ArrayChanges& changes) {
  Head head;
  if (codec == CodecId::kIndices) {
    head.entry_bytes = position_width(num_elements);
    put_leb128(changes.count, &head.bytes);
  } else {
    GapsHeader header;
    header.gap_width = gap_width_for(changes.largest_gap);
    header.count = changes.count;
    head.entry_bytes = header.gap_width;
    put_gaps_header(header, &head.bytes);
  }
  return head;
}

// What a change takes: a position in its tile and a value as found, an entry and a value as
// written.
uint64_t change_bytes(CodecId codec, unsigned width) {
  return 2 + width + (codec == CodecId::kIndices ? 4 : 2) + width;
}

// What comes with the changes of an array.
uint64_t table_bytes(const DevicePair& pair) {
  const uint64_t tiles = pair.num_elements / tile_elements(pair.layout.width) + 1;
  return sizeof(PairArray) + sizeof(ArrayChanges) + sizeof(ListPlace) + sizeof(NewSums) + 16 +
         tiles * (sizeof(TileChanges) + sizeof(TilePlace) + sizeof(uint32_t));
}
constexpr uint64_t kRounding = 13 * 256;  // of all pieces together

// All that a batch has on the device.
struct Memory {
  uint8_t* batch = nullptr;
  DiffOutput changes{};
  TilePlace* tiles = nullptr;
  ArrayChanges* of_arrays = nullptr;
  ListPlace* places = nullptr;
  uint8_t* lists = nullptr;

  size_t lay_out(Carve carve, size_t num_arrays, uint64_t num_tiles, size_t batch_bytes,
                 uint64_t capacity, unsigned width, uint64_t list_bytes, bool with_sums) {
    batch = carve.take<uint8_t>(batch_bytes);
    changes.tiles = carve.take<TileChanges>(num_tiles);
    tiles = carve.take<TilePlace>(num_tiles);
    of_arrays = carve.take<ArrayChanges>(num_arrays);
    places = carve.take<ListPlace>(num_arrays);
    changes.total = carve.take<uint64_t>(1);
    changes.sums = with_sums ? carve.take<uint64_t>(2 * num_arrays) : nullptr;
    changes.positions = carve.take<uint16_t>(capacity);
    changes.values = carve.take<uint8_t>(capacity * width);
    changes.capacity = capacity;
    lists = carve.take<uint8_t>(list_bytes);
    return carve.size();
  }
};

// Where an array's lists are, of those of a batch.
struct Body {
  uint64_t begin, end;
  uint64_t size() const { return end - begin; }
};

// Makes room behind the heads. New memory is a page fault for every page: one thread would take
// longer over that than the bus over all of the lists, and many take longer than they like.
Status make_room(const DeviceOptions& options, const std::vector<Body>& bodies,
                 std::vector<DeviceEncoded>* out) {
  std::vector<size_t> order(bodies.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return bodies[a].size() > bodies[b].size(); });
  return parallel_try("encoding", options.pool, order.size(), [&](size_t k, unsigned) -> Status {
    std::vector<uint8_t>& payload = (*out)[order[k]].payload;
    const size_t size = payload.size() + bodies[order[k]].size();
    if (options.spare == nullptr) {
      payload.resize(size);
      return {};
    }
    std::vector<uint8_t> room = options.spare->take(size);
    std::copy(payload.begin(), payload.end(), room.begin());
    payload = std::move(room);
    return {};
  });
}

// Lists of `bodies`, one after the other from `lists` on, each to the end of its payload. They come
// through pinned memory: one half is filled while the other is copied to where it stays.
Status fetch_lists(const Pass& pass, const uint8_t* lists, const std::vector<Body>& bodies,
                   std::vector<DeviceEncoded>* out) {
  struct Slice {
    uint8_t* to;
    const uint8_t* from;
    uint64_t size;
  };
  const uint64_t size = bodies.back().end, half = std::min(kListFetchBytes, size);
  DW_ASSIGN_OR_RETURN(uint8_t* const host,
                      pass.options.workspace->get(Workspace::kHostBytes, 2 * half));
  const auto fetch = [&](uint64_t begin, uint64_t turn) {
    return copy(host + turn % 2 * half, lists + begin, std::min(half, size - begin), pass.stream);
  };
  DW_RETURN_IF_ERROR(fetch(0, 0));
  DW_RETURN_IF_ERROR(make_room(pass.options, bodies, out));
  size_t first = 0;
  for (uint64_t begin = 0, turn = 0; begin < size; begin += half, ++turn) {
    const uint64_t end = std::min(begin + half, size);
    const uint8_t* const here = host + turn % 2 * half;
    DW_RETURN_IF_ERROR(wait(pass.stream));
    if (end < size) DW_RETURN_IF_ERROR(fetch(end, turn + 1));
    std::vector<Slice> slices;
    while (bodies[first].end <= begin) ++first;
    for (size_t i = first; i < bodies.size() && bodies[i].begin < end; ++i) {
      const Body& body = bodies[i];
      uint8_t* const to = (*out)[i].payload.data() + (*out)[i].payload.size() - body.size();
      const uint64_t stop = std::min(body.end, end);
      for (uint64_t at = std::max(body.begin, begin); at < stop; at += kSliceBytes) {
        slices.push_back(
            {to + (at - body.begin), here + (at - begin), std::min(kSliceBytes, stop - at)});
      }
    }
    parallel_for(pass.options.pool, slices.size(), [&](size_t k, unsigned) {
      std::memcpy(slices[k].to, slices[k].from, slices[k].size);
    });
  }
  return {};
}

// One batch with room for `capacity` changes. `*needed` says how many there are; where that is
// more, nothing is returned.
Result<std::vector<DeviceEncoded>> encode_batch(const Pass& pass, uint64_t capacity,
                                                uint64_t* needed, DeviceTimes* times) {
  const unsigned width = pass.width();
  Workspace& workspace = *pass.options.workspace;
  const size_t num_arrays = pass.pairs.size();
  std::vector<PairArray> arrays;
  uint64_t num_tiles = 0;
  for (const DevicePair& pair : pass.pairs) {
    arrays.push_back({pair.old_data, pair.new_data, pair.num_elements, 0});
    num_tiles += (pair.num_elements + tile_elements(width) - 1) / tile_elements(width);
  }
  const uint64_t list_bytes =
      capacity * (change_bytes(pass.codec, width) - 2 - width) + 16 * num_arrays;
  Memory memory;
  const auto lay_out = [&](uint8_t* at) {
    return memory.lay_out(Carve(at), num_arrays, num_tiles, PairBatch::size_bytes(arrays, width),
                          capacity, width, list_bytes, pass.options.new_digests);
  };
  const size_t all_bytes = lay_out(nullptr);
  if (pass.options.within_scratch && all_bytes > pass.options.scratch_bytes) {
    return out_of_memory("lists of changes on the device");
  }
  DW_ASSIGN_OR_RETURN(uint8_t* const scratch, workspace.get(Workspace::kSlots, all_bytes));
  lay_out(scratch);
  const DiffOutput& changes = memory.changes;
  DW_ASSIGN_OR_RETURN(const PairBatch batch,
                      PairBatch::make_in(memory.batch, std::move(arrays), width, pass.stream));

  DW_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::create());
  DW_RETURN_IF_ERROR(watch.start(pass.stream));
  DW_RETURN_IF_ERROR(fill_zero(changes.total, sizeof(uint64_t), pass.stream));
  std::vector<NewSums> sums(changes.sums == nullptr ? 0 : num_arrays);
  DW_RETURN_IF_ERROR(fill_zero(changes.sums, sums.size() * sizeof(NewSums), pass.stream));
  DW_RETURN_IF_ERROR(diff(batch, pass.pairs[0].kind, 0, batch.num_tiles(), changes, pass.stream));
  DW_RETURN_IF_ERROR(copy(needed, changes.total, sizeof *needed, pass.stream));
  DW_ASSIGN_OR_RETURN(const double diff_time, watch.stop(pass.stream));
  if (times != nullptr) times->statistics += diff_time;
  if (*needed > capacity) return std::vector<DeviceEncoded>();

  std::vector<ArrayChanges> counts(num_arrays);
  DW_RETURN_IF_ERROR(watch.start(pass.stream));
  DW_RETURN_IF_ERROR(place_changes(batch, changes, memory.tiles, memory.of_arrays, pass.stream));
  DW_RETURN_IF_ERROR(
      copy(counts.data(), memory.of_arrays, num_arrays * sizeof(ArrayChanges), pass.stream));
  DW_RETURN_IF_ERROR(copy(sums.data(), changes.sums, sums.size() * sizeof(NewSums), pass.stream));
  DW_RETURN_IF_ERROR(wait(pass.stream));

  // Lists are aligned on the device, so that they are written in whole words; heads are the host's.
  std::vector<Head> heads;
  std::vector<ListPlace> list_places;
  std::vector<Body> bodies;
  uint64_t size = 0;
  for (size_t i = 0; i < num_arrays; ++i) {
    heads.push_back(make_head(pass.codec, pass.pairs[i].num_elements, counts[i]));
    bodies.push_back({size, size + counts[i].count * (heads[i].entry_bytes + width)});
    size = (bodies[i].end + 15) / 16 * 16;
  }
  uint8_t* lists = memory.lists;
  if (size > list_bytes) {  // positions take more than thought
    if (pass.options.within_scratch) return out_of_memory("lists of changes on the device");
    DW_ASSIGN_OR_RETURN(lists, workspace.get(Workspace::kTables, size));
  }
  for (size_t i = 0; i < num_arrays; ++i) {
    uint8_t* const at = lists + bodies[i].begin;
    list_places.push_back({at, at + counts[i].count * heads[i].entry_bytes, heads[i].entry_bytes,
                           pass.codec == CodecId::kIndices ? 1U : 0U});
  }
  DW_RETURN_IF_ERROR(
      copy(memory.places, list_places.data(), num_arrays * sizeof(ListPlace), pass.stream));
  DW_RETURN_IF_ERROR(write_lists(batch, changes, memory.tiles, memory.places, pass.stream));
  DW_ASSIGN_OR_RETURN(const double write_time, watch.stop(pass.stream));
  if (times != nullptr) times->coding += write_time;

  std::vector<DeviceEncoded> out(num_arrays);
  for (size_t i = 0; i < num_arrays; ++i) {
    out[i].num_changed = counts[i].count;
    if (!sums.empty()) {
      out[i].new_digest = finish_sums(sums[i], pass.pairs[i].num_elements * width);
    }
    if (counts[i].count != 0) out[i].payload = std::move(heads[i].bytes);
  }
  if (bodies.back().end != 0) DW_RETURN_IF_ERROR(fetch_lists(pass, lists, bodies, &out));
  return out;
}

// How many changes of a batch with so much beside them the scratch has room for.
uint64_t most_changes(CodecId codec, unsigned width, uint64_t tables, uint64_t scratch_bytes) {
  const uint64_t taken = tables + kRounding;
  if (taken >= scratch_bytes) return 1;
  return std::max<uint64_t>(1, (scratch_bytes - taken) / change_bytes(codec, width));
}

}  // namespace

Result<std::vector<DeviceEncoded>> encode_lists(CodecId codec, std::span<const DevicePair> pairs,
                                                const DeviceOptions& options, Stream stream,
                                                DeviceTimes* times) {
  const unsigned width = pairs.empty() ? 1 : pairs[0].layout.width;
  std::vector<DeviceEncoded> all;
  for (size_t begin = 0; begin < pairs.size();) {
    size_t end = begin;
    uint64_t elements = 0, tables = 0, most = 0;
    const auto fits_with = [&](const DevicePair& next) {
      return (elements + next.num_elements) / kExpectedShare <=
             most_changes(codec, width, tables + table_bytes(next), options.scratch_bytes);
    };
    do {
      elements += pairs[end].num_elements;
      tables += table_bytes(pairs[end]);
      most = most_changes(codec, width, tables, options.scratch_bytes);
      ++end;
    } while (end < pairs.size() && fits_with(pairs[end]));
    uint64_t needed = 0;
    const Pass pass{pairs.subspan(begin, end - begin), codec, options, stream};
    const uint64_t expected = std::max(elements / kExpectedShare, uint64_t{4096});
    const uint64_t first_try = std::min({elements, expected, most});
    DW_ASSIGN_OR_RETURN(std::vector<DeviceEncoded> batch,
                        encode_batch(pass, first_try, &needed, times));
    if (batch.empty() && needed > most && pass.pairs.size() > 1) {
      // Denser than thought: one by one, so that each needs as little as it can.
      for (const DevicePair& pair : pass.pairs) {
        DW_ASSIGN_OR_RETURN(std::vector<DeviceEncoded> one,
                            encode_lists(codec, {&pair, 1}, options, stream, times));
        batch.push_back(std::move(one[0]));
      }
    } else if (batch.empty()) {
      DW_ASSIGN_OR_RETURN(batch, encode_batch(pass, needed, &needed, times));
    }
    for (DeviceEncoded& encoded : batch) all.push_back(std::move(encoded));
    begin = end;
  }
  return all;
}

}  // namespace deltawire::cuda
