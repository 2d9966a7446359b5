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

// Blocks side by side are scanned as one: a piece is a row of one of them. The rank of an element
// in its block is its rank in the scan, less what other blocks have before its piece.
struct Pieces {
  uint8_t of_strip[kSegmentStrips];
  uint8_t tile[kSegmentStrips];
  // Added to a rank of the scan: elements of the block before the piece, less all before it.
  uint32_t offset[kSegmentStrips][kMaxClasses];

  // Counts each block's elements on the way.
  template <class T>
  Pieces(const ScanShape& shape, const SegmentIndex& index, BlockChanges<T>* blocks) {
    const size_t tiles = shape.num_tiles();
    uint16_t before[kMaxClasses], end[kMaxClasses];
    kernels().count_before(index, 0, before);
    for (size_t row = 0, strip = 0, piece = 0; row < shape.rows; ++row) {
      for (size_t t = 0; t < tiles; ++t, ++piece) {
        const size_t last = strip + ScanShape::strips(shape.columns_of(t));
        if (row + 1 == shape.rows && t + 1 == tiles) {
          std::copy_n(index.total, kMaxClasses, end);
        } else {
          kernels().count_before(index, last, end);
        }
        for (; strip < last; ++strip) of_strip[strip] = uint8_t(piece);
        tile[piece] = uint8_t(t);
        for (size_t c = 0; c < kMaxClasses; ++c) {
          offset[piece][c] = blocks[t].population[c] - before[c];
          blocks[t].population[c] += uint32_t(end[c] - before[c]);
          before[c] = end[c];
        }
      }
    }
  }
};

// `place` finds a position in the rows, `piece` its piece.
template <class T, class Place, class PieceOf>
void add_changes(const KeySplit& split, ScanRows old_rows, ScanRows new_rows, const Pieces& pieces,
                 size_t found, const Place& place, const PieceOf& piece_of, CollectScratch* scratch,
                 BlockChanges<T>* blocks) {
  const auto* const old_data = static_cast<const uint8_t*>(old_rows.data);
  const auto* const new_data = static_cast<const uint8_t*>(new_rows.data);
  const uint16_t* const positions = scratch->positions;
  for (size_t i = 0; i < found; ++i) {
    const RowFinder::Place at = place(positions[i]);
    const T value =
        load_le<T>(old_data + ptrdiff_t(at.row) * old_rows.stride + at.column * sizeof(T));
    scratch->classes[i] = split.class_of_key[key_of(split.split, value)];
  }
  kernels().rank(scratch->index, split.split, positions, scratch->classes, found, scratch->ranks);
  for (size_t i = 0; i < found; ++i) {
    const size_t c = scratch->classes[i], piece = piece_of(positions[i]);
    const RowFinder::Place at = place(positions[i]);
    const size_t byte = at.column * sizeof(T);
    const T old_value = load_le<T>(old_data + ptrdiff_t(at.row) * old_rows.stride + byte),
            new_value = load_le<T>(new_data + ptrdiff_t(at.row) * new_rows.stride + byte);
    const uint32_t rank = pieces.offset[piece][c] + scratch->ranks[i];
    BlockChanges<T>& block = blocks[pieces.tile[piece]];
    block.storage[c][block.count[c]++] = {rank - block.next_rank[c], old_value,
                                          T(new_value - old_value)};
    block.next_rank[c] = rank + 1;
  }
}

template <class T>
void collect(const KeySplit& split, ScanRows old_rows, ScanRows new_rows, ScanShape shape,
             CollectScratch* scratch, BlockChanges<T>* out) {
  const size_t found = kernels().index_diff[width_index(sizeof(T))](
      old_rows, new_rows, shape, split.split, &scratch->index, scratch->positions);
  const Pieces pieces(shape, scratch->index, out);
  const size_t tiles = shape.num_tiles();
  const size_t most = std::min(found, shape.rows * shape.tile_columns);  // of one block
  for (size_t t = 0; t < tiles; ++t) {
    for (size_t c = 0; c < kMaxClasses; ++c) {
      auto& storage = out[t].storage[c];
      if (storage.size() < out[t].count[c] + most)
        storage.resize(2 * (out[t].count[c] + most) + 64);
    }
  }
  if (shape.rows == 1 && tiles == 1) {
    add_changes(
        split, old_rows, new_rows, pieces, found,
        [](uint32_t position) {
          return RowFinder::Place{0, position};
        },
        [](uint32_t) { return size_t{0}; }, scratch, out);
  } else {
    add_changes(
        split, old_rows, new_rows, pieces, found, RowFinder(shape.rows, shape.columns),
        [&](uint32_t position) { return size_t{pieces.of_strip[position / kStripElements]}; },
        scratch, out);
  }
  for (size_t t = 0; t < tiles; ++t) {
    out[t].total = 0;
    for (const uint32_t count : out[t].count) out[t].total += count;
  }
}

template <class T>
void count_values(const BlockChanges<T>& changes, const ClassSplit& split, ValueStats* stats) {
  for (int c = 0; c < split.num_classes; ++c) {
    for (uint32_t i = 0; i < changes.count[c]; ++i) {
      const Change<T>& change = changes.storage[c][i];
      const Step<T> step = make_step(change.old_value, change.step);
      ++stats->tokens[key_of(split, change.old_value)][step.token];
      if (step.token == kEscapeToken<T>) ++stats->escapes[step.escape];
    }
  }
}

template <class T>
void code_block(const Coder& coder, const BlockChanges<T>& changes, size_t n, Prefetcher* ahead,
                CodeScratch* scratch, std::vector<uint8_t>* out) {
  if (changes.total == 0) return;
  const Model& model = coder.model;
  const int num_classes = model.split.num_classes;
  const size_t most_bits = changes.total * (kMaxBlockLog2 + 2 + 8 * sizeof(T)) + 64 * kMaxClasses;
  if (scratch->bits.size() < most_bits / 8 + 16) scratch->bits.resize(most_bits / 4);
  if (scratch->symbols.size() < size_t(changes.total) * 3) {
    scratch->symbols.resize(size_t(changes.total) * 4);
    scratch->words.resize(scratch->symbols.size() * 2 + 16);
  }

  BitWriter bits(scratch->bits.data());
  bits.put(0, unsigned(num_classes));  // the unit mask; filled in when the steps have been seen
  for (int c = 0; c < num_classes; ++c) put_count(&bits, model, c, n, changes.count[c]);

  uint32_t unit_classes = 0;
  const RansTable::EncodeSymbol** symbol = scratch->symbols.data();
  for (int c = 0; c < num_classes; ++c) {
    const uint32_t mean = mean_count(model.mean_codes[c], n, model.tiles.block_log2);
    const uint8_t q = model.fitted ? block_q(model.q[c], mean, changes.count[c]) : model.q[c];
    const RansTable& table = gap_table(q);
    const T others =
        put_gaps(changes.storage[c].data(), changes.count[c], table, &bits, symbol, ahead);
    symbol += changes.count[c];
    unit_classes |= uint32_t(others == 0) << c;
  }
  for (int c = 0; c < num_classes; ++c) {
    const Change<T>*begin = changes.storage[c].data(), *end = begin + changes.count[c];
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
