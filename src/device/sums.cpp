// What boxes on the device add to their tensors' sums.
#include <algorithm>
#include <array>

#include "base/bytes.h"
#include "codec/cuda/device_parts.h"
#include "device/context.h"
#include "digest/sums.h"
#include "format/tensor_digest.h"
#include "kernels/cuda/sum.h"
#include "kernels/sum_math.h"

namespace deltawire::cuda {
namespace {

constexpr uint64_t kSummedPiece = uint64_t{16} << 20;  // fetched at a time

// None if words or segments are cut.
std::optional<SumPlace> place_of(const BoxRows& rows) {
  using sum128::kSegmentBytes;
  SumPlace place;
  if (rows.count() == 0) return place;
  const uint64_t first = rows.position(0), last = rows.position(rows.count() - 1);
  if (first % kSegmentBytes != 0) return {};
  place.first = first / kSegmentBytes;
  if (rows.count() == 1) {
    return rows.row_bytes() % sum128::kWordBytes == 0 ? std::optional(place) : std::nullopt;
  }
  const uint64_t pitch = rows.position(1) - first;
  // Positions are equidistant if the last one matches the pitch.
  if (last - first != (rows.count() - 1) * pitch) return {};
  if (rows.row_bytes() % kSegmentBytes != 0 || pitch % kSegmentBytes != 0) return {};
  place.row = rows.row_bytes() / kSegmentBytes;
  place.pitch = pitch / kSegmentBytes;
  return place;
}

Result<Sums> sum_on_host(Context::Impl& impl, const Contents& contents, const BoxRows& rows,
                         Stream stream) {
  Sums sums;
  DW_ASSIGN_OR_RETURN(
      uint8_t* const host,
      impl.workspace.get(Workspace::kHostBytes, std::min(kSummedPiece, contents.size_bytes)));
  for (uint64_t at = 0; at < contents.size_bytes; at += kSummedPiece) {
    const std::span<uint8_t> piece(host, std::min(kSummedPiece, contents.size_bytes - at));
    DW_RETURN_IF_ERROR(fetch_bytes(impl.lane(), contents, at, piece, stream));
    add_contents(rows, piece, at, &sums);
  }
  return sums;
}

using SumLanes = std::array<uint64_t, 2>;

// In one pass. Sets the first chunks of the arrays.
Status sum_at_once(Context::Impl& impl, std::span<SumArray> arrays, SumPass pass, Stream stream,
                   SumLanes* lanes) {
  uint64_t num_chunks = 0;
  for (SumArray& array : arrays) {
    array.first_chunk = num_chunks;
    num_chunks += num_sum_chunks(array.num_bytes);
  }
  SumArray* arrays_at = nullptr;
  uint64_t* sums_at = nullptr;
  const size_t num = arrays.size(), sums_bytes = num * sizeof(*lanes);
  const auto carve_all = [&](Carve carve) {
    arrays_at = carve.take<SumArray>(num);
    sums_at = carve.take<uint64_t>(2 * num);
    return carve.size();
  };
  DW_ASSIGN_OR_RETURN(uint8_t* const scratch,
                      impl.workspace.get(Workspace::kSlots, carve_all(Carve(nullptr))));
  carve_all(Carve(scratch));
  DW_RETURN_IF_ERROR(copy(arrays_at, arrays.data(), num * sizeof(SumArray), stream));
  DW_RETURN_IF_ERROR(fill_zero(sums_at, sums_bytes, stream));
  DW_RETURN_IF_ERROR(add_sums(arrays_at, uint32_t(num), num_chunks, sums_at, stream, pass));
  DW_ASSIGN_OR_RETURN(uint8_t* const host, impl.workspace.get(Workspace::kHostBytes, sums_bytes));
  DW_RETURN_IF_ERROR(copy(host, sums_at, sums_bytes, stream));
  DW_RETURN_IF_ERROR(wait(stream));
  for (size_t i = 0; i < num; ++i) {
    lanes[i] = load_le<SumLanes>(host + i * sizeof(*lanes));
  }
  return {};
}

// As many at a time as the scratch has room for.
Result<std::vector<SumLanes>> sum_arrays(Context::Impl& impl, std::span<SumArray> arrays,
                                         SumPass pass, Stream stream) {
  std::vector<SumLanes> lanes(arrays.size());
  const size_t most = impl.scratch_bytes() / 4 / sizeof(SumArray);
  for (size_t begin = 0; begin < arrays.size(); begin += most) {
    const size_t count = std::min(most, arrays.size() - begin);
    DW_RETURN_IF_ERROR(
        sum_at_once(impl, arrays.subspan(begin, count), pass, stream, lanes.data() + begin));
  }
  return lanes;
}

// All of the array.
Result<SumArray> sum_array(const Contents& contents) {
  DW_ASSIGN_OR_RETURN(const NewKind kind, kind_of(contents.array.dtype, contents.as));
  DW_RETURN_IF_ERROR(check_memory(contents.as, contents.array.data, contents.size_bytes));
  return SumArray{contents.array.data, contents.size_bytes, 0, kind, {}, nullptr};
}

}  // namespace

Result<std::vector<Sums>> Context::sums(std::span<const BoxContents> boxes, Stream stream) {
  const UseDevice use(impl_->device);
  std::vector<Sums> sums(boxes.size());
  std::vector<SumArray> arrays;
  std::vector<size_t> there;  // boxes of those arrays
  for (size_t i = 0; i < boxes.size(); ++i) {
    const Contents& contents = boxes[i].contents;
    const std::string place = "array " + std::to_string(i);
    Result<SumArray> array = sum_array(contents);
    if (!array.ok()) return std::move(array).status().at(place);
    DW_RETURN_IF_ERROR(check_box(boxes[i].box, contents.as, boxes[i].shape).at(place));
    const BoxRows rows(boxes[i].box, contents.as, boxes[i].shape);
    if (rows.count() * rows.row_bytes() != contents.size_bytes) {
      return invalid_argument(place + ": " + std::to_string(contents.size_bytes) +
                              " bytes were given, its box has " +
                              std::to_string(rows.count() * rows.row_bytes()));
    }
    if (const std::optional<SumPlace> found = place_of(rows)) {
      array->place = *found;
      arrays.push_back(*array);
      there.push_back(i);
    } else {
      DW_ASSIGN_OR_RETURN(sums[i], sum_on_host(*impl_, contents, rows, stream));
    }
  }
  DW_ASSIGN_OR_RETURN(const std::vector<SumLanes> lanes,
                      sum_arrays(*impl_, arrays, SumPass::kSum, stream));
  for (size_t i = 0; i < there.size(); ++i) {
    sums[there[i]].add_lanes(lanes[i], boxes[there[i]].contents.size_bytes);
  }
  return sums;
}

// sum128 of arrays on the device, computed there.

Result<std::vector<Digest>> digests_of(Context::Impl& impl, std::span<const Contents> arrays,
                                       Stream stream, std::span<uint8_t* const> copies) {
  const UseDevice use(impl.device);
  std::vector<SumArray> opened;
  for (size_t i = 0; i < arrays.size(); ++i) {
    Result<SumArray> array = sum_array(arrays[i]);
    if (!array.ok()) return std::move(array).status().at("array " + std::to_string(i));
    if (!copies.empty()) array->copy_to = copies[i];
    opened.push_back(*array);
  }
  DW_ASSIGN_OR_RETURN(
      const std::vector<SumLanes> lanes,
      sum_arrays(impl, opened, copies.empty() ? SumPass::kSum : SumPass::kCopy, stream));
  std::vector<Digest> out;
  for (size_t i = 0; i < lanes.size(); ++i) {
    out.push_back(finish_sums(lanes[i], arrays[i].size_bytes));
  }
  return out;
}

Result<std::vector<Digest>> Context::digests(std::span<const Contents> arrays, Stream stream) {
  return digests_of(*impl_, arrays, stream);
}

}  // namespace deltawire::cuda
