#include "codec/tight_model.h"

#include <algorithm>
#include <cstring>
#include <vector>

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

void write_model(const Model& model, uint8_t width, BitWriter* out) {
  out->put(model.block_log2, 7);
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

Result<Model> read_model(Layout layout, Bytes payload, size_t* consumed) {
  // A padded copy of the largest model lets the reads below go unchecked.
  std::vector<uint8_t> padded(kMaxModelBytes + 16);
  std::memcpy(padded.data(), payload.data(), std::min(payload.size(), kMaxModelBytes));
  BitReader in(padded.data());

  Model model;
  model.split.key_shift = layout.key_shift;
  model.split.key_mask = layout.key_mask;
  model.block_log2 = uint8_t(in.get(7));
  if (model.block_log2 < kMinBlockLog2 || model.block_log2 > kMaxBlockLog2) {
    return corruption("tight model: block size 2^" + std::to_string(model.block_log2) +
                      ": expected 2^" + std::to_string(kMinBlockLog2) + " to 2^" +
                      std::to_string(kMaxBlockLog2));
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

}  // namespace deltawire::tight
