// Lists of changes to the bytes of a block, a warp for each. Bits and symbols of 32 changes are
// made by as many lanes; only the coder's two states are one long chain each, and a lane looks
// after each.
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/check.cuh"
#include "kernels/cuda/tight_encode.h"
#include "kernels/cuda/tight_scan.cuh"
#include "kernels/cuda/warp_bits.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

using namespace deltawire::tight;

constexpr unsigned kThreads = 128, kWarps = kThreads / kWarp;
constexpr unsigned kPlaceThreads = 1024, kCopyThreads = 128;
// What one put of 32 lanes may add, and the states at the end.
constexpr uint32_t kMargin = 2 * kWarp * 4 + 16;

// A count as bits: Elias gamma for law models, else a Rice code of its distance from the mean.
struct CountBits {
  uint64_t value;
  unsigned length;
};
__device__ CountBits count_bits(bool fitted, uint32_t mean, uint32_t count) {
  if (!fitted) {
    const unsigned length = 31U - leading_zeros(count + 1);
    const uint64_t rest = (count + 1) & ((1U << length) - 1);
    return {((uint64_t{1} << length) - 1) | rest << (length + 1), 2 * length + 1};
  }
  const unsigned low_bits = rice_bits(mean);
  const uint32_t folded = count >= mean ? 2 * (count - mean) : 2 * (mean - count) - 1;
  const uint32_t prefix = folded >> low_bits;
  if (prefix >= kRiceLimit) {
    return {((uint64_t{1} << kRiceLimit) - 1) | uint64_t(count) << kRiceLimit,
            kRiceLimit + kMaxBlockLog2 + 1};
  }
  const uint64_t low = folded & ((1U << low_bits) - 1);
  return {((uint64_t{1} << prefix) - 1) | low << (prefix + 1), prefix + 1 + low_bits};
}

// In shared memory, one for each warp.
struct WarpCoder {
  BitTile bits;
  EncodeSymbol symbols[2 * kWarp];
  uint32_t words[2 * kWarp];  // 1 << 16 | word where a symbol spilled one
};

// Symbols in the order of encoding: from the last to the first. The same in all lanes but `state`.
class WarpSymbolWriter {
 public:
  __device__ WarpSymbolWriter(uint8_t* at, uint8_t* end, uint32_t num_symbols, WarpCoder* shared)
      : at_(at), end_(end), left_(num_symbols), shared_(shared) {}

  // Every lane puts up to two symbols; those of lower lanes are encoded first.
  __device__ void put(const EncodeSymbol* first, const EncodeSymbol* second) {
    const unsigned lane = lane_id();
    const uint32_t own = (first != nullptr ? 1 : 0) + (second != nullptr ? 1 : 0);
    const uint32_t through = sum_through(own), total = last_lane(through);
    uint32_t to = through - own;
    if (first != nullptr) shared_->symbols[to++] = *first;
    if (second != nullptr) shared_->symbols[to] = *second;
    __syncwarp();
    // Symbol t of the block belongs to state t mod 2; the one at j is left_ - 1 - j.
    if (lane < kNumStates) {
      for (uint32_t j = (left_ - 1 - lane) & 1; j < total; j += kNumStates) encode(j);
    }
    __syncwarp();
    write_words(total);
    left_ -= total;
  }

  __device__ bool full() const { return at_ + kMargin > end_; }

  // The two states follow the words. Returns the byte after them.
  __device__ uint8_t* finish() {
    if (lane_id() < kNumStates) {
      for (unsigned b = 0; b < 4; ++b) at_[4 * lane_id() + b] = uint8_t(state_ >> (8 * b));
    }
    return at_ + kStateBytes;
  }

 private:
  __device__ void encode(uint32_t j) {
    const EncodeSymbol symbol = shared_->symbols[j];
    const bool spill = state_ >= uint64_t(symbol.frequency) << 20;
    shared_->words[j] = spill ? 0x10000U | (state_ & 0xffff) : 0;
    const uint32_t x = spill ? state_ >> 16 : state_;
    const uint32_t quotient = uint32_t(__umul64hi(uint64_t(x), symbol.reciprocal));
    state_ = x + symbol.bias + quotient * (kProbabilityOne - symbol.frequency);
  }

