// Code tables from their frequencies: a thread block for each. A table is ten times as large as
// what it is made from, and the bus is slow.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/tight_decode.h"
#include "kernels/cuda/tight_encode.h"

namespace deltawire::cuda {
namespace {

constexpr unsigned kThreads = 128;

// Where each symbol's share begins. To be followed by a barrier.
__device__ void add_up(const TableFrequencies& table, uint32_t* start) {
  if (threadIdx.x != 0) return;
  uint32_t sum = 0;
  for (uint32_t s = 0; s < table.num_symbols; ++s) {
    start[s] = sum;
    sum += table.frequency[s];
  }
}

__global__ void __launch_bounds__(kThreads) expand(const TableFrequencies* from, DecodeTable* to) {
  __shared__ uint32_t start[kMaxSymbols];
  const TableFrequencies& source = from[blockIdx.x];
  DecodeTable& table = to[blockIdx.x];
  add_up(source, start);
  __syncthreads();
  if (threadIdx.x == 0) table.num_symbols = source.num_symbols;
  for (uint32_t s = threadIdx.x; s < source.num_symbols; s += kThreads) {
    table.range[s] = source.frequency[s] | start[s] << 16;
  }
  for (uint32_t s = 0; s < source.num_symbols; ++s) {
    for (uint32_t i = threadIdx.x; i < source.frequency[s]; i += kThreads) {
      table.symbol_of_slot[start[s] + i] = uint8_t(s);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    expand_slots(const TableFrequencies* from, SlotTable* to) {
  __shared__ uint32_t start[kMaxSymbols];
  const TableFrequencies& source = from[blockIdx.x];
  SlotTable& table = to[blockIdx.x];
  add_up(source, start);
  __syncthreads();
  if (threadIdx.x == 0) table.num_symbols = source.num_symbols;
  for (uint32_t s = 0; s < source.num_symbols; ++s) {
    const uint32_t frequency = source.frequency[s];
    for (uint32_t i = threadIdx.x; i < frequency; i += kThreads) {
      table.slots[start[s] + i] = SlotTable::entry(s, i, frequency);
    }
  }
}

// As RansTable::EncodeSymbol::of() does it. A symbol that does not occur is never looked up.
__device__ EncodeSymbol symbol_of(uint32_t frequency, uint32_t start) {
  if (frequency == 0) return {0, start, 0};
  if (frequency == 1) return {~uint64_t{0}, start + kProbabilityOne - 1, 1};
  return {~uint64_t{0} / frequency + 1, start, frequency};
}

__global__ void __launch_bounds__(kThreads)
    expand_for_encoder(const TableFrequencies* from, EncodeTable* to) {
  __shared__ uint32_t start[kMaxSymbols];
  const TableFrequencies& source = from[blockIdx.x];
  EncodeTable& table = to[blockIdx.x];
  add_up(source, start);
  __syncthreads();
  if (threadIdx.x == 0) table.num_symbols = source.num_symbols;
  for (uint32_t s = threadIdx.x; s < source.num_symbols; s += kThreads) {
    table.symbols[s] = symbol_of(source.frequency[s], start[s]);
  }
}

}  // namespace

Status expand_tables(const TableFrequencies* from, DecodeTable* to, size_t count, Stream stream) {
  if (count == 0) return {};
  expand<<<unsigned(count), kThreads, 0, stream>>>(from, to);
  return launched("expand");
}

Status expand_tables(const TableFrequencies* from, SlotTable* to, size_t count, Stream stream) {
  if (count == 0) return {};
  expand_slots<<<unsigned(count), kThreads, 0, stream>>>(from, to);
  return launched("expand_slots");
}

Status expand_tables(const TableFrequencies* from, EncodeTable* to, size_t count, Stream stream) {
  if (count == 0) return {};
  expand_for_encoder<<<unsigned(count), kThreads, 0, stream>>>(from, to);
  return launched("expand_for_encoder");
}

}  // namespace deltawire::cuda
