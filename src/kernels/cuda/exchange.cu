#include "kernels/cuda/exchange.h"

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/elements.cuh"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 256;
// All loads of a thread are on their way at once. More of them, and the sectors that they fetch are
// pushed out of the second-level cache before they are written to.
constexpr unsigned kPerThread = 4;
constexpr unsigned kChunk = kThreads * kPerThread;  // changes that a thread block exchanges

template <class T>
__device__ void swap_chunk(const SwapList& list, uint64_t begin, uint32_t count) {
  const uint32_t* const offsets = list.offsets + begin;
  T* const values = static_cast<T*>(list.values) + begin;
  uint32_t at[kPerThread];
  T next[kPerThread], old[kPerThread];
#pragma unroll
  for (unsigned k = 0; k < kPerThread; ++k) {
    const uint32_t i = k * kThreads + threadIdx.x;
    at[k] = i < count ? __ldcs(offsets + i) : 0;
    next[k] = i < count ? __ldcs(values + i) : T{0};
  }
#pragma unroll
  for (unsigned k = 0; k < kPerThread; ++k) {
    const uint32_t i = k * kThreads + threadIdx.x;
    old[k] = i < count ? load_element<T>(list.data, at[k]) : T{0};
  }
#pragma unroll
  for (unsigned k = 0; k < kPerThread; ++k) {
    const uint32_t i = k * kThreads + threadIdx.x;
    if (i >= count) continue;
    store_element<T>(list.data, at[k], next[k]);
    __stcs(values + i, old[k]);
  }
}

__global__ void __launch_bounds__(kThreads)
    swap_lists(const SwapList* lists, const uint32_t* owners) {
  const SwapList& list = lists[owners[blockIdx.x]];
  const uint64_t begin = uint64_t{blockIdx.x - list.first_chunk} * kChunk;
  const uint32_t count = uint32_t(min(uint64_t{kChunk}, list.count - begin));
  switch (list.width) {
    case 1:
      return swap_chunk<uint8_t>(list, begin, count);
    case 2:
      return swap_chunk<uint16_t>(list, begin, count);
    case 4:
      return swap_chunk<uint32_t>(list, begin, count);
    default:
      return swap_chunk<unsigned long long>(list, begin, count);
  }
}

}  // namespace

Result<SwapTable> SwapTable::make(std::vector<SwapList> lists, Stream stream) {
  SwapTable table;
  std::vector<uint32_t> owners;
  for (size_t i = 0; i < lists.size(); ++i) {
    const uint64_t chunks = (lists[i].count + kChunk - 1) / kChunk;
    if (owners.size() + chunks >= uint64_t{1} << 31) {
      return unsupported("over 2^31 chunks of changes in one exchange");
    }
    lists[i].first_chunk = uint32_t(owners.size());
    owners.insert(owners.end(), chunks, uint32_t(i));
  }
  table.num_chunks_ = owners.size();
  const size_t lists_bytes = lists.size() * sizeof(SwapList);
  const size_t owners_bytes = owners.size() * sizeof(uint32_t);
  DW_ASSIGN_OR_RETURN(table.memory_, Buffer::allocate(Place::kDevice, lists_bytes + owners_bytes));
  uint8_t* const at = table.memory_.data();
  table.lists_ = reinterpret_cast<const SwapList*>(at);
  table.owners_ = reinterpret_cast<const uint32_t*>(at + lists_bytes);
  DW_RETURN_IF_ERROR(copy(at, lists.data(), lists_bytes, stream));
  DW_RETURN_IF_ERROR(copy(at + lists_bytes, owners.data(), owners_bytes, stream));
  DW_RETURN_IF_ERROR(wait(stream));
  return std::move(table);
}

Status SwapTable::swap(Stream stream) const {
  if (num_chunks_ == 0) return {};
  swap_lists<<<unsigned(num_chunks_), kThreads, 0, stream>>>(lists_, owners_);
  return launched("swap_lists");
}

}  // namespace deltawire::cuda