  __device__ void write_words(uint32_t total) {
    for (uint32_t base = 0; base < total; base += kWarp) {
      const uint32_t j = base + lane_id();
      const uint32_t word = j < total ? shared_->words[j] : 0;
      const uint32_t spilled = __ballot_sync(kAllLanes, word != 0);
      if (word != 0) {
        uint8_t* const to = at_ + 2 * lanes_before(spilled);
        to[0] = uint8_t(word);
        to[1] = uint8_t(word >> 8);
      }
      at_ += 2 * __popc(spilled);
    }
    __syncwarp();
  }

  uint8_t *at_, *end_;
  uint32_t left_;
  uint32_t state_ = kRansLow;
  WarpCoder* shared_;
};

template <class T>
struct BlockLists {
  const TightEncodeArray& array;
  const uint32_t* ranks;
  const T *old_values, *steps;

  __device__ uint32_t gap(unsigned c, uint32_t i) const {
    const uint32_t at = array.room[c] + i;
    return i == 0 ? ranks[at] : ranks[at] - ranks[at - 1] - 1;
  }
  __device__ Step<T> step(unsigned c, uint32_t i) const {
    const uint32_t at = array.room[c] + i;
    return make_step<T>(old_values[at], steps[at]);
  }
  __device__ uint32_t context(unsigned c, uint32_t i) const {
    return array.context_of_key[KeyBits(array.keys).of(old_values[array.room[c] + i])];
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads) code_blocks(TightEncodeWork work) {
  __shared__ WarpCoder coders[kWarps];
  const unsigned lane = lane_id();
  const uint32_t index = blockIdx.x * kWarps + threadIdx.x / kWarp;
  if (index >= work.num_blocks) return;
  WarpCoder& shared = coders[threadIdx.x / kWarp];
  TightEncodeResult& result = work.results[index];
  if (result.no_room != 0 || result.total == 0) return;
  const TightEncodeBlock block = work.blocks[index];
  const TightEncodeArray& array = work.arrays[block.array];
  const unsigned num_classes = array.keys.num_classes;
  const uint32_t n = block.num_elements;
  const BlockLists<T> lists{array, work.ranks + block.first_change,
                            static_cast<const T*>(work.old_values) + block.first_change,
                            static_cast<const T*>(work.steps) + block.first_change};
  const EncodeTable* const tables = work.value_tables + array.first_table;
  uint8_t* const begin = work.out + block.out;
  uint8_t* const end = begin + array.out_bytes;
  const auto give_up = [&] {
    if (lane == 0) result.no_room = 2;
  };

  // Lane c knows class c's count and which table its gaps have.
  const bool has_class = lane < num_classes;
  const uint32_t own_count = has_class ? result.count[lane] : 0;
  const uint32_t mean = has_class ? mean_count(array.mean_codes[lane], n, kBlockLog2) : 0;
  const bool fitted = array.fitted != 0;
  const uint32_t own_q = !has_class ? 0
                         : fitted   ? block_q(array.q[lane], mean, own_count)
                                    : array.q[lane];
  const uint32_t unit_classes = result.unit_classes;

  WarpBitWriter bits(begin, &shared.bits);
  if (end - begin < kMargin) return give_up();
  bits.put(lane == 0 ? unit_classes : 0, lane == 0 ? num_classes : 0);
  const CountBits count_code = has_class ? count_bits(fitted, mean, own_count) : CountBits{0, 0};
  bits.put(count_code.value, count_code.length);
  for (unsigned c = 0; c < num_classes; ++c) {
    const uint32_t count = __shfl_sync(kAllLanes, own_count, c);
    const uint32_t escape = work.gap_tables[__shfl_sync(kAllLanes, own_q, c)].num_symbols - 1;
    for (uint32_t base = 0; base < count; base += kWarp) {
      const uint32_t i = base + lane;
      uint32_t gap = 0;
      GapToken token{0, 0};
      if (i < count) {
        gap = lists.gap(c, i);
        token = gap_token(gap);
        if (token.token >= escape) token.raw_bits = kMaxBlockLog2;
      }
      bits.put(gap & ((1U << token.raw_bits) - 1), token.raw_bits);
      if (bits.at() + kMargin > end) return give_up();
    }
  }
  uint32_t num_symbols = result.total;
  for (unsigned c = 0; c < num_classes; ++c) {
    const uint32_t count = __shfl_sync(kAllLanes, own_count, c);
    const bool unit = (unit_classes >> c & 1) != 0;
    for (uint32_t base = 0; base < count; base += kWarp) {
      const uint32_t i = base + lane;
      uint64_t value = 0;
      unsigned length = 0;
      bool escapes = false;
      if (i < count) {
        const Step<T> step = lists.step(c, i);
        value = (step.negative ? 1 : 0) | (unit ? 0 : uint64_t(step.raw) << 1);
        length = 1 + (unit ? 0 : step.raw_bits);
        escapes = !unit && step.token == kEscapeToken<T>;
      }
      bits.put(value, length);
      num_symbols += unit ? 0 : min(kWarp, count - base);
      num_symbols += __popc(__ballot_sync(kAllLanes, escapes));
      if (bits.at() + kMargin > end) return give_up();
    }
  }

  WarpSymbolWriter out(bits.finish(), end, num_symbols, &shared);
  if (out.full()) return give_up();
  for (unsigned c = num_classes; c-- > 0;) {
    if ((unit_classes >> c & 1) != 0) continue;
    const uint32_t count = __shfl_sync(kAllLanes, own_count, c);
    for (uint32_t done = 0; done < count; done += kWarp) {
      const EncodeSymbol *token = nullptr, *escape = nullptr;
      if (done + lane < count) {
        const uint32_t i = count - 1 - done - lane;
        const Step<T> step = lists.step(c, i);
        token = &tables[lists.context(c, i)].symbols[step.token];
        if (step.token == kEscapeToken<T>) {
          escape = &tables[array.num_contexts].symbols[step.escape];
        }
      }
      out.put(escape, token);
      if (out.full()) return give_up();
    }
  }
  for (unsigned c = num_classes; c-- > 0;) {
    const uint32_t count = __shfl_sync(kAllLanes, own_count, c);
    const EncodeTable& table = work.gap_tables[__shfl_sync(kAllLanes, own_q, c)];
    const uint32_t escape = table.num_symbols - 1;
    for (uint32_t done = 0; done < count; done += kWarp) {
      const EncodeSymbol* symbol = nullptr;
      if (done + lane < count) {
        const uint32_t gap = lists.gap(c, count - 1 - done - lane);
        symbol = &table.symbols[min(gap_token(gap).token, escape)];
      }
      out.put(symbol, nullptr);
      if (out.full()) return give_up();
    }
  }
  const uint8_t* const last = out.finish();
  if (lane == 0) result.num_bytes = uint32_t(last - begin);
}

// One thread block adds up the sizes of all.
__global__ void __launch_bounds__(kPlaceThreads)
    place_blocks(TightEncodeWork work, uint64_t* places) {
  using Scan = cub::BlockScan<uint64_t, kPlaceThreads>;
  __shared__ typename Scan::TempStorage storage;
  uint64_t so_far = 0;
  for (uint32_t base = 0; base < work.num_blocks; base += kPlaceThreads) {
    const uint32_t i = base + threadIdx.x;
    uint64_t before, total;
    Scan(storage).ExclusiveSum(i < work.num_blocks ? work.results[i].num_bytes : 0, before, total);
    __syncthreads();
    if (i < work.num_blocks) places[i] = so_far + before;
    so_far += total;
  }
  if (threadIdx.x == 0) places[work.num_blocks] = so_far;
}

__global__ void __launch_bounds__(kCopyThreads)
    copy_blocks(TightEncodeWork work, const uint64_t* places, uint8_t* to) {
  const uint8_t* const from = work.out + work.blocks[blockIdx.x].out;
  uint8_t* const own = to + places[blockIdx.x];
  const uint32_t size = work.results[blockIdx.x].num_bytes;
  for (uint32_t i = threadIdx.x; i < size; i += kCopyThreads) own[i] = from[i];
}

}  // namespace

Status code_tight(const TightEncodeWork& work, unsigned width, Stream stream) {
  if (work.num_blocks == 0) return {};
  const unsigned grid = (work.num_blocks + kWarps - 1) / kWarps;
  return with_width(width, [&]<class T>() {
    code_blocks<T><<<grid, kThreads, 0, stream>>>(work);
    return launched("code_blocks");
  });
}

Status gather_blocks(const TightEncodeWork& work, uint64_t* places, uint8_t* to, Stream stream) {
  if (work.num_blocks == 0) return {};
  place_blocks<<<1, kPlaceThreads, 0, stream>>>(work, places);
  DW_RETURN_IF_ERROR(launched("place_blocks"));
  copy_blocks<<<work.num_blocks, kCopyThreads, 0, stream>>>(work, places, to);
  return launched("copy_blocks");
}

}  // namespace deltawire::cuda
