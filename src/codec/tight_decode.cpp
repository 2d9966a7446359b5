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

// The two streams of a block and the coder states. `next` is the state of the next symbol.
struct Streams {
  BitReader bits;
  const uint8_t* words;
  uint32_t next, other;
  const uint8_t* begin;  // of the block
  uint64_t num_bits;     // that the block could hold at most

  bool inside() const { return words >= begin && bits.num_bits() <= num_bits; }
  uint64_t decode(const RansTable& table) {
    const uint64_t info = rans_decode(table, next, words);
    std::swap(next, other);
    return info;
  }
};

// Gaps to ascending ranks below n.
bool read_ranks(Streams* streams, const RansTable& table, uint32_t count, size_t n,
                Prefetcher* prefetcher, uint32_t* ranks) {
  Streams in = *streams;  // in registers
  Prefetcher ahead = *prefetcher;
  uint32_t rank = 0;
  const auto one = [&](uint32_t i) {
    const uint64_t info = in.decode(table);
    rank += symbol_base(info) + uint32_t(in.bits.get(symbol_raw_bits(info)));
    ranks[i] = rank++;
    ahead.step();
  };
  uint32_t i = 0;
  while (count - i >= kBatch) {
    for (uint32_t end = i + kBatch; i < end; ++i) one(i);
    if (!in.inside() || rank > n) return false;
  }
  while (i < count) one(i++);
  *streams = in;
  *prefetcher = ahead;
  return in.inside() && rank <= n;
}

// Ranks to positions within the block, and the old values there.
template <class T>
bool locate_all(const Coder& coder, const uint8_t* data, size_t n, const uint32_t* first,
                const uint32_t* end, DecodeScratch* scratch) {
  const Kernels& k = kernels();
  const ClassSplit& split = coder.model.split;
  uint32_t at_target[kMaxClasses], base[kMaxClasses] = {};
  std::copy_n(first, kMaxClasses, at_target);
  uint32_t* const positions = scratch->positions.data();
  uint8_t* const values = scratch->values.data();
  for (size_t at = 0; at < n; at += kSegmentElements) {
    const uint8_t* segment = data + at * sizeof(T);
    k.index[width_index(sizeof(T))](segment, std::min(kSegmentElements, n - at), split,
                                    &scratch->index);
    for (uint8_t c = 0; c < split.num_classes; ++c) {
      const uint32_t from = at_target[c], limit = base[c] + scratch->index.total[c];
      uint32_t to = from;
      while (to < end[c] && positions[to] < limit) ++to;
      k.locate(scratch->index, split, c, positions + from, base[c], to - from, scratch->located);
      for (uint32_t i = from; i < to; ++i) {
        const uint32_t found = scratch->located[i - from];
        positions[i] = uint32_t(at) + found;
        std::memcpy(values + i * sizeof(T), segment + found * sizeof(T), sizeof(T));
      }
      at_target[c] = to;
      base[c] = limit;
    }
  }
  // A rank that its class does not reach in this block was never found.
  return std::equal(at_target, at_target + split.num_classes, end);
}

// The mirror image of make_step in tight_encode.cpp. False: a value that would not be coded so.
template <class T>
bool read_value(Streams* in, const Coder& coder, T old_value, T* new_value) {
  constexpr unsigned kBits = sizeof(T) * 8;
  const ClassSplit& split = coder.model.split;
  const uint8_t key = uint8_t(old_value >> split.key_shift) & split.key_mask;
  const uint32_t token = symbol_base(in->decode(*coder.values_of_key[key]));
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
  const uint32_t escape = symbol_base(in->decode(coder.escapes));
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
    if (!in->inside()) return false;
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
    if (!in.inside()) return false;
  }
  *streams = in;
  *prefetcher = ahead;
  return canonical;
}

}  // namespace

template <class T>
Status decode_block(const Coder& coder, Bytes block, const uint8_t* data, size_t n,
                    const uint8_t* data_end, DecodeScratch* scratch) {
  scratch->count = 0;
  if (block.empty()) return {};
  if (block.size() <= kStateBytes) return bad_block("too short for its coder states");
  scratch->padded.resize(block.size() + 2 * kBlockPadding);
  uint8_t* const begin = scratch->padded.data() + kBlockPadding;
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
  const int num_classes = model.split.num_classes;
  BlockHead head;
  if (const char* wrong = read_block_head(model, n, &in.bits, &head)) return bad_block(wrong);
  uint32_t first[kMaxClasses] = {};
  const uint32_t* const end = head.end;
  std::copy_n(end, kMaxClasses - 1, first + 1);
  const uint32_t total = end[kMaxClasses - 1], unit_classes = head.unit_classes;
  if (scratch->positions.size() < total) scratch->positions.resize(total);
  if (scratch->values.size() < total * sizeof(T)) scratch->values.resize(total * sizeof(T));
  const uint8_t* const block_end = data + n * sizeof(T);
  Prefetcher ahead(data, block_end);
  for (int c = 0; c < num_classes; ++c) {
    const uint32_t count = end[c] - first[c];
    const uint32_t mean = mean_count(model.mean_codes[c], n, model.block_log2);
    const RansTable& table =
        gap_table(model.fitted ? block_q(model.q[c], mean, count) : model.q[c]);
    if (!read_ranks(&in, table, count, n, &ahead, scratch->positions.data() + first[c])) {
      return bad_block("gaps run over the block");
    }
  }
  if (!locate_all<T>(coder, data, n, first, end, scratch)) {
    return bad_block("a rank is not reached by its class");
  }
  ahead = Prefetcher(block_end, data_end);
  for (int c = 0; c < num_classes; ++c) {
    const uint32_t count = end[c] - first[c];
    uint8_t* values = scratch->values.data() + first[c] * sizeof(T);
    const bool unit = (unit_classes >> c & 1) != 0;
    if (unit ? !read_signs<T>(&in, count, values)
             : !read_values<T>(&in, coder, count, values, &ahead)) {
      return bad_block("values run over the block or are coded in a way no encoder does");
    }
  }
  // The streams must meet, and both states must be back where the encoder began.
  const uint64_t num_bits = in.bits.num_bits();
  const unsigned unused = unsigned(-num_bits & 7);
  if (in.words != begin + (num_bits + 7) / 8 || in.bits.get(unused) != 0) {
    return bad_block("its two streams do not meet");
  }
  if (in.next != kRansLow || in.other != kRansLow)
    return bad_block("a coder state does not return to its start");
  scratch->count = total;
  return {};
}

DecodeTable decode_table() {
  return {decode_block<uint8_t>, decode_block<uint16_t>, decode_block<uint32_t>,
          decode_block<uint64_t>};
}

}  // namespace HWY_NAMESPACE
}  // namespace deltawire::tight
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltawire::tight {

HWY_EXPORT(decode_table);

DecodeBlock decode_block(size_t width) {
  static const DecodeTable kTable = HWY_DYNAMIC_DISPATCH(decode_table)();
  return kTable[width_index(width)];
}

}  // namespace deltawire::tight
#endif
