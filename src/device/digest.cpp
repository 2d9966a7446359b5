// sum128 of arrays on the device, computed there.
#include <algorithm>
#include <array>

#include "device/arrays.h"
#include "device/context.h"
#include "device/sums.h"
#include "digest/finish_sums.h"

namespace deltawire::cuda {
namespace {

// With `copies`, one for each, that is also where their bytes go.
Result<std::vector<Digest>> sum_whole(Context::Impl& impl, std::span<const Contents> arrays,
                                      std::span<uint8_t* const> copies, Stream stream) {
  const UseDevice use(impl.device);
  std::vector<SumArray> opened;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Contents& contents = arrays[i];
    const std::string place = "array " + std::to_string(i);
    Result<NewKind> kind = kind_of(contents.array.dtype, contents.as);
    if (!kind.ok()) return std::move(kind).status().at(place);
    DW_RETURN_IF_ERROR(
        check_memory(contents.as, contents.array.data, contents.size_bytes).at(place));
    uint8_t* const copy = copies.empty() ? nullptr : copies[i];
    opened.push_back({contents.array.data, contents.size_bytes, 0, *kind, {}, copy});
  }
  std::vector<std::array<uint64_t, 2>> lanes(opened.size());
  const SumPass pass = copies.empty() ? SumPass::kSum : SumPass::kCopy;
  const size_t most = impl.scratch_bytes() / 4 / sizeof(SumArray);
  for (size_t begin = 0; begin < opened.size(); begin += most) {
    const size_t end = std::min(opened.size(), begin + most);
    DW_RETURN_IF_ERROR(
        sum_arrays(impl, {opened.begin() + ptrdiff_t(begin), opened.begin() + ptrdiff_t(end)}, pass,
                   stream, lanes.data() + begin));
  }
  std::vector<Digest> out;
  for (size_t i = 0; i < lanes.size(); ++i) {
    out.push_back(finish_sums(lanes[i], arrays[i].size_bytes));
  }
  return out;
}

}  // namespace

Result<std::vector<Digest>> digests_of(Context::Impl& impl, std::span<const Contents> arrays,
                                       Stream stream) {
  return sum_whole(impl, arrays, {}, stream);
}

Result<std::vector<Digest>> copy_summed(Context::Impl& impl, std::span<const Contents> arrays,
                                        std::span<uint8_t* const> copies, Stream stream) {
  return sum_whole(impl, arrays, copies, stream);
}

Result<std::vector<Digest>> Context::digests(std::span<const Contents> arrays, Stream stream) {
  return digests_of(*impl_, arrays, stream);
}

}  // namespace deltawire::cuda
