// Compiled once for plain machines and, on x86, once more with BMI2: coding is made of variable
// shifts, which cost three instructions without it.
#include "codec/tight_encode.h"

#include <algorithm>
#include <cstring>

#define DELTAWIRE_TARGETS_OF "codec/tight_encode.cpp"
#include "codec/foreach_target.h"

HWY_BEFORE_NAMESPACE();

namespace deltawire::tight {
namespace HWY_NAMESPACE {
namespace {

template <class T>
uint8_t key_of(const ClassSplit& split, T value) {
  return uint8_t(value >> split.key_shift) & split.key_mask;
}

void put_count(BitWriter* bits, const Model& model, int c, size_t n, uint32_t count) {
  if (!model.fitted) {  // Elias gamma
    const unsigned length = 31U - unsigned(std::countl_zero(count + 1));
    bits->put((uint64_t{1} << length) - 1, length + 1);
    bits->put((count + 1) & ((1U << length) - 1), length);
    return;
  }
  const uint32_t mean = mean_count(model.mean_codes[c], n, model.tiles.block_log2);
  const unsigned low_bits = rice_bits(mean);
  const uint32_t folded = count >= mean ? 2 * (count - mean) : 2 * (mean - count) - 1;
  const uint32_t prefix = folded >> low_bits;
  if (prefix < kRiceLimit) {
    bits->put((uint64_t{1} << prefix) - 1, prefix + 1);
    bits->put(folded & ((1U << low_bits) - 1), low_bits);
  } else {
    bits->put((uint64_t{1} << kRiceLimit) - 1, kRiceLimit);
    bits->put(count, kMaxBlockLog2 + 1);
  }
}

using SymbolList = const RansTable::EncodeSymbol**;

// One symbol and a few raw bits per change. Returns zero if, and only if, every step is +1 or -1: a
// class of such needs no tokens for its steps, only signs.
template <class T>
T put_gaps(const Change<T>* change, uint32_t count, const RansTable& table, BitWriter* out,
           SymbolList symbol, Prefetcher* prefetcher) {
  BitWriter bits = *out;
  Prefetcher ahead = *prefetcher;
  const uint32_t escape = table.num_symbols - 1;
  T others = 0;
  for (uint32_t i = 0; i < count; ++i) {
    ahead.step();
    const uint32_t gap = change[i].gap;
    GapToken token = gap_token(gap);
    if (token.token >= escape) token = {escape, kMaxBlockLog2};
    bits.put(gap & ((1U << token.raw_bits) - 1), token.raw_bits);
    symbol[i] = &table.encode[token.token];
    others |= T(change[i].step + 1) & T(~T{2});
  }
  *prefetcher = ahead;
  *out = bits;
  return others;
}

template <class T>
void put_signs(const Change<T>* change, const Change<T>* end, BitWriter* bits) {
  while (change < end) {
    const unsigned batch = unsigned(std::min<ptrdiff_t>(end - change, 32));
    uint64_t signs = 0;
    for (unsigned i = 0; i < batch; ++i) {
      signs |= uint64_t(change[i].step >> (sizeof(T) * 8 - 1)) << i;
    }
    bits->put(signs, batch);
    change += batch;
  }
}

template <class T>
SymbolList put_values(const Coder& coder, const Change<T>* change, const Change<T>* end,
                      BitWriter* out, SymbolList symbol, Prefetcher* prefetcher) {
  BitWriter bits = *out;
  Prefetcher ahead = *prefetcher;
  const ClassSplit split = coder.model.split;
  for (; change < end; ++change) {
    ahead.step();
    const RansTable& table = *coder.values_of_key[key_of(split, change->old_value)];
    const Step<T> step = make_step(change->old_value, change->step);
    *symbol++ = &table.encode[step.token];
    bits.put(step.negative, 1);
    if (step.token == kEscapeToken<T>) *symbol++ = &coder.escapes.encode[step.escape];
    if (step.raw_bits != 0) bits.put_long(step.raw, step.raw_bits);
  }
  *prefetcher = ahead;
  *out = bits;
  return symbol;
}

// Symbols from the last to the first; returns how many bytes of words came out.
size_t code_symbols(SymbolList begin, SymbolList end, uint32_t* states, uint8_t* buffer,
                    Prefetcher* prefetcher) {
  Prefetcher ahead = *prefetcher;
  uint32_t state0 = kRansLow, state1 = kRansLow;
  uint8_t* words = buffer;
  if ((end - begin) % 2 != 0) rans_encode(**--end, state0, words);
  while (end != begin) {
    end -= 2;
    ahead.step();
    rans_encode(*end[1], state1, words);
    rans_encode(*end[0], state0, words);
  }
  *prefetcher = ahead;
  states[0] = state0;
  states[1] = state1;
  return size_t(words - buffer);
}

}  // namespace

template <class T>
void find_strips(ScanShape shape, ptrdiff_t old_stride, ptrdiff_t new_stride,
                 CollectScratch<T>* scratch) {
  if (shape == scratch->shape && old_stride == scratch->old_stride &&
      new_stride == scratch->new_stride) {
    return;
  }
  scratch->shape = shape;
  scratch->old_stride = old_stride;
  scratch->new_stride = new_stride;
  for (size_t i = 0; i < shape.first_strip(shape.num_tiles()); ++i) {
    const ScanShape::Strip at = shape.strip(i);
    const size_t column = at.column * sizeof(T);
    scratch->strips[i] = {uint32_t(at.row * size_t(old_stride) + column),
                          uint32_t(at.row * size_t(new_stride) + column),
                          uint32_t(at.tile * kMaxClasses)};
  }
}

// Blocks side by side are scanned as one. The rank of an element in its block is its rank in the
// scan, less what the blocks before have in all of their rows.
template <class T>
void collect(const KeySplit& split, ScanRows old_rows, ScanRows new_rows, ScanShape shape,
             CollectScratch<T>* scratch, BlockChanges<T>* out) {
  const Kernels& k = kernels();
  const SegmentIndex& index = scratch->index;
  const uint16_t* const positions = scratch->positions;
  const size_t found = k.index_diff[width_index(sizeof(T))](old_rows, new_rows, shape, split.split,
                                                            &scratch->index, scratch->positions);
  find_strips(shape, old_rows.stride, new_rows.stride, scratch);
  const auto* const old_bytes = static_cast<const uint8_t*>(old_rows.data);
  const auto* const new_bytes = static_cast<const uint8_t*>(new_rows.data);
  for (size_t i = 0; i < found; ++i) {
    const StripPlace at = scratch->strips[positions[i] / kStripElements];
    const size_t column = positions[i] % kStripElements * sizeof(T);
    const T old_value = load_le<T>(old_bytes + at.old_at + column);
    const T new_value = load_le<T>(new_bytes + at.new_at + column);
    const uint8_t c = split.class_of_key[key_of(split.split, old_value)];
    scratch->changes[i] = {0, old_value, T(new_value - old_value)};
    scratch->classes[i] = c;
    scratch->lists[i] = uint8_t(at.tile + c);
  }
  k.rank(index, split.split, positions, scratch->classes, found, scratch->ranks);

  const size_t tiles = shape.num_tiles();
  ClassCounts before[kMaxScanTiles + 1];
  uint32_t next[kMaxScanTiles * kMaxClasses];  // behind the last change, as ranks of the scan
  k.counts_before(index, shape, before);
  for (size_t tile = 0; tile < tiles; ++tile) {
    for (size_t c = 0; c < kMaxClasses; ++c) {
      const uint32_t offset = out[tile].population[c] - before[tile][c];
      next[tile * kMaxClasses + c] = out[tile].next_rank[c] - offset;
      out[tile].population[c] = offset + before[tile + 1][c];
    }
  }
  for (size_t i = 0; i < found; ++i) {
    const uint32_t list = scratch->lists[i], rank = scratch->ranks[i];
    Change<T> change = scratch->changes[i];
    change.gap = rank - next[list];
    next[list] = rank + 1;
    out[list / kMaxClasses].add(list % kMaxClasses, change);
  }
  for (size_t tile = 0; tile < tiles; ++tile) {
    for (size_t c = 0; c < kMaxClasses; ++c) {
      const uint32_t offset = out[tile].population[c] - before[tile + 1][c];
      out[tile].next_rank[c] = next[tile * kMaxClasses + c] + offset;
    }
  }
}

template <class T>
void count_values(const BlockChanges<T>& changes, const ClassSplit& split, ValueStats* stats) {
  for (int c = 0; c < split.num_classes; ++c) {
    for (const Change<T>& change : changes.of_class(c)) {
      const Step<T> step = make_step(change.old_value, change.step);
      ++stats->tokens[key_of(split, change.old_value)][step.token];
      if (step.token == kEscapeToken<T>) ++stats->escapes[step.escape];
    }
  }
}

template <class T>
void code_block(const Coder& coder, const BlockChanges<T>& changes, size_t n, Prefetcher* ahead,
                CodeScratch* scratch, std::vector<uint8_t>* out) {
  const size_t total = changes.total();
  if (total == 0) return;
  const Model& model = coder.model;
  const int num_classes = model.split.num_classes;
  const size_t most_bits = total * (kMaxBlockLog2 + 2 + 8 * sizeof(T)) + 64 * kMaxClasses;
  if (scratch->bits.size() < most_bits / 8 + 16) scratch->bits.resize(most_bits / 4);
  if (scratch->symbols.size() < total * 3) {
    scratch->symbols.resize(total * 4);
    scratch->words.resize(scratch->symbols.size() * 2 + 16);
  }

  BitWriter bits(scratch->bits.data());
  bits.put(0, unsigned(num_classes));  // the unit mask; filled in when the steps have been seen
  for (int c = 0; c < num_classes; ++c) put_count(&bits, model, c, n, changes.count(c));

  uint32_t unit_classes = 0;
  const RansTable::EncodeSymbol** symbol = scratch->symbols.data();
  for (int c = 0; c < num_classes; ++c) {
    const uint32_t mean = mean_count(model.mean_codes[c], n, model.tiles.block_log2);
    const uint8_t q = model.fitted ? block_q(model.q[c], mean, changes.count(c)) : model.q[c];
    const RansTable& table = gap_table(q);
    const T others =
        put_gaps(changes.of_class(c).data(), changes.count(c), table, &bits, symbol, ahead);
    symbol += changes.count(c);
    unit_classes |= uint32_t(others == 0) << c;
  }
  for (int c = 0; c < num_classes; ++c) {
    const Change<T>*begin = changes.of_class(c).data(), *end = begin + changes.count(c);
    if ((unit_classes >> c & 1) != 0) {
      put_signs(begin, end, &bits);
    } else {
      symbol = put_values(coder, begin, end, &bits, symbol, ahead);
    }
  }
  scratch->bits[0] |= uint8_t(unit_classes);

  uint32_t states[kNumStates];
  const size_t words_bytes =
      code_symbols(scratch->symbols.data(), symbol, states, scratch->words.data(), ahead);
  const Bytes bit_bytes = bits.bytes();
  const size_t at = out->size();
  out->resize(at + bit_bytes.size() + words_bytes + kStateBytes);
  std::memcpy(out->data() + at, bit_bytes.data(), bit_bytes.size());
  std::memcpy(out->data() + at + bit_bytes.size(), scratch->words.data(), words_bytes);
  std::memcpy(out->data() + out->size() - kStateBytes, states, kStateBytes);
}

template <class T>
EncodeOps<T> make_ops() {
  return {collect<T>, count_values<T>, code_block<T>};
}

EncodeTable encode_table() {
  return {make_ops<uint8_t>(), make_ops<uint16_t>(), make_ops<uint32_t>(), make_ops<uint64_t>()};
}

}  // namespace HWY_NAMESPACE
}  // namespace deltawire::tight
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace deltawire::tight {

KeySplit::KeySplit(const ClassSplit& s) : split(s) {
  fill_class_of_key(s.thresholds, s.num_classes - 1U, class_of_key);
}

HWY_EXPORT(encode_table);

template <class T>
const EncodeOps<T>& encode_ops() {
  static const EncodeTable kTable = HWY_DYNAMIC_DISPATCH(encode_table)();
  return std::get<EncodeOps<T>>(kTable);
}
template const EncodeOps<uint8_t>& encode_ops<uint8_t>();
template const EncodeOps<uint16_t>& encode_ops<uint16_t>();
template const EncodeOps<uint32_t>& encode_ops<uint32_t>();
template const EncodeOps<uint64_t>& encode_ops<uint64_t>();

}  // namespace deltawire::tight
#endif
