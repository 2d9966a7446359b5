#include "codec/cuda/lists_batch.h"

#include <algorithm>

#include "codec/checks.h"
#include "codec/gaps.h"
#include "digest/sums.h"

namespace deltawire::cuda {

Result<ListsPayload> open_lists(unsigned width, uint64_t num_elements, Bytes payload) {
  DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(num_elements, &payload));
  const uint64_t record = header.gap_width + width;
  if (payload.size() / record != header.count || payload.size() % record != 0) {
    return bad_payload("size of gaps and values", header.count * record, payload.size());
  }
  return ListsPayload{header.gap_width, header.count, payload};
}

namespace {

constexpr uint64_t kRounding = 13 * 256;  // of all pieces together

// Of a change, as written: the new one, in `adaptive` the old one too.
unsigned num_values(CodecId codec) { return codec == CodecId::kAdaptive ? 2 : 1; }

// What a change takes: a position in its tile and a value as found, an entry and values as written.
uint64_t change_bytes(CodecId codec, unsigned width) {
  return 2 + width + 2 + num_values(codec) * width;
}

}  // namespace

uint64_t most_changes(CodecId codec, unsigned width, uint64_t table_bytes, uint64_t num_bytes) {
  const uint64_t taken = table_bytes + kRounding;
  if (taken >= num_bytes) return 1;
  return std::max<uint64_t>(1, (num_bytes - taken) / change_bytes(codec, width));
}

uint64_t lists_table_bytes(const DevicePair& pair) {
  const uint64_t tiles = pair.num_elements / tile_elements(pair.layout.width) + 1;
  return sizeof(PairArray) + sizeof(ArrayChanges) + sizeof(ListPlace) + 2 * sizeof(uint64_t) + 16 +
         tiles * (sizeof(TileChanges) + sizeof(TilePlace) + sizeof(uint32_t));
}

ListsBatch::ListsBatch(const ListsPass& pass, uint64_t capacity)
    : pass_(pass), capacity_(capacity) {
  const unsigned width = pass.width();
  for (const DevicePair& pair : pass.pairs) {
    arrays_.push_back({pair.old_data, pair.new_data, pair.num_elements, 0});
    num_tiles_ += (pair.num_elements + tile_elements(width) - 1) / tile_elements(width);
  }
  room_ = capacity * (change_bytes(pass.codec, width) - 2 - width) + 16 * arrays_.size();
  device_bytes_ = lay_out(nullptr);
}

size_t ListsBatch::lay_out(uint8_t* at) {
  Carve carve(at);
  const unsigned width = pass_.width();
  DiffOutput& changes = memory_.changes;
  memory_.batch = carve.take<uint8_t>(PairBatch::size_bytes(arrays_, width));
  changes.tiles = carve.take<TileChanges>(num_tiles_);
  memory_.tiles = carve.take<TilePlace>(num_tiles_);
  memory_.of_arrays = carve.take<ArrayChanges>(arrays_.size());
  memory_.places = carve.take<ListPlace>(arrays_.size());
  changes.total = carve.take<uint64_t>(1);
  changes.sums = pass_.options.new_digests ? carve.take<uint64_t>(2 * arrays_.size()) : nullptr;
  changes.positions = carve.take<uint16_t>(capacity_);
  changes.values = carve.take<uint8_t>(capacity_ * width);
  changes.capacity = capacity_;
  memory_.lists = carve.take<uint8_t>(room_);
  return carve.size();
}

size_t ListsBatch::Counts::lay_out(Carve carve, size_t num_arrays) {
  total = carve.take<uint64_t>(1);
  of_arrays = carve.take<ArrayChanges>(num_arrays);
  sums = carve.take<NewSums>(num_arrays);
  return carve.size();
}

size_t ListsBatch::host_bytes(size_t num_arrays) noexcept {
  return Counts().lay_out(Carve(nullptr), num_arrays);
}

