#include "codec/tight_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "codec/tight_format.h"

namespace deltawire::tight {
namespace {

// Steps of law models: what RL steps look like when nothing is known of the array.
constexpr uint8_t kLawSteps[17] = {31, 22, 17, 14, 12, 10, 9, 8, 7, 6, 5, 5, 4, 4, 3, 3, 14};

// Codes take 5 bits; a zero is followed by 4 bits that say how many more zeros come.
void write_codes(const uint8_t* codes, uint32_t count, BitWriter* out) {
  for (uint32_t i = 0; i < count;) {
    out->put(codes[i], 5);
    if (codes[i++] != 0) continue;
    uint32_t more = 0;
    while (more < 15 && i < count && codes[i] == 0) ++more, ++i;
    out->put(more, 4);
  }
}

Status read_codes(BitReader* in, uint32_t count, uint8_t* codes) {
  for (uint32_t i = 0; i < count;) {
    codes[i] = uint8_t(in->get(5));
    if (codes[i++] != 0) continue;
    const uint32_t more = uint32_t(in->get(4));
    if (more > count - i) return corruption("tight model: a run of zero codes leaves its table");
    std::memset(codes + i, 0, more);
    i += more;
  }
  return {};
}

// `count` strictly ascending bytes, the first >= 1.
void write_thresholds(const uint8_t* thresholds, uint32_t count, BitWriter* out) {
  for (uint32_t i = 0; i < count; ++i) out->put(thresholds[i], 8);
}

Status read_thresholds(BitReader* in, uint32_t count, uint8_t* thresholds) {
  for (uint32_t i = 0; i < count; ++i) {
    thresholds[i] = uint8_t(in->get(8));
    if (thresholds[i] <= (i == 0 ? 0 : thresholds[i - 1])) {
      return corruption("tight model: thresholds do not ascend: expected over " +
                        std::to_string(i == 0 ? 0 : thresholds[i - 1]) + ", got " +
                        std::to_string(thresholds[i]));
    }
  }
  return {};
}

// Tiles count from 32 on: 16 for each width, within them by size of the block.
uint8_t shape_code(TileShape shape) {
  if (!shape.tiled()) return shape.block_log2;
  return uint8_t(32 + 16 * (shape.columns_log2 - kMinTileColumnsLog2) + shape.block_log2 -
                 kMinBlockLog2);
}
TileShape shape_of_code(uint8_t code) {
  if (code < 32) return {code, 0};
  return {uint8_t(kMinBlockLog2 + (code - 32) % 16),
          uint8_t(kMinTileColumnsLog2 + (code - 32) / 16)};
}

}  // namespace

void Model::set_law(uint8_t width) {
  fitted = false;
  split.num_classes = uint8_t(std::min<int>(kMaxClasses, 256 - law_key));
  for (int c = 0; c < split.num_classes; ++c) {
    if (c > 0) split.thresholds[c - 1] = uint8_t(law_key + c);
    q[c] = uint8_t(std::min(255, law_q + 16 * c));
  }
  num_contexts = 1;
  std::memset(value_codes[0], kMaxCode, sizeof value_codes[0]);
  if (width <= 2) std::memcpy(value_codes[0], kLawSteps, sizeof kLawSteps);
  std::memset(escape_codes, kMaxCode, sizeof escape_codes);
}

void fill_class_of_key(const uint8_t* thresholds, size_t count, uint8_t class_of_key[256]) {
  uint8_t reached = 0;
  for (unsigned key = 0; key < 256; ++key) {
    while (reached < count && key >= thresholds[reached]) ++reached;
    class_of_key[key] = reached;
  }
}

void Coder::build(const Model& m, uint8_t width) {
  model = m;
  uint8_t context_of_key[256];
  fill_class_of_key(m.context_thresholds, m.num_contexts - 1U, context_of_key);
  for (unsigned key = 0; key < 256; ++key) values_of_key[key] = &values[context_of_key[key]];
  for (int v = 0; v < m.num_contexts; ++v) {
    build_coded_table(m.value_codes[v], num_value_tokens(width), &values[v]);
  }
  build_coded_table(m.escape_codes, num_escapes(width), &escapes);
}

namespace {

void put_model(const Model& model, uint8_t width, BitWriter* out) {
  out->put(shape_code(model.tiles), 7);
  out->put(model.fitted, 1);
  if (!model.fitted) {
    out->put(model.law_key, 8);
    out->put(model.law_q, 8);
    return;
  }
  out->put(model.split.num_classes - 1U, 4);
  out->put(model.num_contexts - 1U, 4);
  write_thresholds(model.split.thresholds, model.split.num_classes - 1U, out);
  for (int c = 0; c < model.split.num_classes; ++c) {
    out->put(model.q[c], 8);
    out->put(model.mean_codes[c], 8);
  }
  write_thresholds(model.context_thresholds, model.num_contexts - 1U, out);
  for (int v = 0; v < model.num_contexts; ++v) {
    write_codes(model.value_codes[v], num_value_tokens(width), out);
  }
  write_codes(model.escape_codes, num_escapes(width), out);
  out->put(0, unsigned(-out->num_bits() & 7));
}

}  // namespace

std::vector<uint8_t> write_model(const Model& model, uint8_t width) {
  std::vector<uint8_t> buffer(kMaxModelBytes + 16);
  BitWriter out(buffer.data());
  put_model(model, width, &out);
  buffer.resize(out.bytes().size());
  return buffer;
}

Result<Model> read_model(Layout layout, Bytes payload, size_t* consumed) {
  // A padded copy of the largest model lets the reads below go unchecked.
  std::vector<uint8_t> padded(kMaxModelBytes + 16);
  std::copy_n(payload.begin(), std::min(payload.size(), kMaxModelBytes), padded.begin());
  BitReader in(padded.data());

  Model model;
  model.split.key_shift = layout.key_shift;
  model.split.key_mask = layout.key_mask;
  const uint8_t code = uint8_t(in.get(7));
  model.tiles = shape_of_code(code);
  const uint8_t block_log2 = model.tiles.block_log2, columns_log2 = model.tiles.columns_log2;
  if (block_log2 < kMinBlockLog2 || block_log2 > kMaxBlockLog2) {
    return corruption("tight model: block size 2^" + std::to_string(block_log2) + ": expected 2^" +
                      std::to_string(kMinBlockLog2) + " to 2^" + std::to_string(kMaxBlockLog2));
  }
  if (columns_log2 > kMaxTileColumnsLog2) {
    return corruption("tight model: tiles of 2^" + std::to_string(columns_log2) +
                      " columns: expected 2^" + std::to_string(kMinTileColumnsLog2) + " to 2^" +
                      std::to_string(kMaxTileColumnsLog2));
  }
  model.fitted = in.get(1) != 0;
  if (!model.fitted) {
    model.law_key = uint8_t(in.get(8));
    model.law_q = uint8_t(in.get(8));
    model.set_law(layout.width);
  } else {
    const uint32_t num_classes = uint32_t(in.get(4)) + 1;
    if (num_classes > kMaxClasses) {
      return corruption("tight model: number of classes: expected at most 8, got " +
                        std::to_string(num_classes));
    }
    model.split.num_classes = uint8_t(num_classes);
    model.num_contexts = uint8_t(in.get(4) + 1);
    DW_RETURN_IF_ERROR(read_thresholds(&in, num_classes - 1, model.split.thresholds));
    for (uint32_t c = 0; c < num_classes; ++c) {
      model.q[c] = uint8_t(in.get(8));
      model.mean_codes[c] = uint8_t(in.get(8));
      if (model.mean_codes[c] > 12 * kMaxBlockLog2) {
        return corruption("tight model: mean count code: expected at most 240, got " +
                          std::to_string(model.mean_codes[c]));
      }
    }
    DW_RETURN_IF_ERROR(read_thresholds(&in, model.num_contexts - 1U, model.context_thresholds));
    for (int v = 0; v < model.num_contexts; ++v) {
      DW_RETURN_IF_ERROR(read_codes(&in, num_value_tokens(layout.width), model.value_codes[v]));
    }
    DW_RETURN_IF_ERROR(read_codes(&in, num_escapes(layout.width), model.escape_codes));
  }
  const unsigned unused = unsigned(-in.num_bits() & 7);
  if (in.get(unused) != 0) return corruption("tight model: the bits after it are not zero");
  *consumed = size_t(in.num_bits() / 8);
  if (*consumed > payload.size()) {
    return corruption("tight model: cut short: expected " + std::to_string(*consumed) +
                      " bytes, got " + std::to_string(payload.size()));
  }
  return model;
}

// Tables count all changes of the sampled blocks (count_values), also those of classes whose steps
// a block then codes as units, so these cause no bias. Two things do. Codes are multiples of 0.4
// bits: a share near 1/2 may be off by 0.07, one near 0 or 1 by less. And how a class's changes
// spread over its keys, and so over contexts, is not stored. Assumed: keys of a class change
// equally often, and each exponent has half as many weights as the next larger one, except for the
// largest few. Where this guess matters too much there is no answer, for example for steps so large
// that nearly every weight changes.
std::optional<double> share_of_unit_steps(Layout layout, Bytes front) {
  constexpr double kMostSpread = 0.15;               // of shares among the contexts of a class
  constexpr double kLargestKeys[] = {1.0 / 3, 0.9};  // relative to the third largest
  size_t consumed = 0;
  const Result<Model> model_or = read_model(layout, front, &consumed);
  if (!model_or.ok() || !model_or->fitted) return {};
  const Model& model = *model_or;
  double units_of_context[kMaxContexts];
  for (int v = 0; v < model.num_contexts; ++v) {
    double sum = 0;
    for (uint32_t t = 0; t < num_value_tokens(layout.width); ++t) {
      const uint8_t code = model.value_codes[v][t];
      const double weight = code == 0 ? 0 : std::exp2(0.4 * code);  // 0: the sample had none
      if (t == 0) units_of_context[v] = weight;
      sum += weight;
    }
    if (sum == 0) return {};
    units_of_context[v] /= sum;
  }
  uint8_t context_of_key[256];
  fill_class_of_key(model.context_thresholds, model.num_contexts - 1U, context_of_key);
  const int top = model.split.num_classes - 1;
  double units = 0, all = 0, spread = 0;
  for (int c = 0; c <= top; ++c) {
    const int first = c == 0 ? 0 : model.split.thresholds[c - 1];
    int last = c == top ? first : model.split.thresholds[c] - 1;
    if (c == top && model.num_contexts > 1) {  // there were changes at every context's first key
      last = std::max<int>(last, model.context_thresholds[model.num_contexts - 2]);
    }
    double weights = 0, sum = 0, squares = 0;
    for (int key = last; key >= first; --key) {
      const int below = last - key - (c == top ? 2 : 0);
      const double weight = below < 0 ? kLargestKeys[below + 2] : std::exp2(-below);
      const double share = units_of_context[context_of_key[key]];
      weights += weight;
      sum += weight * share;
      squares += weight * share * share;
    }
    const double mean = sum / weights, count = std::exp2(model.mean_codes[c] / 12.0);
    units += count * mean;
    all += count;
    spread += count * std::sqrt(std::max(0.0, squares / weights - mean * mean));
  }
  if (spread > kMostSpread * all) return {};
  return units / all;
}

// The code tables of `tight`, in integers from first to last.

namespace {

constexpr uint64_t kOne = uint64_t{1} << 32;

// floor(2^(32 - i/16)), the first one short of 2^32 so that it fits.
constexpr uint32_t kRoot16[16] = {
    4294967295, 4112874773, 3938502375, 3771522796, 3611622602, 3458501653, 3311872529, 3171459999,
    3037000499, 2908241642, 2784941737, 2666869344, 2553802833, 2445529971, 2341847523, 2242560871};

// (survival of one element)^gap, Q32.
uint64_t survival(uint64_t one_element, uint32_t gap) {
  uint64_t result = kOne;
  for (uint64_t power = one_element; gap != 0; gap >>= 1, power = power * power >> 32) {
    if ((gap & 1) != 0) result = result * power >> 32;
  }
  return result;
}

// Weights to frequencies >= 1 that sum to kProbabilityOne; the heaviest takes the rounding.
void normalise(const uint64_t* weights, uint32_t count, uint16_t* frequencies) {
  uint64_t sum = 0;
  uint32_t heaviest = 0;
  for (uint32_t i = 0; i < count; ++i) {
    sum += weights[i];
    if (weights[i] > weights[heaviest]) heaviest = i;
  }
  int64_t left = kProbabilityOne;
  for (uint32_t i = 0; i < count; ++i) {
    frequencies[i] = uint16_t(1 + weights[i] * (kProbabilityOne - count) / sum);
    left -= frequencies[i];
  }
  frequencies[heaviest] = uint16_t(frequencies[heaviest] + left);
}

void build_gap_table(uint8_t q, RansTable* table) {
  const uint64_t one_element = 0xffffffffULL - (kRoot16[q % 16] >> (q / 16));
  // Tokens until the rest is rarer than the smallest probability; the rest escapes.
  constexpr uint32_t kAllTokens = 8 + 4 * (kMaxBlockLog2 - 3);
  uint32_t base[kMaxSymbols];
  uint8_t raw_bits[kMaxSymbols];
  uint64_t weights[kMaxSymbols], alive = kOne;
  uint32_t count = 0;
  for (; count < kAllTokens && (count == 0 || alive >= kOne >> kProbabilityBits); ++count) {
    unsigned bits, next_bits;
    base[count] = gap_base(count, &bits);
    raw_bits[count] = uint8_t(bits);
    const uint64_t after = survival(one_element, gap_base(count + 1, &next_bits));
    weights[count] = alive - after;
    alive = after;
  }
  base[count] = 0;
  raw_bits[count] = kMaxBlockLog2;
  weights[count] = alive;
  uint16_t frequencies[kMaxSymbols];
  normalise(weights, count + 1, frequencies);
  table->build(frequencies, count + 1, base, raw_bits);
}

struct GapTables {
  RansTable tables[256];
  GapTables() {
    for (unsigned q = 0; q < 256; ++q) build_gap_table(uint8_t(q), &tables[q]);
  }
};

}  // namespace

const RansTable& gap_table(uint8_t q) {
  static const auto kTables = std::make_unique<GapTables>();
  return kTables->tables[q];
}

void coded_frequencies(const uint8_t* codes, uint32_t num_symbols, uint16_t* frequencies) {
  // 2^(16 + 0.4 i)
  constexpr uint32_t kRoot[5] = {65536, 86475, 114104, 150562, 198668};
  uint64_t weights[kMaxSymbols];
  for (uint32_t i = 0; i < num_symbols; ++i) {
    weights[i] = codes[i] == 0 ? 1 : uint64_t(kRoot[codes[i] % 5]) << (2 * (codes[i] / 5));
  }
  normalise(weights, num_symbols, frequencies);
}

void build_coded_table(const uint8_t* codes, uint32_t num_symbols, RansTable* table) {
  uint16_t frequencies[kMaxSymbols];
  coded_frequencies(codes, num_symbols, frequencies);
  table->build(frequencies, num_symbols, nullptr, nullptr);
}

}  // namespace deltawire::tight
