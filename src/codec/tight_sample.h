// A look at an array before it is split: which keys it has, and at which of them it changes.
#pragma once

#include "codec/codec.h"
#include "codec/tight_fit.h"

namespace deltawire::tight {

// Reads a few evenly spaced pieces; the cost is a few per cent of encoding the array.
KeyStats sample_keys(Layout layout, Bytes old_bytes, Bytes new_bytes);

}  // namespace deltawire::tight