Status ListsBatch::start(uint8_t* device, uint8_t* host) {
  lay_out(device);
  const size_t num_arrays = arrays_.size();
  counts_.lay_out(Carve(host), num_arrays);
  const DiffOutput& changes = memory_.changes;
  const Stream stream = pass_.stream;
  DW_ASSIGN_OR_RETURN(batch_, PairBatch::make_in(memory_.batch, arrays_, pass_.width(), stream));
  DW_RETURN_IF_ERROR(fill_zero(changes.total, sizeof(uint64_t), stream));
  const size_t sums_bytes = changes.sums == nullptr ? 0 : num_arrays * sizeof(NewSums);
  DW_RETURN_IF_ERROR(fill_zero(changes.sums, sums_bytes, stream));
  DW_RETURN_IF_ERROR(diff(*batch_, pass_.pairs[0].kind, 0, batch_->num_tiles(), changes, stream));
  DW_RETURN_IF_ERROR(place_changes(*batch_, changes, memory_.tiles, memory_.of_arrays, stream));
  DW_RETURN_IF_ERROR(copy(counts_.total, changes.total, sizeof(uint64_t), stream));
  DW_RETURN_IF_ERROR(
      copy(counts_.of_arrays, memory_.of_arrays, num_arrays * sizeof(ArrayChanges), stream));
  return copy(counts_.sums, changes.sums, sums_bytes, stream);
}

ListsBatch::Head ListsBatch::make_head(const ArrayChanges& changes) const {
  const GapsHeader header{gap_width_for(changes.largest_gap), changes.count};
  Head head;
  head.gap_bytes = header.gap_width;
  if (pass_.codec == CodecId::kGaps) put_gaps_header(header, &head.bytes);
  return head;
}

Status ListsBatch::count() {
  DW_RETURN_IF_ERROR(wait(pass_.stream));
  needed_ = *counts_.total;
  if (!had_room()) return {};
  // Lists are aligned on the device, so that they are written in whole words; heads are the host's.
  uint64_t size = 0;
  for (size_t i = 0; i < arrays_.size(); ++i) {
    const ArrayChanges& own = counts_.of_arrays[i];
    heads_.push_back(make_head(own));
    const unsigned change = heads_[i].gap_bytes + num_values(pass_.codec) * pass_.width();
    bodies_.push_back({size, size + own.count * change});
    size = (bodies_[i].end + 15) / 16 * 16;
  }
  return {};
}

Status ListsBatch::write(uint8_t* lists) {
  lists_ = lists == nullptr ? memory_.lists : lists;
  std::vector<ListPlace> places;
  for (size_t i = 0; i < arrays_.size(); ++i) {
    uint8_t* const at = lists_ + bodies_[i].begin;
    const unsigned gap_bytes = heads_[i].gap_bytes;
    const uint64_t count = counts_.of_arrays[i].count;
    uint8_t* const values = at + count * gap_bytes;
    places.push_back({at, values,
                      pass_.codec == CodecId::kAdaptive ? values + count * pass_.width() : nullptr,
                      gap_bytes});
  }
  const Stream stream = pass_.stream;
  DW_RETURN_IF_ERROR(
      copy(memory_.places, places.data(), places.size() * sizeof(ListPlace), stream));
  return write_lists(*batch_, memory_.changes, memory_.tiles, memory_.places, stream);
}

std::vector<DeviceEncoded> ListsBatch::take_heads() {
  std::vector<DeviceEncoded> out(arrays_.size());
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].num_changed = counts_.of_arrays[i].count;
    if (memory_.changes.sums != nullptr) {
      out[i].new_digest = finish_sums(counts_.sums[i], pass_.pairs[i].num_elements * pass_.width());
    }
    if (out[i].num_changed != 0) out[i].payload = std::move(heads_[i].bytes);
  }
  return out;
}

}  // namespace deltawire::cuda
