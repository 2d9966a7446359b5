// Opens a slime version. slime_index.h has its files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dialect/dialect.h"
#include "dialect/foreign_file.h"
#include "dialect/slime/slime_index.h"

namespace deltawire::slime {

// The parts of a slime version against its index: each tensor once, in the file that the index
// names, and nothing else.

// A tensor of a part: a payload, or the tensor itself.
struct PartTensor {
  ForeignTensor what;
  Bytes body;
  size_t file = 0;  // in Parts::files
};

struct Parts {
  std::vector<ForeignFile> files;
  std::vector<PartTensor> tensors;  // sorted by name
};

// Corruption names the tensor that is missing, in two files or not in the index, and the part that
// is missing or damaged.
Result<Parts> open_parts(Store& store, uint64_t version, const Index& index);

// NotFound when the folder is not there or has no index, which is written last.
Result<std::unique_ptr<ForeignVersion>> open_version(Store& store, uint64_t version);

}  // namespace deltawire::slime
