#include "replica/box_cut.h"

#include <algorithm>

#include "codec/gaps_body.h"
#include "format/layout.h"
#include "tensor/box_rows.h"

namespace deltawire {
namespace {

// What a range of the tensor's bytes has of the box is in one piece in the box's contents, too:
// both are in the same order.
std::optional<CutChange> cut_raw(const RedoEntry& redo, const ByteRange& range,
                                 const BoxRows& rows) {
  CutChange cut;
  const uint64_t end = range.offset + range.size, row_bytes = rows.row_bytes();
  for (uint64_t row = rows.first_behind(range.offset); row < rows.count(); ++row) {
    const uint64_t position = rows.position(row);
    if (position >= end) break;
    const uint64_t from = std::max(position, range.offset),
                   to = std::min(position + row_bytes, end);
    if (cut.payload.empty()) cut.begin = row * row_bytes + (from - position);
    const auto bytes = redo.payload.begin() - ptrdiff_t(range.offset);
    cut.payload.insert(cut.payload.end(), bytes + ptrdiff_t(from), bytes + ptrdiff_t(to));
  }
  if (cut.payload.empty()) return {};
  cut.size_bytes = cut.payload.size();
  cut.num_changed = cut.size_bytes / layout_of(redo.entry.dtype).width;
  return cut;
}

Result<std::optional<CutChange>> cut_gaps(const RedoEntry& redo, const ByteRange& range,
                                          const BoxRows& rows) {
  const unsigned width = layout_of(redo.entry.dtype).width;
  Bytes payload = redo.payload;
  const uint64_t num_elements = range.size / width;
  DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(num_elements, &payload));
  DW_ASSIGN_OR_RETURN(const Changes changes,
                      decode_gaps_body(header, width, payload, num_elements, nullptr));
  std::vector<uint64_t> positions;
  std::vector<uint8_t> values;
  const uint64_t row_bytes = rows.row_bytes();
  uint64_t row = rows.first_behind(range.offset);
  uint64_t begin = row < rows.count() ? rows.position(row) : UINT64_MAX;
  for (size_t i = 0; i < changes.positions.size(); ++i) {
    const uint64_t at = range.offset + changes.positions[i] * width;
    while (row < rows.count() && begin + row_bytes <= at) {
      ++row;
      begin = row < rows.count() ? rows.position(row) : UINT64_MAX;
    }
    if (row == rows.count()) break;
    if (at < begin) continue;
    positions.push_back((row * row_bytes + (at - begin)) / width);
    const uint8_t* const value = changes.values.data() + i * width;
    values.insert(values.end(), value, value + width);
  }
  if (positions.empty()) return std::optional<CutChange>();
  CutChange cut{0, rows.count() * row_bytes, CodecId::kGaps, {}, positions.size()};
  cut.payload = gaps_payload(width, positions, values);
  return std::optional(std::move(cut));
}

}  // namespace

Result<std::optional<CutChange>> cut_to_box(const RedoEntry& redo, const Box& box) {
  DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(redo.entry));
  const BoxRows rows(box, redo.entry.dtype, redo.entry.shape);
  if (redo.entry.codec == CodecId::kGaps) return cut_gaps(redo, range, rows);
  if (redo.entry.codec != CodecId::kRaw) return internal_error("not in absolute values");
  return cut_raw(redo, range, rows);
}

}  // namespace deltawire
