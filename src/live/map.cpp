#include "live/map.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <set>

#include "base/guard.h"
#include "codec/gaps.h"
#include "delta/delta_reader.h"
#include "format/layout.h"
#include "replica/journal_redo.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// first + sum of (extent - 1) * stride, which is the last element; false when that is no number.
bool last_element(uint64_t first, const std::vector<uint64_t>& extent,
                  const std::vector<uint64_t>& strides, uint64_t* last) {
  *last = first;
  for (size_t d = 0; d < extent.size(); ++d) {
    uint64_t span = 0;
    if (__builtin_mul_overflow(extent[d] - 1, strides[d], &span) ||
        __builtin_add_overflow(*last, span, last)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string_view window_defect(const Window& window, uint64_t num_elements,
                               uint64_t array_elements) {
  const size_t num_dims = window.extent.size();
  if (window.strides.size() != num_dims || window.array_strides.size() != num_dims) {
    return "not as many strides as dimensions";
  }
  if (num_dims > kMaxWindowDims) return "too many dimensions";
  for (const uint64_t n : window.extent) {
    if (n == 0) return "is empty";
  }
  uint64_t last = 0;
  if (!last_element(window.first, window.extent, window.strides, &last) || last >= num_elements) {
    return "does not lie in its tensor";
  }
  if (!last_element(window.array_first, window.extent, window.array_strides, &last) ||
      last >= array_elements) {
    return "does not lie in its array";
  }
  uint64_t inner = 1;  // elements that the dimensions behind span
  for (size_t d = num_dims; d-- > 0;) {
    if (window.extent[d] == 1) continue;
    if (window.strides[d] < inner) return "does not run through its tensor in order";
    inner = window.strides[d] * (window.extent[d] - 1) + inner;
  }
  return {};
}

WindowPlan::WindowPlan(const Window& window)
    : first_(window.first), end_(window.first + 1), array_first_(window.array_first) {
  for (size_t d = 0; d < window.extent.size(); ++d) {
    if (window.extent[d] == 1) continue;
    end_ += (window.extent[d] - 1) * window.strides[d];
    const Dim next{window.extent[d], window.strides[d], window.array_strides[d]};
    if (num_dims_ > 0) {
      Dim& outer = dims_[num_dims_ - 1];
      if (outer.stride == next.extent * next.stride &&
          outer.array_stride == next.extent * next.array_stride) {
        outer = {outer.extent * next.extent, next.stride, next.array_stride};
        continue;
      }
    }
    dims_[num_dims_++] = next;
  }
}

namespace {

constexpr uint64_t kMaxArrayElements = uint64_t{1} << 32;  // offsets have 32 bits

// What one entry of one step changes in one array: in the order of the tensor.
struct Piece {
  size_t order = 0;  // of its step
  ArrayChanges changes;
};

struct Collected {
  std::mutex mutex;
  std::vector<std::vector<Piece>> pieces;  // by array
};

Result<Changes> absolute_changes(const Delta::Entry& item) {
  DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(item.entry));
  const unsigned width = layout_of(item.entry.dtype).width;
  const uint64_t first = range.offset / width, num_elements = range.size / width;
  Changes changes;
  if (item.entry.codec == CodecId::kGaps) {
    Bytes payload = item.payload;
    DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(num_elements, &payload));
    DW_ASSIGN_OR_RETURN(changes, decode_gaps_body(header, width, payload, num_elements, nullptr));
  } else if (item.entry.codec == CodecId::kRaw && item.payload.size() == range.size) {
    changes.positions.resize(num_elements);
    std::iota(changes.positions.begin(), changes.positions.end(), uint64_t{0});
    changes.values.assign(item.payload.begin(), item.payload.end());
  } else {
    return corruption("not in absolute values");
  }
  for (uint64_t& position : changes.positions) position += first;
  return changes;
}

// Hands what lies in a window to its array.
void map_window(const Window& window, const Changes& changes, unsigned width, size_t order,
                Collected* out) {
  const WindowPlan plan(window);
  const auto begin =
      std::lower_bound(changes.positions.begin(), changes.positions.end(), plan.first());
  const auto end = std::lower_bound(begin, changes.positions.end(), plan.end());
  Piece piece{order, {}};
  piece.changes.offsets.reserve(size_t(end - begin));
  piece.changes.values.reserve(size_t(end - begin) * width);
  for (auto it = begin; it != end; ++it) {
    uint64_t offset = 0;
    if (!plan.find(*it, &offset)) continue;
    const uint8_t* const value =
        changes.values.data() + size_t(it - changes.positions.begin()) * width;
    piece.changes.offsets.push_back(uint32_t(offset));
    piece.changes.values.insert(piece.changes.values.end(), value, value + width);
  }
  if (piece.changes.offsets.empty()) return;
  const std::lock_guard lock(out->mutex);
  out->pieces[window.array].push_back(std::move(piece));
}

Status map_entry(const Delta::Entry& item, const LiveMap& map, size_t order, Collected* out) {
  const auto found = map.tensors.find(item.entry.tensor);
  if (found == map.tensors.end()) return {};  // another worker's
  const LiveMap::Tensor& tensor = found->second;
  if (tensor.dtype != item.entry.dtype || tensor.shape != item.entry.shape) {
    return base_mismatch("its dtype or shape is not the engine's");
  }
  DW_ASSIGN_OR_RETURN(const Changes changes, absolute_changes(item));
  const unsigned width = layout_of(item.entry.dtype).width;
  for (const Window& window : tensor.windows) map_window(window, changes, width, order, out);
  return {};
}

// All changes of one array in one list; of those of one element the last.
ArrayChanges join_pieces(std::vector<Piece> pieces, unsigned width) {
  if (pieces.empty()) return {};
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return a.order != b.order ? a.order < b.order
                              : a.changes.offsets.front() < b.changes.offsets.front();
  });
  size_t total = 0;
  for (const Piece& piece : pieces) total += piece.changes.offsets.size();
  ArrayChanges all;
  all.offsets.reserve(total);
  all.values.reserve(total * width);
  for (Piece& piece : pieces) {
    all.offsets.insert(all.offsets.end(), piece.changes.offsets.begin(),
                       piece.changes.offsets.end());
    all.values.insert(all.values.end(), piece.changes.values.begin(), piece.changes.values.end());
    piece.changes = {};
  }
  const auto ascends = [&] {
    return std::adjacent_find(all.offsets.begin(), all.offsets.end(), std::greater_equal<>()) ==
           all.offsets.end();
  };
  if (ascends()) return all;  // one version, in an array that has tensors as they are: the usual
  std::vector<size_t> by_offset(total);
  std::iota(by_offset.begin(), by_offset.end(), size_t{0});
  std::stable_sort(by_offset.begin(), by_offset.end(),
                   [&](size_t a, size_t b) { return all.offsets[a] < all.offsets[b]; });
  ArrayChanges sorted;
  sorted.offsets.reserve(total);
  sorted.values.reserve(total * width);
  for (size_t i = 0; i < total; ++i) {
    const size_t from = by_offset[i];
    if (i + 1 < total && all.offsets[by_offset[i + 1]] == all.offsets[from]) continue;
    sorted.offsets.push_back(all.offsets[from]);
    const auto value = all.values.begin() + ptrdiff_t(from * width);
    sorted.values.insert(sorted.values.end(), value, value + ptrdiff_t(width));
  }
  return sorted;
}

