#include "kernels/cuda/tight_decode.h"

#include "kernels/cuda/bits.cuh"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/staged_rows.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/tight_scan.cuh"
#include "kernels/cuda/warp_bits.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

using namespace deltawire::tight;

constexpr unsigned kCodingThreads = 128, kCodingWarps = kCodingThreads / kWarp;
constexpr unsigned kScanThreads = 128, kScanWarps = kScanThreads / kWarp;
constexpr unsigned kScatterThreads = 256;

__global__ void expand(const TableFrequencies* from, DecodeTable* to) {
  const TableFrequencies& source = from[blockIdx.x];
  DecodeTable& table = to[blockIdx.x];
  __shared__ uint32_t start[kMaxSymbols];
  if (threadIdx.x == 0) {
    uint32_t sum = 0;
    for (uint32_t s = 0; s < source.num_symbols; ++s) {
      start[s] = sum;
      table.range[s] = source.frequency[s] | sum << 16;
      sum += source.frequency[s];
    }
    table.num_symbols = source.num_symbols;
  }
  __syncthreads();
  for (uint32_t s = 0; s < source.num_symbols; ++s) {
    for (uint32_t i = threadIdx.x; i < source.frequency[s]; i += blockDim.x) {
      table.symbol_of_slot[start[s] + i] = uint8_t(s);
    }
  }
}

// One state's step. The caller refills it where it has fallen below its range.
__device__ uint32_t decode_symbol(const DecodeTable& table, uint32_t* state) {
  const uint32_t slot = *state & (kProbabilityOne - 1);
  const uint32_t symbol = table.symbol_of_slot[slot];
  const uint32_t range = table.range[symbol];
  *state = (range & 0xffff) * (*state >> kProbabilityBits) + slot - (range >> 16);
  return symbol;
}
__device__ uint32_t word_before(const uint8_t* words) {
  return uint32_t(words[-1]) << 8 | words[-2];
}

// `count` bits, up to 32, from bit `at` on. Looks at up to seven bytes more.
__device__ uint32_t bits_at(const uint8_t* begin, uint32_t at, unsigned count) {
  return DeviceBitReader(begin, at).get(count);
}

constexpr unsigned kTile = 2 * kWarp;  // symbols that are decoded in one go

// Several blocks share a warp, so that more than two lanes have something to do: lanes 2k and 2k +
// 1 hold the states of block k. Symbols take turns between the two.
constexpr unsigned kTogether = 4;

// Where the decoding of a block's gaps is. The same in both lanes of a pair but `state`.
struct GapStream {
  const TightDecodeBlock* block;
  const DecodeTable* table;
  const uint8_t *begin, *words;
  uint32_t state;
  uint32_t done, class_end, rank, at_bit;
  unsigned next_class;

  __device__ bool finished() const { return done == block->end[kMaxClasses - 1]; }
  // To the next class with changes, when one is done.
  __device__ void enter_class(const DecodeTable* gap_tables) {
    if (done != class_end) return;
    while (block->end[next_class] == done) ++next_class;
    class_end = block->end[next_class];
    table = &gap_tables[block->q[next_class]];
    rank = 0;
  }
};

// Decodes up to kTile symbols of each pair's block, all of one class. All lanes of the warp take
// part; those without a block have a count of 0.
__device__ void decode_tile(GapStream* stream, uint32_t count, uint8_t* tokens) {
  const unsigned lane = lane_id();
  const unsigned turn =
      (lane ^ stream->done) & 1;  // 0: this lane's symbol is the earlier of a pair
  const uint8_t* at = stream->words;
  uint32_t state = stream->state;
  const uint32_t most = __reduce_max_sync(kAllLanes, count);
  for (uint32_t pair = 0; pair < most; pair += 2) {
    const bool busy = pair < count;
    uint32_t near = 0, far = 0;
    if (busy) {
      near = word_before(at);
      far = word_before(at - 2);
    }
    bool low = false;
    if (pair + turn < count) {
      tokens[pair + turn] = uint8_t(decode_symbol(*stream->table, &state));
      low = state < kRansLow;
    }
    const uint32_t lows = __ballot_sync(kAllLanes, low) >> (lane & ~1U) & 3;
    const bool other_low = (lows >> ((lane & 1) ^ 1) & 1) != 0;
    if (low) state = state << 16 | (turn == 1 && other_low ? far : near);
    at -= 2 * __popc(lows);
  }
  stream->words = at;
  stream->state = state;
  __syncwarp();
}

