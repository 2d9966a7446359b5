// Step 1 of decoding `tight`: gaps to ranks.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/team.cuh"
#include "kernels/cuda/tight_decode_steps.h"
#include "kernels/cuda/tight_symbols.cuh"

namespace deltawire::cuda {
namespace {

using namespace deltawire::tight;

constexpr unsigned kThreads = 128;
// So few registers that it finds room beside the scans of other blocks.
constexpr unsigned kResident = 7;
// Lanes that look after a block. Its symbols are one lane's, the rest is shared out.
constexpr unsigned kTeam = 8, kTeams = kThreads / kTeam;
using Lanes = Team<kTeam>;
constexpr unsigned kEach = 8, kTile = kTeam * kEach;  // symbols to a lane; in one go
static_assert(2 * kTile + 16 < kPayloadPadding);

// In shared memory, one for each team.
struct GapTile {
  GapTable table;  // of the class that is decoded
  alignas(8) uint8_t tokens[kTile];
  uint32_t ranks[kTile + kTeam];  // a lane's eight, then one that is left out: other banks

  static __device__ unsigned place(unsigned i) { return i + i / kEach; }
};

// The work of all lanes of a team.
__device__ void copy_table(const GapTable& from, GapTable* to) {
  constexpr unsigned kChunks = sizeof(GapTable) / sizeof(uint4);
  const uint4* const chunks = reinterpret_cast<const uint4*>(&from);
#pragma unroll 1
  for (unsigned i = Lanes::member(); i < kChunks; i += kTeam) {
    reinterpret_cast<uint4*>(to)[i] = chunks[i];
  }
}

// Where the decoding of a block's gaps is. The same in all lanes of a team.
struct GapStream {
  const TightDecodeBlock* block;
  const uint8_t* begin;
  uint32_t done, class_end, rank, at_bit;
  unsigned next_class;

