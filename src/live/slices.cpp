#include "live/slices.h"

#include <algorithm>

#include "codec/tight_model.h"
#include "format/layout.h"
#include "tensor/box.h"
#include "tensor/box_math.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

uint64_t contents_bytes(const HeldBoxes& held, const LocalBox& box) {
  return tensor_size_bytes(held.dtype, box_shape(box.box, held.shape)).value();
}

struct Dim {
  uint64_t extent, stride;  // bytes
};

// The box as rows of `columns` bytes, and the fewest dimensions that enumerate them.
std::vector<Dim> outer_dims(const HeldBoxes& held, const LocalBox& box, uint64_t* columns) {
  const Shape extent = box_shape(box.box, held.shape);
  if (box.strides.empty()) {
    *columns = contents_bytes(held, box);
    return {};
  }
  *columns = extent.back() * dtype_bits(held.dtype) / 8;
  std::vector<Dim> dims;  // innermost first
  for (size_t d = extent.size() - 1; d-- > 0;) {
    const Dim dim{extent[d], uint64_t(box.strides[d])};
    if (dim.extent == 1) continue;
    if (dims.empty() && dim.stride == *columns) {
      *columns *= dim.extent;
    } else if (!dims.empty() && dim.stride == dims.back().stride * dims.back().extent) {
      dims.back().extent *= dim.extent;
    } else {
      dims.push_back(dim);
    }
  }
  return dims;
}

void append_rows(const HeldBoxes& held, const LocalBox& box, std::vector<LiveRows>* out) {
  const uint64_t width = layout_of(held.dtype).width;
  uint64_t columns = 0;
  const std::vector<Dim> dims = outer_dims(held, box, &columns);
  if (dims.empty()) {
    out->push_back({box.data, 1, columns / width, columns / width});
    return;
  }
  std::vector<uint8_t*> begins = {box.data};
  for (size_t d = dims.size(); d-- > 1;) {
    std::vector<uint8_t*> inner;
    for (uint8_t* const begin : begins) {
      for (uint64_t i = 0; i < dims[d].extent; ++i) inner.push_back(begin + i * dims[d].stride);
    }
    begins = std::move(inner);
  }
  for (uint8_t* const begin : begins) {
    out->push_back({begin, dims[0].extent, columns / width, dims[0].stride / width});
  }
}

}  // namespace

std::optional<TileExtent> tile_of(const Delta::Entry& item) {
  if (item.entry.codec != CodecId::kTight) return {};
  size_t consumed = 0;
  const Result<tight::Model> model =
      tight::read_model(item.entry.layout(), item.payload, &consumed);
  if (!model.ok() || !model->tiles.tiled()) return {};  // apply() reports bad payloads
  const TileShape shape = model->tiles;
  return TileExtent{uint64_t{1} << (shape.block_log2 - shape.columns_log2),
                    uint64_t{1} << shape.columns_log2};
}

namespace {

// Rounds a range to blocks of `unit`, counted from the beginning of the entry's box.
void widen(const Box& entry, size_t d, uint64_t unit, Box* box) {
  const uint64_t first = box->offset[d] - entry.offset[d], last = first + box->extent[d];
  const uint64_t begin = first / unit * unit,
                 end = std::min((last + unit - 1) / unit * unit, entry.extent[d]);
  box->offset[d] = entry.offset[d] + begin;
  box->extent[d] = end - begin;
}

// The indices of the first dimension that an entry covers. The entry may be cut at multiples of
// `unit` from its beginning; 0: not at all.
struct Cover {
  uint64_t begin, end, unit;