Status check_windows(const std::string& name, const LiveMap::Tensor& tensor, const LiveMap& map) {
  const auto bad = [&](size_t i, std::string_view what) {
    return invalid_argument("tensor " + quote(name) + ", window " + std::to_string(i) + ": " +
                            std::string(what));
  };
  DW_ASSIGN_OR_RETURN(const uint64_t size_bytes, tensor_size_bytes(tensor.dtype, tensor.shape));
  const unsigned width = layout_of(tensor.dtype).width;
  uint64_t num_elements = 1;
  for (const uint64_t n : tensor.shape) num_elements *= n;
  if (num_elements * width != size_bytes) {
    return unsupported("tensor " + quote(name) + ": its elements are no whole bytes, or pairs");
  }
  for (size_t i = 0; i < tensor.windows.size(); ++i) {
    const Window& window = tensor.windows[i];
    if (window.array >= map.array_elements.size()) return bad(i, "there is no such array");
    if (map.array_widths[window.array] != width) return bad(i, "the array has another width");
    const std::string_view wrong =
        window_defect(window, num_elements, map.array_elements[window.array]);
    if (!wrong.empty()) return bad(i, wrong);
  }
  return {};
}

}  // namespace

Status check_map(const LiveMap& map) {
  if (map.array_widths.size() != map.array_elements.size()) {
    return invalid_argument("there are more arrays than widths, or fewer");
  }
  for (const uint64_t n : map.array_elements) {
    if (n > kMaxArrayElements) return unsupported("an array of more than 2^32 elements");
  }
  for (const auto& [name, tensor] : map.tensors) {
    DW_RETURN_IF_ERROR(check_windows(name, tensor, map));
  }
  return {};
}

Result<MappedChanges> map_feed(const std::vector<FeedStep>& steps, const LiveMap& map,
                               unsigned threads) {
  return guard_memory("reading a feed", [&]() -> Result<MappedChanges> {
    DW_RETURN_IF_ERROR(check_map(map));
    ThreadPool pool(threads);
    Collected collected;
    std::set<std::string> changed;
    collected.pieces.resize(map.array_elements.size());
    for (size_t order = 0; order < steps.size(); ++order) {
      std::vector<PartFile> parts;
      for (const std::string& name : steps[order].parts) {
        const std::filesystem::path path = steps[order].folder / name;
        parts.push_back({path, path.string()});
      }
      DW_ASSIGN_OR_RETURN(const Delta delta, open_delta_parts(parts));
      for (const Delta::Entry& item : delta.entries) changed.insert(item.entry.tensor);
      DW_RETURN_IF_ERROR(
          parallel_try("mapping", &pool, delta.entries.size(), [&](size_t i, unsigned) {
            return map_entry(delta.entries[i], map, order, &collected).at(delta.entries[i].place);
          }));
      DW_RETURN_IF_ERROR(delta.check_unchanged());
    }
    MappedChanges changes{std::vector<ArrayChanges>(map.array_elements.size()),
                          {changed.begin(), changed.end()}};
    DW_RETURN_IF_ERROR(
        parallel_try("mapping", &pool, changes.arrays.size(), [&](size_t i, unsigned) -> Status {
          changes.arrays[i] = join_pieces(std::move(collected.pieces[i]), map.array_widths[i]);
          return {};
        }));
    return changes;
  });
}

}  // namespace deltawire
