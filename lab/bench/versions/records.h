// The records of a model of many tensors: how large, and how long they take to read and write.
#pragma once

#include <cstdint>

#include "deltawire/status.h"

namespace deltawire::cli {

struct RecordCosts {
  uint64_t tensors = 0;
  uint64_t manifest_bytes = 0, schema_bytes = 0;
  // The best of a few, seconds.
  double write_manifest = 0, read_manifest = 0, read_schema = 0;
};

// Tensors are named as those of a mixture of experts are.
Result<RecordCosts> measure_records(uint64_t tensors);

}  // namespace deltawire::cli