  bool may_cut(uint64_t at) const {
    return at <= begin || at >= end || (unit != 0 && (at - begin) % unit == 0);
  }
};

Cover cover_of(const Delta::Entry& item) {
  const DeltaEntry& entry = item.entry;
  Cover cover{0, entry.shape[0], 0};
  if (!entry.box.whole()) {
    cover.begin = entry.box.offset[0];
    cover.end = cover.begin + entry.box.extent[0];
  }
  // Tiles end with their matrix, so several matrices are cut between whole matrices.
  if (const auto tile = tile_of(item)) cover.unit = entry.shape.size() > 2 ? 1 : tile->rows;
  return cover;
}

// The indices of the first dimension between slices. A single slice covers everything.
std::vector<uint64_t> cuts_of(const HeldBoxes& held, std::span<const StageStep> steps,
                              uint64_t slice_bytes) {
  constexpr size_t kMostSteps = 256;  // each cut is compared with all steps
  if (held.shape.size() < 2 || steps.size() > kMostSteps) return {0, UINT64_MAX};
  uint64_t total = 0, row_bytes = 0;
  for (const LocalBox& box : held.boxes) {
    const uint64_t size = contents_bytes(held, box);
    total += size;
    if (size != 0) row_bytes += size / box_shape(box.box, held.shape)[0];
  }
  if (total <= slice_bytes) return {0, UINT64_MAX};
  std::vector<Cover> covers;
  std::vector<uint64_t> candidates = {0, held.shape[0]};
  for (const StageStep& step : steps) {
    if (step.item->payload.empty()) continue;
    covers.push_back(cover_of(*step.item));
    const Cover& cover = covers.back();
    const uint64_t unit = cover.unit == 0 ? cover.end - cover.begin : cover.unit;
    for (uint64_t at = cover.begin; at < cover.end; at += unit) candidates.push_back(at);
    candidates.push_back(cover.end);
  }
  std::sort(candidates.begin(), candidates.end());
  candidates.erase(std::unique(candidates.begin(), candidates.end()), candidates.end());
  std::erase_if(candidates, [&](uint64_t at) {
    return std::any_of(covers.begin(), covers.end(),
                       [&](const Cover& cover) { return !cover.may_cut(at); });
  });
  std::vector<uint64_t> cuts = {0};
  for (size_t i = 1; i < candidates.size(); ++i) {
    const bool last = i + 1 == candidates.size();
    if (last || (candidates[i + 1] - cuts.back()) * row_bytes > slice_bytes) {
      cuts.push_back(candidates[i]);
    }
  }
  return cuts;
}

// The part of the box with first indices in [begin, end). An extent of 0 means none.
LocalBox cut_box(const HeldBoxes& held, LocalBox box, uint64_t begin, uint64_t end) {
  box.box = spelled_out(box.box, held.shape);
  uint64_t& offset = box.box.offset[0];
  uint64_t& extent = box.box.extent[0];
  const uint64_t first = std::max(offset, begin), last = std::min(offset + extent, end);
  const uint64_t stride = box.strides.empty()
                              ? contents_bytes(held, box) / std::max<uint64_t>(extent, 1)
                              : uint64_t(box.strides[0]);
  if (first >= last) {
    extent = 0;
    return box;
  }
  box.data += (first - offset) * stride;
  offset = first;
  extent = last - first;
  return box;
}

}  // namespace

std::vector<LocalBox> StageSlice::packed(uint8_t* data) const {
  std::vector<LocalBox> out;
  for (const LocalBox& box : boxes) {
    out.push_back({box.box, data, {}});
    data += contents_bytes(*held, box);
  }
  return out;
}

std::vector<LiveRows> StageSlice::rows() const {
  std::vector<LiveRows> out;
  for (const LocalBox& box : boxes) append_rows(*held, box, &out);
  return out;
}

