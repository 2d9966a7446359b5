#include "delta/local_boxes.h"

#include <algorithm>
#include <functional>

#include "format/layout.h"
#include "tensor/box_math.h"

namespace deltawire {
namespace {

std::vector<int64_t> strides_of(const LocalBox& held, const Box& box, DType dtype) {
  if (!held.strides.empty() || box.extent.empty()) return held.strides;
  std::vector<int64_t> strides(box.extent.size() - 1);
  int64_t bytes = int64_t(box.extent.back() * dtype_bits(dtype) / 8);
  for (size_t d = strides.size(); d-- > 0;) {
    strides[d] = bytes;
    bytes *= int64_t(box.extent[d]);
  }
  return strides;
}

// Calls body(index) for every index of the box in the first `count` dimensions.
void for_each_index(const Box& box, size_t count, const std::function<void(const Shape&)>& body) {
  Shape index(box.offset.begin(), box.offset.begin() + ptrdiff_t(count));
  for (;;) {
    body(index);
    size_t d = count;
    while (d > 0 && ++index[d - 1] == box.offset[d - 1] + box.extent[d - 1]) {
      index[d - 1] = box.offset[d - 1];
      --d;
    }
    if (d == 0) return;
  }
}

class Cut {
 public:
  Cut(const DeltaEntry& entry, std::vector<Region>* out)
      : entry_(entry),
        own_(spelled_out(entry.box, entry.shape)),
        layout_(entry.layout()),
        out_(out) {}

  Status add(const LocalBox& held) {
    const Box box = spelled_out(held.box, entry_.shape);
    const size_t dims = own_.extent.size();
    if (dims == 0) {  // a scalar
      out_->push_back({0, 0, 1, size_t(entry_.num_elements()), held.data, 0});
      return {};
    }
    const Box common = intersection(own_, box);
    if (num_elements_of(common) == 0) return {};
    const Shape &begin = common.offset, &extent = common.extent;
    const std::vector<int64_t> strides = strides_of(held, box, entry_.dtype);
    if (strides.size() + 1 != dims) {
      return invalid_argument("tensor " + entry_.tensor + ": strides of a held box: expected " +
                              std::to_string(dims - 1) + ", got " + std::to_string(strides.size()));
    }
    const size_t bits = dtype_bits(entry_.dtype), width = layout_.width;
    const auto elements = [&](uint64_t n) { return size_t(n * bits / 8 / width); };
    uint8_t* const first = held.data + (begin[dims - 1] - box.offset[dims - 1]) * bits / 8;
    const size_t column = elements(begin[dims - 1] - own_.offset[dims - 1]),
                 columns = elements(extent[dims - 1]);
    if (dims == 1) {
      out_->push_back({0, column, 1, columns, first, 0});
      return {};
    }
    if (layout_.columns == 0) {  // rows that begin inside a byte or are too many cannot be split
      if (box != own_ || !held.strides.empty()) {
        return unsupported("tensor " + entry_.tensor + ": parts of a tensor of shape " +
                           shape_to_string(entry_.shape) + " and dtype " +
                           std::string(dtype_name(entry_.dtype)));
      }
      out_->push_back({0, 0, 1, size_t(entry_.num_elements()), first, 0});
      return {};
    }
    // One region per matrix.
    const size_t r = dims - 2;
    for_each_index(common, r, [&](const Shape& index) {
      uint64_t matrix = 0;
      uint8_t* data = first + int64_t(begin[r] - box.offset[r]) * strides[r];
      for (size_t d = 0; d < r; ++d) {
        matrix = matrix * own_.extent[d] + (index[d] - own_.offset[d]);
        data += int64_t(index[d] - box.offset[d]) * strides[d];
      }
      push({size_t(matrix * own_.extent[r] + (begin[r] - own_.offset[r])), column,
            size_t(extent[r]), columns, data, ptrdiff_t(strides[r])});
    });
    return {};
  }

 private:
  // Joins regions with adjacent rows, because there may be many small matrices.
  void push(const Region& region) {
    if (!out_->empty()) {
      Region& last = out_->back();
      if (last.column == region.column && last.columns == region.columns &&
          last.stride == region.stride && last.row + last.rows == region.row &&
          last.data + ptrdiff_t(last.rows) * last.stride == region.data) {
        last.rows += region.rows;
        return;
      }
    }
    out_->push_back(region);
  }

  const DeltaEntry& entry_;
  const Box own_;
  const Layout layout_;
  std::vector<Region>* const out_;
};

}  // namespace

Result<std::vector<Region>> regions_of(const DeltaEntry& entry, std::span<const LocalBox> boxes) {
  std::vector<Region> regions;
  Cut cut(entry, &regions);
  for (const LocalBox& held : boxes) {
    DW_RETURN_IF_ERROR(check_box(held.box, entry.dtype, entry.shape));
    DW_RETURN_IF_ERROR(cut.add(held));
  }
  return regions;
}

Status apply_to_boxes(const DeltaEntry& entry, Bytes payload, std::span<const LocalBox> boxes,
                      const ReadOld& read_old, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const std::vector<Region> regions, regions_of(entry, boxes));
  if (regions.empty()) return {};
  return find_codec(entry.codec)
      ->apply_to_regions(entry.layout(), size_t(entry.num_elements()), payload, regions, read_old,
                         pool);
}

}  // namespace deltawire
