// Choosing a model: from a sample, in integers, so that the same input gives the same bytes
// everywhere and for any number of threads.
#pragma once

#include <cstdint>

#include "codec/tight_model.h"

namespace deltawire::tight {

// Elements and changes by key, counted in a sample.
struct KeyStats {
  uint64_t population[256] = {}, changed[256] = {};
  uint64_t num_elements = 0;  // looked at
};

// Symbols by key, counted in whole blocks.
struct ValueStats {
  uint32_t tokens[256][kMaxValueTokens] = {};
  uint32_t escapes[kMaxEscapes] = {};
};

// Per class, in the blocks that were collected first.
struct ClassStats {
  uint64_t population[kMaxClasses] = {}, changed[kMaxClasses] = {};
  uint64_t num_elements = 0;
};

// Borders between classes for an array of n elements: contiguous ranges of keys that cost least.
ClassSplit fit_split(const KeyStats& stats, Layout layout, uint64_t n);
// The rest of a fitted model, given how the array was split.
Model fit_model(const ClassSplit& split, const ClassStats& classes, const ValueStats& values,
                Layout layout, uint64_t n);
// The law model that suits the keys best.
Model fit_law(const KeyStats& stats, Layout layout, uint64_t n);

}  // namespace deltawire::tight
