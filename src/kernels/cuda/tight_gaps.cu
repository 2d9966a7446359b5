// Step 1 of decoding `tight`: gaps to ranks.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/tight_decode_steps.h"
#include "kernels/cuda/tight_symbols.cuh"
#include "kernels/cuda/warp_bits.cuh"

namespace deltawire::cuda {
namespace {

using namespace deltawire::tight;

constexpr unsigned kThreads = 128, kWarps = kThreads / kWarp;
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

// Where only signs follow, the block's end is known.
__device__ void check_end(const TightDecodeWork& work, const GapStream& stream, uint32_t other) {
  const TightDecodeBlock& block = *stream.block;
  const uint32_t max_bits = uint32_t(block.length - kStateBytes) * 8;
  const uint32_t at_bit = stream.at_bit + block.end[kMaxClasses - 1];
  if (at_bit > max_bits) {
    fail(work.status, PatchError::kValuesRunOver, block.array, block.number);
  } else if (!streams_meet(stream.begin, at_bit, stream.words, stream.state, other)) {
    fail(work.status, PatchError::kStreamsDoNotMeet, block.array, block.number);
  }
}

__global__ void __launch_bounds__(kThreads) gaps_to_ranks(TightDecodeWork work) {
  __shared__ uint8_t all_tokens[kWarps][kTogether][kTile];
  const unsigned lane = lane_id(), warp = threadIdx.x / kWarp, pair = lane / kNumStates;
  const uint32_t first_index = (blockIdx.x * kWarps + warp) * kTogether;
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
    if (good && stream.block->only_units != 0) check_end(work, stream, other);
  }
}

}  // namespace

Status decode_gaps(const TightDecodeWork& work, Stream stream) {
  constexpr unsigned kBlocks = kWarps * kTogether;
  gaps_to_ranks<<<(work.num_blocks + kBlocks - 1) / kBlocks, kThreads, 0, stream>>>(work);
  return launched("gaps_to_ranks");
}

}  // namespace deltawire::cuda
