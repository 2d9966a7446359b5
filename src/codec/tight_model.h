// The model of one array: how its elements fall into classes, how often each class changes, how
// steps are distributed. Written at the front of a payload, read back by the decoder.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "codec/codec.h"
#include "codec/tight_format.h"
#include "codec/tiles.h"
#include "deltawire/status.h"

namespace deltawire::tight {

// What is written. A `law` model has two bytes and suits arrays too small to pay for tables: the
// chance of a change is 2^(-law_q/16) up to key law_key and halves with every key above it.
struct Model {
  TileShape tiles;
  bool fitted = false;
  uint8_t law_key = 255, law_q = 64;
  ClassSplit split;                      // with the layout's key bits filled in
  uint8_t q[kMaxClasses] = {};           // chance of a change: 2^(-q/16)
  uint8_t mean_codes[kMaxClasses] = {};  // changes per full block: 2^(mean_code/12)
  uint8_t num_contexts = 1;
  uint8_t context_thresholds[kMaxContexts - 1] = {};
  uint8_t value_codes[kMaxContexts][kMaxValueTokens] = {};
  uint8_t escape_codes[kMaxEscapes] = {};

  // Fills everything but tiles and the key bits from law_key and law_q.
  void set_law(uint8_t width);
};

// How many of `count` ascending thresholds each key reaches: its class, or its context.
void fill_class_of_key(const uint8_t* thresholds, size_t count, uint8_t class_of_key[256]);

// The same with the tables built, as encoder and decoder use it. Points into itself: not copied.
struct Coder {
  Coder() = default;
  Coder(const Coder&) = delete;
  Coder& operator=(const Coder&) = delete;

  Model model;
  const RansTable* values_of_key[256];  // the table of the key's context
  RansTable values[kMaxContexts];
  RansTable escapes;

  void build(const Model& m, uint8_t width);
};

inline constexpr size_t kMaxModelBytes = 4 + 3 * kMaxClasses + kMaxContexts +
                                         (9 * (kMaxContexts * kMaxValueTokens + kMaxEscapes)) / 8 +
                                         1;

std::vector<uint8_t> write_model(const Model& model, uint8_t width);
// Every field is checked; `*consumed` is the number of bytes the model takes.
Result<Model> read_model(Layout layout, Bytes payload, size_t* consumed);

// Estimates which share of an array's changes are steps of +1 or -1, from the model at the front of
// its payload, of which kMaxModelBytes are enough. None: a law model, a malformed one, or one that
// does not tell. For statistics only.
std::optional<double> share_of_unit_steps(Layout layout, Bytes front);

}  // namespace deltawire::tight