Status check_held(const HeldBoxes& held) {
  const auto check = [&](const LocalBox& box) -> Status {
    DW_RETURN_IF_ERROR(check_box(box.box, held.dtype, held.shape));
    const Shape extent = box_shape(box.box, held.shape);
    DW_ASSIGN_OR_RETURN(const uint64_t size_bytes, tensor_size_bytes(held.dtype, extent));
    if (size_bytes != 0 && box.data == nullptr) return invalid_argument("a box has no memory");
    if (box.strides.empty() || size_bytes == 0) return {};
    if (box.strides.size() + 1 != extent.size()) {
      return invalid_argument("strides of a box: expected " + std::to_string(extent.size() - 1) +
                              ", got " + std::to_string(box.strides.size()));
    }
    const uint64_t width = layout_of(held.dtype).width;
    uint64_t span = extent.back() * dtype_bits(held.dtype) / 8;
    // Dimensions may be in any order in memory, but must not overlap.
    std::vector<std::pair<int64_t, uint64_t>> dims;
    for (size_t d = 0; d + 1 < extent.size(); ++d) {
      if (extent[d] > 1) dims.emplace_back(box.strides[d], extent[d]);
    }
    std::sort(dims.begin(), dims.end());
    for (const auto& [stride, count] : dims) {
      if (stride < 0 || uint64_t(stride) < span || uint64_t(stride) % width != 0) {
        return invalid_argument("stride of a box: expected " + std::to_string(span) +
                                " bytes or more, a multiple of " + std::to_string(width) +
                                ", got " + std::to_string(stride));
      }
      if (__builtin_mul_overflow(uint64_t(stride), count, &span)) {
        return invalid_argument("strides of a box exceed the address space");
      }
    }
    return {};
  };
  for (const LocalBox& box : held.boxes) {
    DW_RETURN_IF_ERROR(check(box).at("tensor " + quote(held.name)));
  }
  return {};
}

std::vector<StageSlice> cut_slices(const HeldBoxes& held, std::span<const StageStep> steps,
                                   uint64_t slice_bytes) {
  const std::vector<uint64_t> cuts = cuts_of(held, steps, slice_bytes);
  std::vector<StageSlice> slices;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    StageSlice slice{&held, steps, {}};
    for (const LocalBox& box : held.boxes) {
      LocalBox own = cuts.size() == 2 ? box : cut_box(held, box, cuts[i], cuts[i + 1]);
      const uint64_t size = contents_bytes(held, own);
      if (size == 0) continue;
      slice.size_bytes += size;
      slice.boxes.push_back(std::move(own));
    }
    if (!slice.boxes.empty()) slices.push_back(std::move(slice));
  }
  return slices;
}

std::vector<Box> missing_boxes(std::span<const Delta> deltas, const HeldBoxes& held) {
  std::vector<Box> here, missing;
  for (const LocalBox& box : held.boxes) here.push_back(spelled_out(box.box, held.shape));
  const size_t own = here.size(), dims = held.shape.size();
  for (size_t i = deltas.size(); i-- > 0;) {
    bool changed = false;
    for (const Delta::Entry& item : deltas[i].entries) {
      if (item.entry.tensor != held.name || item.entry.shape != held.shape) continue;
      const CodecId codec = item.entry.codec;
      if (codec != CodecId::kTight && codec != CodecId::kAdaptive) continue;  // needs no old values
      changed = true;
      const Box entry = spelled_out(item.entry.box, held.shape);
      const auto tile = tile_of(item);
      for (size_t k = 0; k < own; ++k) {
        if (!overlap(here[k], entry)) continue;
        Box wanted = entry;
        if (tile && dims >= 2) {
          wanted = intersection(here[k], entry);
          widen(entry, dims - 2, tile->rows, &wanted);
          widen(entry, dims - 1, tile->columns, &wanted);
        }
        std::vector<Box> left = {std::move(wanted)};
        for (const Box& known : here) {
          std::vector<Box> next;
          for (const Box& box : left) {
            if (overlap(box, known)) {
              add_rest(box, intersection(box, known), &next);
            } else {
              next.push_back(box);
            }
          }
          left = std::move(next);
        }
        here.insert(here.end(), left.begin(), left.end());
        missing.insert(missing.end(), left.begin(), left.end());
      }
    }
    if (changed) break;
  }
  return missing;
}

}  // namespace deltawire