// Step 1: gaps to ranks.
__global__ void __launch_bounds__(kCodingThreads) decode_gaps(TightDecodeWork work) {
  __shared__ uint8_t all_tokens[kCodingWarps][kTogether][kTile];
  const unsigned lane = lane_id(), warp = threadIdx.x / kWarp, pair = lane / kNumStates;
  const uint32_t first_index = (blockIdx.x * kCodingWarps + warp) * kTogether;
  if (first_index >= work.num_blocks) return;
  const uint32_t index = first_index + pair;
  const bool has_block = pair < kTogether && index < work.num_blocks;
  GapStream stream{};
  stream.block = &work.blocks[has_block ? index : first_index];
  stream.begin = work.payload + stream.block->bytes;
  stream.words = stream.begin + stream.block->length - kStateBytes;
  stream.at_bit = stream.block->bits_at;
  stream.state = bits_at(stream.words, 32 * (lane & 1), 32);
  bool good = has_block;
  if (has_block && stream.state < kRansLow) {
    fail(work.status, PatchError::kBadState, stream.block->array, stream.block->number);
    good = false;
  }
  // Both lanes of a pair go on, or neither.
  good = (__ballot_sync(kAllLanes, good) >> (lane & ~1U) & 3) == 3;

  while (true) {
    const bool busy = good && !stream.finished();
    const uint32_t all_busy = __ballot_sync(kAllLanes, busy);
    if (all_busy == 0) break;
    uint32_t count = 0;
    if (busy) {
      stream.enter_class(work.gap_tables);
      count = min(kTile, stream.class_end - stream.done);
    }
    decode_tile(&stream, count, all_tokens[warp][pair % kTogether]);
    // One block after the other, all lanes together.
    for (unsigned k = 0; k < kTogether; ++k) {
      const unsigned from = k * kNumStates;
      if ((all_busy >> from & 1) == 0) continue;
      const TightDecodeBlock& block = work.blocks[first_index + k];
      const uint8_t* const begin = work.payload + block.bytes;
      const uint32_t max_bits = uint32_t(block.length - kStateBytes) * 8;
      const uint32_t tile_count = __shfl_sync(kAllLanes, count, from);
      const uint32_t done = __shfl_sync(kAllLanes, stream.done, from);
      const uint32_t escape =
          __shfl_sync(kAllLanes, busy ? stream.table->num_symbols - 1 : 0, from);
      uint32_t at_bit = __shfl_sync(kAllLanes, stream.at_bit, from);
      uint32_t rank = __shfl_sync(kAllLanes, stream.rank, from);
      bool fits = true;
      for (uint32_t base = 0; base < tile_count && fits; base += kWarp) {
        const bool own = base + lane < tile_count;
        const uint32_t token = own ? all_tokens[warp][k][base + lane] : 0;
        unsigned raw_bits = 0;
        uint32_t gap = gap_base(token, &raw_bits);
        if (token == escape) {
          gap = 0;
          raw_bits = kMaxBlockLog2;
        }
        if (!own) raw_bits = 0;
        const uint32_t bits_through = sum_through(raw_bits), all_bits = last_lane(bits_through);
        fits = at_bit + all_bits <= max_bits;
        if (!fits) break;
        if (raw_bits != 0) gap += bits_at(begin, at_bit + bits_through - raw_bits, raw_bits);
        at_bit += all_bits;
        // Gaps are under 2^21: the sum of 32 does not wrap.
        const uint32_t through = sum_through(own ? gap + 1 : 0);
        if (own) work.positions[block.first_change + done + base + lane] = rank + through - 1;
        rank += last_lane(through);
        fits = rank <= block.num_elements;
      }
      if (pair == k) {
        stream.at_bit = at_bit;
        stream.rank = rank;
        stream.done += count;
        if (!fits || stream.words < stream.begin) {
          fail(work.status, PatchError::kGapsRunOver, block.array, block.number);
          good = false;
        }
      }
    }
    __syncwarp();
  }
  const uint32_t other = __shfl_xor_sync(kAllLanes, stream.state, 1);
  if (has_block && (lane & 1) == 0) {
    // `next` is the state of the next symbol.
    const bool odd = (stream.done & 1) != 0;
    work.streams[index] = {stream.at_bit, uint32_t(stream.words - stream.begin),
                           odd ? other : stream.state, odd ? stream.state : other};
  }
}

