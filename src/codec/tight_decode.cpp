// Compiled per target for the same reason as tight_encode.cpp.
#include "codec/tight_decode.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codec/tight_payload.h"

#define DELTAWIRE_TARGETS_OF "codec/tight_decode.cpp"
#include "codec/foreach_target.h"

HWY_BEFORE_NAMESPACE();
namespace deltawire::tight {
namespace HWY_NAMESPACE {
namespace {

// Symbols decoded between two looks at the limits. The padding around a block is wide enough for
// what this many can run over.
constexpr uint32_t kBatch = 8;
static_assert(kBatch * (kMaxBlockLog2 + 8) / 8 + 16 < kBlockPadding);
static_assert(kBatch * 2 * (64 + 2) / 8 + 16 < kBlockPadding);

Status bad_block(const char* what) { return corruption(std::string("tight block: ") + what); }

bool inside(const Streams& in) { return in.words >= in.begin && in.bits.num_bits() <= in.num_bits; }

uint64_t decode(Streams* in, const RansTable& table) {
  const uint64_t info = rans_decode(table, in->next, in->words);
  std::swap(in->next, in->other);
  return info;
}

// Gaps to ascending ranks below n.
bool read_ranks(Streams* streams, const RansTable& table, uint32_t count, size_t n,
                Prefetcher* prefetcher, uint32_t* ranks) {
  Streams in = *streams;  // in registers
  Prefetcher ahead = *prefetcher;
  uint32_t rank = 0;
  const auto one = [&](uint32_t i) {
    const uint64_t info = decode(&in, table);
    rank += symbol_base(info) + uint32_t(in.bits.get(symbol_raw_bits(info)));
    ranks[i] = rank++;
    ahead.step();
  };
  uint32_t i = 0;
  while (count - i >= kBatch) {
    for (uint32_t end = i + kBatch; i < end; ++i) one(i);
    if (!inside(in) || rank > n) return false;
  }
  while (i < count) one(i++);
  *streams = in;
  *prefetcher = ahead;
  return inside(in) && rank <= n;
}

// The mirror image of make_step in tight_encode.cpp. False: a value that would not be coded so.
template <class T>
bool read_value(Streams* in, const Coder& coder, T old_value, T* new_value) {
  constexpr unsigned kBits = sizeof(T) * 8;
  const ClassSplit& split = coder.model.split;
  const uint8_t key = uint8_t(old_value >> split.key_shift) & split.key_mask;
  const uint32_t token = symbol_base(decode(in, *coder.values_of_key[key]));
  if (token != kEscapeToken<T>) {
    const bool negative = in->bits.get(1) != 0;
    T size;
    if constexpr (kLinearSteps<T>) {
      size = T(token + 1);
    } else {
      size = T(T{1} << token | T(in->bits.get_long(token)));
    }
    *new_value = negative ? T(old_value - size) : T(old_value + size);
    return kLinearSteps<T> || ((old_value ^ *new_value) & kTopBit<T>) == 0;
  }
  const uint32_t escape = symbol_base(decode(in, coder.escapes));
  const unsigned length = escape % kBits;
  const bool negative = in->bits.get(1) != 0;
  const T size = length == 0 ? T{0} : T(T{1} << (length - 1) | T(in->bits.get_long(length - 1)));
  *new_value = negative ? T(old_value - size) : T(old_value + size);
  if (escape >= kBits) *new_value ^= kTopBit<T>;
  const T step = T(*new_value - old_value);
  if constexpr (kLinearSteps<T>) return magnitude(step) > kNumSteps<T>;
  return step != 0;
}

// Old values to new ones, in place.
template <class T>
bool read_signs(Streams* in, uint32_t count, uint8_t* values) {
  for (uint32_t i = 0; i < count;) {
    uint64_t signs = in->bits.peek();
    const uint32_t batch = std::min(count - i, 56U);
    in->bits.skip(batch);
    for (const uint32_t end = i + batch; i < end; ++i, signs >>= 1) {
      const T value = load_le<T>(values + i * sizeof(T));
      store_le(values + i * sizeof(T), T(value + 1 - 2 * (signs & 1)));
    }
    if (!inside(*in)) return false;
  }
  return true;
}

template <class T>
bool read_values(Streams* streams, const Coder& coder, uint32_t count, uint8_t* values,
                 Prefetcher* prefetcher) {
  Streams in = *streams;  // in registers
  Prefetcher ahead = *prefetcher;
  bool canonical = true;
  for (uint32_t i = 0; i < count;) {
    for (const uint32_t end = std::min(count, i + kBatch); i < end; ++i) {
      T value;
      canonical &= read_value(&in, coder, load_le<T>(values + i * sizeof(T)), &value);
      store_le(values + i * sizeof(T), value);
      ahead.step();
    }
    if (!inside(in)) return false;
  }
  *streams = in;
  *prefetcher = ahead;
  return canonical;
}

}  // namespace

template <class T>
Status open(const Coder& coder, Bytes block, size_t n, Prefetcher* ahead, OpenBlock* out) {
  out->count = 0;
  out->head = {};
  std::fill_n(out->next, kMaxClasses, 0);
  std::fill_n(out->base, kMaxClasses, 0);
  if (block.empty()) return {};
  if (block.size() <= kStateBytes) return bad_block("too short for its coder states");
  out->padded.resize(block.size() + 2 * kBlockPadding);
  uint8_t* const begin = out->padded.data() + kBlockPadding;
  std::memcpy(begin, block.data(), block.size());
  std::memset(begin + block.size(), 0, kBlockPadding);
  const uint8_t* const words_end = begin + block.size() - kStateBytes;
  Streams in{BitReader(begin),
             words_end,
             load_le<uint32_t>(words_end),
             load_le<uint32_t>(words_end + 4),
             begin,
             (block.size() - kStateBytes) * 8};
  if (in.next < kRansLow || in.other < kRansLow)
    return bad_block("a coder state is below its range");

  const Model& model = coder.model;
  BlockHead& head = out->head;
  if (const char* wrong = read_block_head(model, n, &in.bits, &head)) return bad_block(wrong);
  const uint32_t total = head.end[kMaxClasses - 1];
  if (out->positions.size() < total) out->positions.resize(total);
  if (out->values.size() < total * sizeof(T)) out->values.resize(total * sizeof(T));
  for (int c = 0; c < model.split.num_classes; ++c) {
    out->next[c] = out->first(c);
    const uint32_t count = head.end[c] - out->next[c];
    const uint32_t mean = mean_count(model.mean_codes[c], n, model.tiles.block_log2);
    const RansTable& table =
        gap_table(model.fitted ? block_q(model.q[c], mean, count) : model.q[c]);
    if (!read_ranks(&in, table, count, n, ahead, out->positions.data() + out->next[c])) {
      return bad_block("gaps exceed the block");
    }
  }
  out->streams = in;
  out->count = total;
  return {};
}

// What a scan of one tile found. `place` finds a position in the rows.
template <class T, class Place>
void locate_in(const ClassSplit& split, const SegmentIndex& index, const uint8_t* data,
               ptrdiff_t row_bytes, const Place& place, uint32_t offset, uint32_t stride,
               uint16_t* located, OpenBlock* block) {
  uint32_t* const positions = block->positions.data();
  uint8_t* const values = block->values.data();
  for (uint8_t c = 0; c < split.num_classes; ++c) {
    const uint32_t from = block->next[c], end = block->head.end[c],
                   limit = block->base[c] + index.total[c];
    uint32_t to = from;
    while (to < end && positions[to] < limit) ++to;
    kernels().locate(index, split, c, positions + from, block->base[c], to - from, located);
    for (uint32_t i = from; i < to; ++i) {
      const RowFinder::Place at = place(located[i - from]);
      positions[i] = offset + at.row * stride + at.column;
      std::memcpy(values + i * sizeof(T),
                  data + ptrdiff_t(at.row) * row_bytes + at.column * sizeof(T), sizeof(T));
    }
    block->next[c] = to;
    block->base[c] = limit;
  }
}

template <class T>
void locate(const Coder& coder, ScanRows old_rows, ScanShape shape, uint32_t offset,
            uint32_t stride, LocateScratch* scratch, OpenBlock* blocks) {
  const ClassSplit& split = coder.model.split;
  kernels().index[width_index(sizeof(T))](old_rows, shape, split, scratch->index);
  for (size_t tile = 0; tile < shape.num_tiles(); ++tile) {
    const auto* data =
        static_cast<const uint8_t*>(old_rows.data) + tile * shape.tile_columns * sizeof(T);
    const auto locate_with = [&](const auto& place) {
      locate_in<T>(split, scratch->index[tile], data, old_rows.stride, place, offset, stride,
                   scratch->located, &blocks[tile]);
    };
    if (shape.rows == 1) {
      locate_with([](uint32_t position) { return RowFinder::Place{0, position}; });
    } else {
      locate_with(RowFinder(shape.rows, shape.columns_of(tile)));
    }
  }
}

template <class T>
Status finish(const Coder& coder, Prefetcher* ahead, OpenBlock* block) {
  if (block->count == 0) return {};
  const int num_classes = coder.model.split.num_classes;
  const BlockHead& head = block->head;
  // A rank that its class does not reach in this block was never found.
  if (!std::equal(block->next, block->next + num_classes, head.end)) {
    return bad_block("a rank exceeds the elements of its class");
  }
  Streams in = block->streams;
  for (int c = 0; c < num_classes; ++c) {
    const uint32_t first = block->first(c), count = head.end[c] - first;
    uint8_t* values = block->values.data() + first * sizeof(T);
    const bool unit = (head.unit_classes >> c & 1) != 0;
    if (unit ? !read_signs<T>(&in, count, values)
             : !read_values<T>(&in, coder, count, values, ahead)) {
      return bad_block("values exceed the block or are not in canonical form");
    }
  }
  // The streams must meet, and both states must be back where the encoder began.
  const uint64_t num_bits = in.bits.num_bits();
  const unsigned unused = unsigned(-num_bits & 7);
  if (in.words != in.begin + (num_bits + 7) / 8 || in.bits.get(unused) != 0) {
    return bad_block("the two streams do not meet");
  }
  if (in.next != kRansLow || in.other != kRansLow)
    return bad_block("a coder state does not return to its start");
  return {};
}

template <class T>
constexpr DecodeOps ops() {
  return {open<T>, locate<T>, finish<T>};
}

DecodeTable decode_table() {
  return {ops<uint8_t>(), ops<uint16_t>(), ops<uint32_t>(), ops<uint64_t>()};
}

}  // namespace HWY_NAMESPACE
}  // namespace deltawire::tight
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltawire::tight {

HWY_EXPORT(decode_table);

const DecodeOps& decode_ops(size_t width) {
  static const DecodeTable kTable = HWY_DYNAMIC_DISPATCH(decode_table)();
  return kTable[width_index(width)];
}

}  // namespace deltawire::tight
#endif
