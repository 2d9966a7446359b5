// `indices` and `gaps` from a device: diff, look at the counts, write.
#include <algorithm>
#include <cstring>

#include "codec/cuda/carve.h"
#include "codec/cuda/device_parts.h"
#include "codec/cuda/workspace.h"
#include "codec/gaps_body.h"
#include "codec/indices_body.h"
#include "codec/leb128.h"
#include "kernels/cuda/lists.h"

namespace deltawire::cuda {
namespace {

// Of the elements, how many changes are made room for at first. More is found out and done again.
constexpr uint64_t kExpectedShare = 24;
constexpr uint64_t kFetchBytes = uint64_t{16} << 20;  // at a time

struct Pass {
  std::span<const DevicePair> pairs;
  CodecId codec;
  Workspace& workspace;
  ThreadPool* pool;
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

// Where an array's lists are, of those of a batch.
struct Body {
  uint64_t begin, end;
};

// Lists of `bodies`, one after the other from `lists` on, each to the end of its payload. They come
// through pinned memory: one half is filled while the other is copied to where it stays.
Status fetch_lists(const Pass& pass, const uint8_t* lists, const std::vector<Body>& bodies,
                   std::vector<Encoded>* out) {
  const uint64_t size = bodies.back().end, half = std::min(kFetchBytes, size);
  DW_ASSIGN_OR_RETURN(uint8_t* const host, pass.workspace.get(Workspace::kHostBytes, 2 * half));
  const auto fetch = [&](uint64_t begin, uint64_t turn) {
    return copy(host + turn % 2 * half, lists + begin, std::min(half, size - begin), pass.stream);
  };
  size_t first = 0;
  DW_RETURN_IF_ERROR(fetch(0, 0));
  for (uint64_t begin = 0, turn = 0; begin < size; begin += half, ++turn) {
    const uint64_t end = std::min(begin + half, size);
    const uint8_t* const from = host + turn % 2 * half;
    DW_RETURN_IF_ERROR(wait(pass.stream));
    if (end < size) DW_RETURN_IF_ERROR(fetch(end, turn + 1));
    while (bodies[first].end <= begin) ++first;
    size_t last = first;
    while (last < bodies.size() && bodies[last].begin < end) ++last;
    parallel_for(pass.pool, last - first, [&](size_t k, unsigned) {
      const Body& body = bodies[first + k];
      std::vector<uint8_t>& payload = (*out)[first + k].payload;
      const uint64_t own_begin = std::max(body.begin, begin), own_end = std::min(body.end, end);
      if (own_begin >= own_end) return;  // nothing changed
      if (own_begin == body.begin) payload.reserve(payload.size() + body.end - body.begin);
      payload.insert(payload.end(), from + (own_begin - begin), from + (own_end - begin));
    });
  }
  return {};
}

// One batch with room for `capacity` changes. `*needed` says how many there are; where that is
// more, nothing is returned.
Result<std::vector<Encoded>> encode_batch(const Pass& pass, uint64_t capacity, uint64_t* needed,
                                          DeviceTimes* times) {
  const unsigned width = pass.width();
  std::vector<PairArray> arrays;
  for (const DevicePair& pair : pass.pairs) {
    arrays.push_back({pair.old_data, pair.new_data, pair.num_elements, 0});
  }
  DW_ASSIGN_OR_RETURN(const PairBatch batch,
                      PairBatch::make(std::move(arrays), width, pass.stream));
  const size_t num_arrays = pass.pairs.size();
  DiffOutput changes{};
  TilePlace* tiles = nullptr;
  ArrayChanges* of_arrays = nullptr;
  ListPlace* places = nullptr;
  const auto lay_out = [&](Carve carve) {
    changes.tiles = carve.take<TileChanges>(batch.num_tiles());
    tiles = carve.take<TilePlace>(batch.num_tiles());
    of_arrays = carve.take<ArrayChanges>(num_arrays);
    places = carve.take<ListPlace>(num_arrays);
    changes.total = carve.take<uint64_t>(1);
    changes.positions = carve.take<uint16_t>(capacity);
    changes.values = carve.take<uint8_t>(capacity * width);
    changes.capacity = capacity;
    return carve.size();
  };
  DW_ASSIGN_OR_RETURN(uint8_t* const scratch,
                      pass.workspace.get(Workspace::kSlots, lay_out(Carve(nullptr))));
  lay_out(Carve(scratch));
  const uint64_t entry_bytes = pass.codec == CodecId::kIndices ? 4 : 2;
  DW_ASSIGN_OR_RETURN(
      uint8_t * lists,
      pass.workspace.get(Workspace::kTables, capacity * (entry_bytes + width) + 16 * num_arrays));

  DW_ASSIGN_OR_RETURN(Stopwatch watch, Stopwatch::create());
  DW_RETURN_IF_ERROR(watch.start(pass.stream));
  DW_RETURN_IF_ERROR(fill_zero(changes.total, sizeof(uint64_t), pass.stream));
  DW_RETURN_IF_ERROR(diff(batch, pass.pairs[0].kind, 0, batch.num_tiles(), changes, pass.stream));
  DW_RETURN_IF_ERROR(copy(needed, changes.total, sizeof *needed, pass.stream));
  DW_ASSIGN_OR_RETURN(const double diff_time, watch.stop(pass.stream));
  if (times != nullptr) times->statistics += diff_time;
  if (*needed > capacity) return std::vector<Encoded>();

  std::vector<ArrayChanges> counts(num_arrays);
  DW_RETURN_IF_ERROR(watch.start(pass.stream));
  DW_RETURN_IF_ERROR(place_changes(batch, changes, tiles, of_arrays, pass.stream));
  DW_RETURN_IF_ERROR(
      copy(counts.data(), of_arrays, num_arrays * sizeof(ArrayChanges), pass.stream));
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
  // More only where gaps take over two bytes.
  DW_ASSIGN_OR_RETURN(lists, pass.workspace.get(Workspace::kTables, size));
  for (size_t i = 0; i < num_arrays; ++i) {
    uint8_t* const at = lists + bodies[i].begin;
    list_places.push_back({at, at + counts[i].count * heads[i].entry_bytes, heads[i].entry_bytes,
                           pass.codec == CodecId::kIndices ? 1U : 0U});
  }
  DW_RETURN_IF_ERROR(copy(places, list_places.data(), num_arrays * sizeof(ListPlace), pass.stream));
  DW_RETURN_IF_ERROR(write_lists(batch, changes, tiles, places, pass.stream));
  DW_ASSIGN_OR_RETURN(const double write_time, watch.stop(pass.stream));
  if (times != nullptr) times->coding += write_time;

  std::vector<Encoded> out(num_arrays);
  for (size_t i = 0; i < num_arrays; ++i) {
    out[i].num_changed = counts[i].count;
    if (counts[i].count != 0) out[i].payload = std::move(heads[i].bytes);
  }
  DW_RETURN_IF_ERROR(fetch_lists(pass, lists, bodies, &out));
  return out;
}

}  // namespace

Result<std::vector<Encoded>> encode_lists(CodecId codec, std::span<const DevicePair> pairs,
                                          const DeviceOptions& options, Stream stream,
                                          DeviceTimes* times) {
  // A change takes a position and a value twice: as found, and as written.
  const uint64_t width = pairs.empty() ? 1 : pairs[0].layout.width;
  const uint64_t most_changes = std::max<uint64_t>(1, options.scratch_bytes / (2 * (4 + width)));
  std::vector<Encoded> all;
  for (size_t begin = 0; begin < pairs.size();) {
    size_t end = begin;
    uint64_t elements = 0;
    do {
      elements += pairs[end++].num_elements;
    } while (end < pairs.size() &&
             (elements + pairs[end].num_elements) / kExpectedShare <= most_changes);
    uint64_t needed = 0;
    Pass pass{pairs.subspan(begin, end - begin), codec, *options.workspace, options.pool, stream};
    const uint64_t first_try =
        std::min(elements, std::clamp(elements / kExpectedShare, uint64_t{4096}, most_changes));
    DW_ASSIGN_OR_RETURN(std::vector<Encoded> batch, encode_batch(pass, first_try, &needed, times));
    if (batch.empty() && needed > most_changes && pass.pairs.size() > 1) {
      // Denser than thought: one by one, so that each needs as little as it can.
      for (const DevicePair& pair : pass.pairs) {
        DW_ASSIGN_OR_RETURN(std::vector<Encoded> one,
                            encode_lists(codec, {&pair, 1}, options, stream, times));
        batch.push_back(std::move(one[0]));
      }
    } else if (batch.empty()) {
      DW_ASSIGN_OR_RETURN(batch, encode_batch(pass, needed, &needed, times));
    }
    for (Encoded& encoded : batch) all.push_back(std::move(encoded));
    begin = end;
  }
  return all;
}

}  // namespace deltawire::cuda
