#include "replica/box_cut.h"

#include <algorithm>

#include "codec/gaps_body.h"
#include "format/layout.h"
#include "tensor/box_runs.h"

namespace deltawire {
namespace {

// What a range of the tensor's bytes has of the box is in one piece in the box's contents, too:
// both are in the same order.
std::optional<CutChange> cut_raw(const RedoEntry& redo, const ByteRange& range,
                                 const BoxRuns& runs) {
  CutChange cut;
  const uint64_t end = range.offset + range.size, run_bytes = runs.run_bytes();
  for (uint64_t run = runs.first_behind(range.offset); run < runs.count(); ++run) {
    const uint64_t position = runs.position(run);
    if (position >= end) break;
    const uint64_t from = std::max(position, range.offset),
                   to = std::min(position + run_bytes, end);
    if (cut.payload.empty()) cut.begin = run * run_bytes + (from - position);
    const auto bytes = redo.payload.begin() - ptrdiff_t(range.offset);
    cut.payload.insert(cut.payload.end(), bytes + ptrdiff_t(from), bytes + ptrdiff_t(to));
  }
  if (cut.payload.empty()) return {};
  cut.size_bytes = cut.payload.size();
  cut.num_changed = cut.size_bytes / layout_of(redo.entry.dtype).width;
  return cut;
}

Result<std::optional<CutChange>> cut_gaps(const RedoEntry& redo, const ByteRange& range,
                                          const BoxRuns& runs) {
  const unsigned width = layout_of(redo.entry.dtype).width;
  Bytes payload = redo.payload;
  const uint64_t num_elements = range.size / width;
  DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(num_elements, &payload));
  DW_ASSIGN_OR_RETURN(const Changes changes,
                      decode_gaps_body(header, width, payload, num_elements, nullptr));
  std::vector<uint64_t> positions;
  std::vector<uint8_t> values;
  const uint64_t run_bytes = runs.run_bytes();
  uint64_t run = runs.first_behind(range.offset);
  uint64_t begin = run < runs.count() ? runs.position(run) : UINT64_MAX;
  for (size_t i = 0; i < changes.positions.size(); ++i) {
    const uint64_t at = range.offset + changes.positions[i] * width;
    while (run < runs.count() && begin + run_bytes <= at) {
      ++run;
      begin = run < runs.count() ? runs.position(run) : UINT64_MAX;
    }
    if (run == runs.count()) break;
    if (at < begin) continue;
    positions.push_back((run * run_bytes + (at - begin)) / width);
    const uint8_t* const value = changes.values.data() + i * width;
    values.insert(values.end(), value, value + width);
  }
  if (positions.empty()) return std::optional<CutChange>();
  CutChange cut{0, runs.count() * run_bytes, CodecId::kGaps, {}, positions.size()};
  cut.payload = gaps_payload(width, positions, values);
  return std::optional(std::move(cut));
}

}  // namespace

Result<std::optional<CutChange>> cut_to_box(const RedoEntry& redo, const Box& box) {
  DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(redo.entry));
  const BoxRuns runs(box, redo.entry.dtype, redo.entry.shape);
  if (redo.entry.codec == CodecId::kGaps) return cut_gaps(redo, range, runs);
  if (redo.entry.codec != CodecId::kRaw) return internal_error("not in absolute values");
  return cut_raw(redo, range, runs);
}

}  // namespace deltawire
