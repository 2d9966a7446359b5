// Step 3 of decoding `tight`: of coded classes, old values to new ones.
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/status.cuh"
#include "kernels/cuda/team.cuh"
#include "kernels/cuda/tight_decode_steps.h"
#include "kernels/cuda/tight_scan.cuh"
#include "kernels/cuda/tight_tokens.cuh"
#include "kernels/cuda/widths.h"

namespace deltawire::cuda {
namespace {

using namespace deltawire::tight;

constexpr unsigned kThreads = 64;
// Lanes that look after a block. Its symbols are one lane's, the rest is shared out.
constexpr unsigned kTeam = 8, kTeams = kThreads / kTeam;
using Lanes = Team<kTeam>;
constexpr unsigned kEach = kTokenTile / kTeam;  // changes of a tile to a lane

// In shared memory, one for each team.
template <class T>
struct TeamMemory {
  static constexpr bool kTables = kLinearSteps<T>;
  SmallTable<kNumValueTokens<T>> contexts[kTables ? kMaxContexts : 1];
  SmallTable<kNumEscapes<T>> escapes;
  TokenTile tile;

  // To be followed by a barrier.
  __device__ TokenTables<T> tables(const DecodeTable* from, unsigned num_contexts) {
    if constexpr (kTables) {
      const unsigned member = Lanes::member();
      for (unsigned v = 0; v < num_contexts; ++v) contexts[v].fill(from[v], member, kTeam);
      escapes.fill(from[num_contexts], member, kTeam);
      return {contexts, &escapes};
    } else {
      return {from, from + num_contexts};
    }
  }
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

// Where the classes of a block and their bits are. The same in all lanes of a team.
struct ClassCursor {
  const TightDecodeBlock* block;
  uint32_t* signs;  // to be filled in
  unsigned next_class;
  uint32_t at_bit;
  uint32_t left;  // changes of a coded class

  // To the next coded class, when one is done: what lies between are signs.
  __device__ void enter_class(bool first_of_team) {
    while (left == 0 && next_class < kMaxClasses) {
      const unsigned c = next_class++;
      const uint32_t count = block->end[c] - (c == 0 ? 0 : block->end[c - 1]);
      if ((block->unit_classes >> c & 1) == 0) {
        left = count;
      } else {
        if (first_of_team) signs[c] = at_bit;
        at_bit += count;
      }
    }
  }
};

// Also looks at the ends of blocks. A team for each block.
template <class T>
__global__ void __launch_bounds__(kThreads) values_of_blocks(TightDecodeWork work) {
  __shared__ TeamMemory<T> all_memory[kTeams];
  const unsigned member = Lanes::member();
  const uint32_t wanted = blockIdx.x * kTeams + threadIdx.x / kTeam;
  // All lanes of a warp stay to the end: what some do together needs them.
  const uint32_t index = min(wanted, work.num_blocks - 1);
  const TightDecodeBlock& block = work.blocks[index];
  bool good = wanted < work.num_blocks && block.only_units == 0;
  if (!__any_sync(kAllLanes, good) || __any_sync(kAllLanes, work.status->code != 0)) return;

  TeamMemory<T>& memory = all_memory[threadIdx.x / kTeam];
  TokenTile& tile = memory.tile;
  const TightDecodeArray& array = work.arrays[block.array];
  const KeyBits keys(array.keys);
  const TokenTables<T> tables =
      memory.tables(work.value_tables + array.first_table, array.num_contexts);
  if (member == 0) {
    for (unsigned i = kTokenTile; i < sizeof tile.context; ++i) tile.context[i] = 0;
  }
  const TightStreams& from = work.streams[index];
  const uint8_t* const begin = work.payload + block.bytes;
  const uint32_t max_bits = uint32_t(block.length - kStateBytes) * 8;
  Coder coder{WordReader(begin + from.words), from.next, from.other};
  ClassCursor cursor{&block, work.streams[index].signs, 0, from.bits, 0};
  const uint32_t num_values = block.end[kMaxClasses - 1] - unit_changes_before(block, kMaxClasses);
  T* const values = static_cast<T*>(work.values) + block.first_value;
  uint32_t done = 0;
  T old_values[kEach];
  const auto load = [&](uint32_t first, T* to) {
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) {
      const uint32_t i = first + k * kTeam + member;
      to[k] = good && i < num_values ? values[i] : T{0};
    }
  };
  load(0, old_values);
  while (true) {
    if (good) cursor.enter_class(member == 0);
    const uint32_t count = good ? min(kTokenTile, cursor.left) : 0;
    if (!__any_sync(kAllLanes, count != 0)) break;
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) {
      const unsigned i = k * kTeam + member;
      tile.context[i] = i < count ? array.context_of_key[keys.of(old_values[k])] : 0;
    }
    __syncwarp();
    T next_values[kEach];  // on their way while this tile is decoded
    load(done + count, next_values);
    if (member == 0 && count != 0) decode_tokens<T>(tables, count, &tile, &coder);
    __syncwarp();
    uint32_t token[kEach], escape[kEach], length[kEach], at_bit[kEach];
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) {
      const unsigned i = k * kTeam + member;
      token[k] = i < count ? tile.token[i] : 0;
      escape[k] = token[k] == kEscapeToken<T> ? tile.escape[i] : 0;
      length[k] = i < count ? value_bits<T>(token[k], escape[k]) : 0;
      at_bit[k] = Lanes::sum_through(length[k]);
    }
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) {
      const uint32_t all_bits = Lanes::of(at_bit[k], kTeam - 1);
      at_bit[k] += cursor.at_bit - length[k];
      cursor.at_bit += all_bits;
    }
    const bool inside = Lanes::of(int(coder.words.at() >= begin), 0) != 0;
    bool sound = inside && cursor.at_bit <= max_bits;
    if (sound) {
#pragma unroll
      for (unsigned k = 0; k < kEach; ++k) {
        const unsigned i = k * kTeam + member;
        if (i >= count) continue;
        DeviceBitReader reader(begin, at_bit[k]);
        const uint64_t bits = sizeof(T) <= 4 ? reader.get(length[k]) : reader.get_long(length[k]);
        T new_value;
        sound = make_value<T>(token[k], escape[k], bits, old_values[k], &new_value) && sound;
        values[done + i] = new_value;
      }
    }
    sound = Lanes::all(sound);
    if (good && !sound) {
      if (member == 0) fail(work.status, PatchError::kValuesRunOver, block.array, block.number);
      good = false;
    }
    done += count;
    cursor.left -= count;
#pragma unroll
    for (unsigned k = 0; k < kEach; ++k) old_values[k] = next_values[k];
    __syncwarp();
  }
  if (good && member == 0 && !streams_meet(begin, cursor.at_bit, coder)) {
    fail(work.status, PatchError::kStreamsDoNotMeet, block.array, block.number);
  }
}

}  // namespace

Status decode_values(const TightDecodeWork& work, unsigned width, Stream stream) {
  const unsigned grid = (work.num_blocks + kTeams - 1) / kTeams;
  return with_width(width, [&]<class T>() {
    values_of_blocks<T><<<grid, kThreads, 0, stream>>>(work);
    return launched("values_of_blocks");
  });
}

}  // namespace deltawire::cuda