template <class T>
using DecodeStep = StepOf<sizeof(T) <= 2   ? 64
                          : sizeof(T) == 4 ? 32
                                           : 16>;

// In shared memory, one for each warp.
template <class T>
struct LocateMemory {
  using Step = DecodeStep<T>;
  using Rows = StagedRows<sizeof(T), Step::kLaneElements>;
  Rows rows[2];  // of this step and of the next
  WarpScan<Step> scan;
};

// The element of class c that has `rank` others of its class before it in this step of `count`.
template <class T>
__device__ uint32_t locate(const LocateMemory<T>& memory, const TightKeys& keys, unsigned buffer,
                           uint32_t count, unsigned c, uint32_t rank) {
  using Step = DecodeStep<T>;
  const auto& scan = memory.scan;
  const auto& rows = memory.rows[buffer];
  unsigned owner = 0;
#pragma unroll
  for (unsigned d = kWarp / 2; d != 0; d /= 2) {
    owner += scan.before[c][owner + d] <= rank ? d : 0;
  }
  rank -= scan.before[c][owner];
  unsigned group = 0;
  for (; group < Step::kGroups - 1; ++group) {
    const uint32_t here = scan.group_counts[group][owner] >> (4 * c) & 15;
    if (rank < here) break;
    rank -= here;
  }
  const uint32_t first = owner * Step::kLaneElements + group * Step::kGroupElements;
  const uint32_t wanted = 1U << (4 * c);
  uint32_t mask = 0;  // elements of the group that are of this class
#pragma unroll
  for (unsigned j = 0; j < Step::kGroupElements; ++j) {
    const T element = rows.template element<T>(first + j);
    const bool same = scan.one_hot[key_of(keys, element)] == wanted && first + j < count;
    mask |= (same ? 1U : 0U) << j;
  }
  for (; rank > 0; --rank) mask &= mask - 1;
  return first + __ffs(int(mask)) - 1;
}

// Step 2: ranks to positions, a warp for each block. Four lanes look after each class.
template <class T>
__global__ void __launch_bounds__(kScanThreads) locate_ranks(TightDecodeWork work) {
  using Step = DecodeStep<T>;
  __shared__ LocateMemory<T> memories[kScanWarps];
  const uint32_t index = blockIdx.x * kScanWarps + threadIdx.x / kWarp;
  if (index >= work.num_blocks || work.status->code != 0) return;
  LocateMemory<T>& memory = memories[threadIdx.x / kWarp];
  const TightDecodeBlock& block = work.blocks[index];
  const TightDecodeArray& array = work.arrays[block.array];
  const TightKeys& keys = array.keys;
  prepare_scan(keys, &memory.scan);

  const uint64_t begin = block.first_element, end = begin + block.num_elements;
  const bool aligned = is_aligned16(array.data);  // blocks begin at multiples of 4,096 elements
  const auto fetch = [&](uint64_t step, unsigned buffer) {
    if (step < end) {
      memory.rows[buffer].fetch(array.data, step, end, aligned && step + Step::kElements <= end);
    }
    commit_fetch();
  };
  constexpr unsigned kSlots = kWarp / kMaxClasses;
  const unsigned c = lane_id() / kSlots, slot = lane_id() % kSlots;
  uint32_t* const ranks = work.positions + block.first_change;
  T* const values = static_cast<T*>(work.values) + block.first_change;
  uint32_t* const order = work.order + block.first_change;
  uint32_t placed = 0;
  uint32_t at = (c == 0 ? 0 : block.end[c - 1]) + slot;
  const uint32_t last = block.end[c];
  const auto candidate = [&] { return at < last ? ranks[at] : ~0U; };
  uint32_t wanted = candidate(), seen = 0;
  unsigned buffer = 0;
  fetch(begin, buffer);
  for (uint64_t step = begin; step < end; step += Step::kElements, buffer ^= 1) {
    fetch(step + Step::kElements, buffer ^ 1);
    await_fetch<1>();
    const uint32_t count = uint32_t(min(end - step, uint64_t{Step::kElements}));
    uint32_t groups[Step::kGroups];
    count_groups<T, Step>(memory.rows[buffer], count, keys, memory.scan, groups);
    const StepTotals totals = finish_scan<Step>(groups, &memory.scan);
    const uint32_t limit = seen + totals.of_class(c);
    while (true) {
      const bool hit = wanted < limit;
      const uint32_t hits = __ballot_sync(kAllLanes, hit);
      if (hits == 0) break;
      if (hit) {
        const uint32_t found = locate<T>(memory, keys, buffer, count, c, wanted - seen);
        ranks[at] = uint32_t(step - begin) + found;
        values[at] = memory.rows[buffer].template element<T>(found);
        order[placed + lanes_before(hits)] = at;
      }
      placed += __popc(hits);
      const uint32_t own = hits >> (c * kSlots) & ((1U << kSlots) - 1);
      if (own != 0) {
        at += __popc(own);
        wanted = candidate();
      }
      if (!__any_sync(kAllLanes, own == (1U << kSlots) - 1)) break;
    }
    seen = limit;
    __syncwarp();
  }
  // Ranks that their class does not reach in this block are left over.
  if (slot == 0 && at < last) {
    fail(work.status, PatchError::kRankNotReached, block.array, block.number);
  }
}

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