  __device__ bool finished() const { return done == block->end[kMaxClasses - 1]; }
  // To the next class with changes, when one is done.
  __device__ void enter_class(const GapTable* gap_tables, GapTable* table) {
    if (done != class_end) return;
    while (block->end[next_class] == done) ++next_class;
    class_end = block->end[next_class];
    copy_table(gap_tables[block->q[next_class]], table);
    rank = 0;
  }
};

// One lane's work.
__device__ void decode_tokens(const GapTable& table, uint32_t count, uint8_t* tokens, Coder* out) {
  Coder coder = *out;
  uint32_t i = 0;
  for (; i + 1 < count; i += 2) {
    const uint32_t two = coder.words.two();
    const uint32_t token = decode_symbol(table, &coder.next);
    const uint32_t token2 = decode_symbol(table, &coder.other);
    *reinterpret_cast<uint16_t*>(tokens + i) = uint16_t(token | token2 << 8);
    coder.refill_both(two);
  }
  if (i < count) tokens[i] = uint8_t(coder.decode(table));
  *out = coder;
}

// From the tokens of a tile to its ranks, which go to `ranks`. False: they run over.
__device__ bool make_ranks(uint32_t count, GapTile* tile, GapStream* stream, uint32_t* ranks) {
  const unsigned member = Lanes::member(), first = member * kEach;
  const uint2 tokens = *reinterpret_cast<const uint2*>(tile->tokens + first);
  const uint32_t escape = tile->table.num_symbols - 1;
  uint32_t gaps[kEach], raw_bits[kEach], own_bits = 0;
#pragma unroll
  for (unsigned j = 0; j < kEach; ++j) {
    const bool own = first + j < count;
    const uint32_t token = own ? (j < 4 ? tokens.x : tokens.y) >> 8 * (j % 4) & 0xff : 0;
    unsigned bits;
    gaps[j] = gap_base(token, &bits);
    if (own && token == escape) {
      gaps[j] = 0;
      bits = kMaxBlockLog2;
    }
    raw_bits[j] = bits;
    own_bits += bits;
  }
  const uint32_t bits_through = Lanes::sum_through(own_bits);
  const uint32_t all_bits = Lanes::of(bits_through, kTeam - 1);
  const uint32_t max_bits = uint32_t(stream->block->length - kStateBytes) * 8;
  const bool fits = stream->at_bit + all_bits <= max_bits;
  uint32_t at_bit = stream->at_bit + bits_through - own_bits, sum = 0;
#pragma unroll
  for (unsigned j = 0; j < kEach; ++j) {
    if (fits && raw_bits[j] != 0) gaps[j] += bits_at(stream->begin, at_bit, raw_bits[j]);
    at_bit += raw_bits[j];
    if (first + j < count) sum += gaps[j] + 1;
    gaps[j] = sum;
  }
  // Gaps are under 2^21: the sum of 64 does not wrap.
  const uint32_t through = Lanes::sum_through(sum);
  const uint32_t before = stream->rank + through - sum - 1;
#pragma unroll
  for (unsigned j = 0; j < kEach; ++j) tile->ranks[GapTile::place(first + j)] = before + gaps[j];
  stream->at_bit += all_bits;
  stream->rank += Lanes::of(through, kTeam - 1);
  __syncwarp();
#pragma unroll
  for (unsigned k = 0; k < kTile; k += kTeam) {  // neighbours to neighbouring lanes
    if (k + member < count) ranks[k + member] = tile->ranks[GapTile::place(k + member)];
  }
  return fits && stream->rank <= stream->block->num_elements;
}

// Where only signs follow, the block's end is known.
__device__ void check_end(const TightDecodeWork& work, const GapStream& stream,
                          const Coder& coder) {
  const TightDecodeBlock& block = *stream.block;
  const uint32_t max_bits = uint32_t(block.length - kStateBytes) * 8;
  const uint32_t at_bit = stream.at_bit + block.end[kMaxClasses - 1];
  if (at_bit > max_bits) {
    fail(work.status, PatchError::kValuesRunOver, block.array, block.number);
  } else if (!streams_meet(stream.begin, at_bit, coder)) {
    fail(work.status, PatchError::kStreamsDoNotMeet, block.array, block.number);
  }
}

__global__ void __launch_bounds__(kThreads, kResident) gaps_to_ranks(TightDecodeWork work) {
  __shared__ GapTile all_tiles[kTeams];
  GapTile& tile = all_tiles[threadIdx.x / kTeam];
  const unsigned member = Lanes::member();
  const uint32_t index = blockIdx.x * kTeams + threadIdx.x / kTeam;
  // All lanes of a warp stay to the end: what some do together needs them.
  const bool has_block = index < work.num_blocks;
  const TightDecodeBlock& block = work.blocks[has_block ? index : 0];
  GapStream stream{};
  stream.block = &block;
  stream.begin = work.payload + block.bytes;
  stream.at_bit = block.bits_at;
  const uint8_t* const states = stream.begin + block.length - kStateBytes;
  Coder coder{WordReader(states), bits_at(states, 0, 32), bits_at(states, 32, 32)};
  bool good = has_block;
  if (has_block && min(coder.next, coder.other) < kRansLow) {
    if (member == 0) fail(work.status, PatchError::kBadState, block.array, block.number);
    good = false;
  }
  uint32_t* const ranks = work.ranks + block.first_change;
  while (true) {
    const bool busy = good && !stream.finished();
    if (!__any_sync(kAllLanes, busy)) break;
    uint32_t count = 0;
    if (busy) {
      stream.enter_class(work.gap_tables, &tile.table);
      count = min(kTile, stream.class_end - stream.done);
    }
    __syncwarp();
    if (member == 0 && busy) decode_tokens(tile.table, count, tile.tokens, &coder);
    __syncwarp();
    const bool fits = make_ranks(count, &tile, &stream, ranks + stream.done);
    const bool inside = Lanes::of(int(coder.words.at() >= stream.begin), 0) != 0;
    stream.done += count;
    if (busy && !(fits && inside)) {
      if (member == 0) fail(work.status, PatchError::kGapsRunOver, block.array, block.number);
      good = false;
    }
    __syncwarp();  // before the next tokens take the place of these
  }
  if (!has_block) return;
  TightStreams& to = work.streams[index];
  if (member == 0) {
    to.bits = stream.at_bit;
    to.words = uint32_t(coder.words.at() - stream.begin);
    to.next = coder.next;
    to.other = coder.other;
  }
  if (block.only_units == 0) return;
  for (unsigned c = member; c < kMaxClasses; c += kTeam) {
    to.signs[c] = stream.at_bit + (c == 0 ? 0 : block.end[c - 1]);
  }
  if (good && member == 0) check_end(work, stream, coder);
}

}  // namespace

Status decode_gaps(const TightDecodeWork& work, Stream stream) {
  gaps_to_ranks<<<(work.num_blocks + kTeams - 1) / kTeams, kThreads, 0, stream>>>(work);
  return launched("gaps_to_ranks");
}

}  // namespace deltawire::cuda
