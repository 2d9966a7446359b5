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

// Calls take(symbol, place in the symbol's share, slot) for every slot.
template <class Take>
__device__ void for_each_slot(const TableFrequencies& table, const uint32_t* start,
                              const Take& take) {
  for (uint32_t s = 0; s < table.num_symbols; ++s) {
    for (uint32_t i = threadIdx.x; i < table.frequency[s]; i += kThreads) take(s, i, start[s] + i);
  }
}

__device__ void fill(const TableFrequencies& from, const uint32_t* start, DecodeTable* to) {
  for (uint32_t s = threadIdx.x; s < from.num_symbols; s += kThreads) {
    to->range[s] = from.frequency[s] | start[s] << 16;
  }
  for_each_slot(from, start, [&](uint32_t symbol, uint32_t, uint32_t slot) {
    to->symbol_of_slot[slot] = uint8_t(symbol);
  });
}

__device__ void fill(const TableFrequencies& from, const uint32_t* start, GapTable* to) {
  for_each_slot(from, start, [&](uint32_t symbol, uint32_t place, uint32_t slot) {
    const uint32_t entry = GapTable::entry(symbol, start[symbol], from.frequency[symbol]);
    if (place == 0) to->symbols[symbol] = entry;
    if ((slot & ((1U << GapTable::kBucketBits) - 1)) == 0) {
      to->buckets[slot >> GapTable::kBucketBits] = entry;
    }
  });
}

// As RansTable::EncodeSymbol::of() does it. A symbol that does not occur is never looked up.
__device__ EncodeSymbol symbol_of(uint32_t frequency, uint32_t start) {
  if (frequency == 0) return {0, start, 0};
  if (frequency == 1) return {~uint64_t{0}, start + kProbabilityOne - 1, 1};
  return {~uint64_t{0} / frequency + 1, start, frequency};
}

__device__ void fill(const TableFrequencies& from, const uint32_t* start, EncodeTable* to) {
  for (uint32_t s = threadIdx.x; s < from.num_symbols; s += kThreads) {
    to->symbols[s] = symbol_of(from.frequency[s], start[s]);
  }
}

template <class Table>
__global__ void __launch_bounds__(kThreads) expand(const TableFrequencies* from, Table* to) {
  __shared__ uint32_t start[kMaxSymbols];
  const TableFrequencies& source = from[blockIdx.x];
  Table* const table = to + blockIdx.x;
  add_up(source, start);
  __syncthreads();
  if (threadIdx.x == 0) table->num_symbols = source.num_symbols;
  fill(source, start, table);
}

template <class Table>
Status launch(const TableFrequencies* from, Table* to, size_t count, Stream stream) {
  if (count == 0) return {};
  expand<<<unsigned(count), kThreads, 0, stream>>>(from, to);
  return launched("expand");
}

}  // namespace

Status expand_tables(const TableFrequencies* from, DecodeTable* to, size_t count, Stream stream) {
  return launch(from, to, count, stream);
}

Status expand_tables(const TableFrequencies* from, GapTable* to, size_t count, Stream stream) {
  return launch(from, to, count, stream);
}

Status expand_tables(const TableFrequencies* from, EncodeTable* to, size_t count, Stream stream) {
  return launch(from, to, count, stream);
}

}  // namespace deltawire::cuda
