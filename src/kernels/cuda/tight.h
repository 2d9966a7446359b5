// What `tight` needs on a device, both ways: code tables, and the models of the arrays of a batch.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"
#include "kernels/tight_math.h"

namespace deltawire::cuda {

// How to see the elements of an array through its model.
struct TightKeys {
  uint8_t key_shift, key_mask;
  uint8_t num_classes;
  uint8_t class_of_key[256];
  uint16_t border[kMaxClasses + 1];  // the lowest key of each class; 256 for classes that are not
};

// A code table as the host gives it.
struct TableFrequencies {
  uint16_t frequency[kMaxSymbols];
  uint32_t num_symbols;
};

}  // namespace deltawire::cuda
