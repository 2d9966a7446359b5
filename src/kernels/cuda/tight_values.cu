// Step 3 of decoding `tight`, old values to new ones, and step 4, the writes.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/tight_decode_steps.h"
#include "kernels/cuda/tight_scan.cuh"
#include "kernels/cuda/tight_symbols.cuh"
#include "kernels/cuda/warp_bits.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

using namespace deltawire::tight;

constexpr unsigned kThreads = 128, kWarps = kThreads / kWarp;
constexpr unsigned kScatterThreads = 256;

// What the coder says of a value; the rest is raw bits.
struct ValueTokens {
  uint8_t token[kWarp], escape[kWarp], context[kWarp];
};

template <class T>
__device__ unsigned value_bits(uint32_t token, uint32_t escape) {
  if (token != kEscapeToken<T>) return kLinearSteps<T> ? 1 : 1 + token;
  const unsigned length = escape % (sizeof(T) * 8);
  return length == 0 ? 1 : length;
}

// From its bits, the sign first. False: a value that no encoder would code so.
template <class T>
__device__ bool make_value(uint32_t token, uint32_t escape, uint64_t bits, T old_value,
                           T* new_value) {
  constexpr unsigned kBits = sizeof(T) * 8;
  const bool negative = (bits & 1) != 0;
  const uint64_t raw = bits >> 1;
  if (token != kEscapeToken<T>) {
    T size;
    if constexpr (kLinearSteps<T>) {
      size = T(token + 1);
    } else {
      size = T(T{1} << token | T(raw));
    }
    *new_value = negative ? T(old_value - size) : T(old_value + size);
    return kLinearSteps<T> || ((old_value ^ *new_value) & kTopBit<T>) == 0;
  }
  const unsigned length = escape % kBits;
  const T size = length == 0 ? T{0} : T(T{1} << (length - 1) | T(raw));
  *new_value = negative ? T(old_value - size) : T(old_value + size);
  if (escape >= kBits) *new_value ^= kTopBit<T>;
  const T step = T(*new_value - old_value);
  if constexpr (kLinearSteps<T>) return magnitude(step) > kNumSteps<T>;
  return step != 0;
}

// Tokens of `count` values, one after the other: how many symbols there are depends on them.
__device__ void decode_tokens(const DecodeTable* tables, uint32_t num_contexts, uint32_t escape,
                              uint32_t count, ValueTokens* tokens, uint32_t* next, uint32_t* other,
                              const uint8_t** words) {
  const auto take = [&](const DecodeTable& table) {
    const uint32_t symbol = decode_symbol(table, next);
    if (*next < kRansLow) {
      *next = *next << 16 | word_before(*words);
      *words -= 2;
    }
    const uint32_t swapped = *next;
    *next = *other;
    *other = swapped;
    return symbol;
  };
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t token = take(tables[tokens->context[i]]);
    tokens->token[i] = uint8_t(token);
    tokens->escape[i] = token == escape ? uint8_t(take(tables[num_contexts])) : 0;
  }
}