// Step 3: old values to new ones, and the checks at a block's end. A warp for each block.
template <class T>
__global__ void __launch_bounds__(kCodingThreads) decode_values(TightDecodeWork work) {
  __shared__ ValueTokens all_tokens[kCodingWarps];
  const unsigned lane = lane_id();
  const uint32_t index = blockIdx.x * kCodingWarps + threadIdx.x / kWarp;
  if (index >= work.num_blocks || work.status->code != 0) return;
  ValueTokens& tokens = all_tokens[threadIdx.x / kWarp];
  const TightDecodeBlock& block = work.blocks[index];
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
  T* const values = static_cast<T*>(work.values) + block.first_change;
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
        if (own) tokens.context[lane] = array.context_of_key[key_of(array.keys, old_value)];
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
  const uint32_t unused = -at_bit & 7;
  if (words != begin + (at_bit + 7) / 8 || bits_at(begin, at_bit, unused) != 0 ||
      next != kRansLow || other != kRansLow) {
    refuse(PatchError::kStreamsDoNotMeet);
  }
}

// Step 4.
template <class T>
__global__ void __launch_bounds__(kScatterThreads) scatter_blocks(TightDecodeWork work) {
  if (work.status->code != 0) return;
  const TightDecodeBlock& block = work.blocks[blockIdx.x];
  const uint32_t total = block.end[kMaxClasses - 1];
  const uint32_t* const positions = work.positions + block.first_change;
  const T* const values = static_cast<const T*>(work.values) + block.first_change;
  void* const data = work.arrays[block.array].data;
  // In the order in which they were found: writes that lie close together meet in the cache.
  for (uint32_t i = threadIdx.x; i < total; i += kScatterThreads) {
    const uint32_t at = work.order[block.first_change + i];
    store_element<T>(data, block.first_element + positions[at], values[at]);
  }
}

template <class T>
Status decode(const TightDecodeWork& work, Stream stream) {
  const unsigned together = kCodingWarps * kTogether;
  const unsigned gaps = (work.num_blocks + together - 1) / together;
  const unsigned values = (work.num_blocks + kCodingWarps - 1) / kCodingWarps;
  const unsigned scanning = (work.num_blocks + kScanWarps - 1) / kScanWarps;
  decode_gaps<<<gaps, kCodingThreads, 0, stream>>>(work);
  DW_RETURN_IF_ERROR(launched("decode_gaps"));
  locate_ranks<T><<<scanning, kScanThreads, 0, stream>>>(work);
  DW_RETURN_IF_ERROR(launched("locate_ranks"));
  decode_values<T><<<values, kCodingThreads, 0, stream>>>(work);
  return launched("decode_values");
}

template <class T>
Status scatter(const TightDecodeWork& work, Stream stream) {
  scatter_blocks<T><<<work.num_blocks, kScatterThreads, 0, stream>>>(work);
  return launched("scatter_blocks");
}

}  // namespace

Status expand_tables(const TableFrequencies* from, DecodeTable* to, size_t count, Stream stream) {
  if (count == 0) return {};
  expand<<<unsigned(count), 128, 0, stream>>>(from, to);
  return launched("expand");
}

Status decode_tight(const TightDecodeWork& work, unsigned width, Stream stream) {
  if (work.num_blocks == 0) return {};
  return with_width(width, [&]<class T>() { return decode<T>(work, stream); });
}

Status scatter_tight(const TightDecodeWork& work, unsigned width, Stream stream) {
  if (work.num_blocks == 0) return {};
  return with_width(width, [&]<class T>() { return scatter<T>(work, stream); });
}

}  // namespace deltawire::cuda