// Old values to new ones, and the checks at a block's end. A warp for each block.
template <class T>
__global__ void __launch_bounds__(kThreads) values_of_blocks(TightDecodeWork work) {
  __shared__ ValueTokens all_tokens[kWarps];
  const unsigned lane = lane_id();
  const uint32_t index = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (index >= work.num_blocks || work.status->code != 0) return;
  ValueTokens& tokens = all_tokens[threadIdx.x / kWarp];
  const TightDecodeBlock& block = work.blocks[index];
  if (block.only_units != 0) return;
  const auto refuse = [&](PatchError error) {
    if (lane == 0) fail(work.status, error, block.array, block.number);
  };
  const TightDecodeArray& array = work.arrays[block.array];
  const DecodeTable* const tables = work.value_tables + array.first_table;
  const uint8_t* const begin = work.payload + block.bytes;
  const TightStreams from = work.streams[index];
  const uint8_t* words = begin + from.words;
  uint32_t next = from.next, other = from.other, at_bit = from.bits;
  const uint32_t max_bits = uint32_t(block.length - kStateBytes) * 8;
  T* const values = static_cast<T*>(work.values) + block.first_value;
  uint32_t done = 0;
  for (unsigned c = 0; c < kMaxClasses; ++c) {
    const bool unit = (block.unit_classes >> c & 1) != 0;
    const uint32_t end = block.end[c];
    while (done < end) {
      const uint32_t count = min(kWarp, end - done);
      const bool own = lane < count;
      const T old_value = own ? values[done + lane] : T{0};
      uint32_t token = 0, escape = 0;  // +1 or -1
      if (!unit) {
        if (own) tokens.context[lane] = array.context_of_key[KeyBits(array.keys).of(old_value)];
        __syncwarp();
        if (lane == 0) {
          decode_tokens(tables, array.num_contexts, kEscapeToken<T>, count, &tokens, &next, &other,
                        &words);
        }
        __syncwarp();
        if (own) {
          token = tokens.token[lane];
          escape = tokens.escape[lane];
        }
        const uint64_t address = reinterpret_cast<uint64_t>(words);
        words = reinterpret_cast<const uint8_t*>(__shfl_sync(kAllLanes, address, 0));
        if (words < begin) return refuse(PatchError::kValuesRunOver);
      }
      const unsigned length = !own ? 0 : unit ? 1 : value_bits<T>(token, escape);
      const uint32_t through = sum_through(length), all_bits = last_lane(through);
      if (at_bit + all_bits > max_bits) return refuse(PatchError::kValuesRunOver);
      bool good = true;
      if (own) {
        const uint64_t bits = DeviceBitReader(begin, at_bit + through - length).get_long(length);
        T new_value;
        if (unit) {
          new_value = T(old_value + 1 - 2 * uint32_t(bits));
        } else {
          good = make_value<T>(token, escape, bits, old_value, &new_value);
        }
        values[done + lane] = new_value;
      }
      if (!__all_sync(kAllLanes, good)) return refuse(PatchError::kValuesRunOver);
      at_bit += all_bits;
      done += count;
    }
  }
  if (lane != 0) return;
  if (!streams_meet(begin, at_bit, words, next, other)) {
    refuse(PatchError::kStreamsDoNotMeet);
  }
}

template <class T>
__global__ void __launch_bounds__(kScatterThreads) scatter_blocks(TightDecodeWork work) {
  if (work.status->code != 0) return;
  const TightDecodeBlock& block = work.blocks[blockIdx.x];
  if (block.only_units != 0) return;
  const uint32_t total = block.end[kMaxClasses - 1];
  const uint32_t* const positions = work.positions + block.first_change;
  const T* const values = static_cast<const T*>(work.values) + block.first_value;
  void* const data = work.arrays[block.array].data;
  // In the order in which they were found: writes that lie close together meet in the cache.
  for (uint32_t i = threadIdx.x; i < total; i += kScatterThreads) {
    const uint32_t at = work.order[block.first_value + i];
    store_element<T>(data, block.first_element + positions[at], values[at]);
  }
}

}  // namespace

Status decode_values(const TightDecodeWork& work, unsigned width, Stream stream) {
  const unsigned grid = (work.num_blocks + kWarps - 1) / kWarps;
  return with_width(width, [&]<class T>() {
    values_of_blocks<T><<<grid, kThreads, 0, stream>>>(work);
    return launched("values_of_blocks");
  });
}

Status write_values(const TightDecodeWork& work, unsigned width, Stream stream) {
  return with_width(width, [&]<class T>() {
    scatter_blocks<T><<<work.num_blocks, kScatterThreads, 0, stream>>>(work);
    return launched("scatter_blocks");
  });
}

}  // namespace deltawire::cuda
