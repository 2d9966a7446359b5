// Which file of a checkpoint holds which tensor when tensors come, go or change their form.
#pragma once

#include <string>
#include <vector>

#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "format/schema.h"

namespace deltawire {

struct PlannedTensor {
  size_t index = 0;               // in the schema
  uint64_t offset = 0, size = 0;  // in the file
};

struct PlannedFile {
  std::string name;
  bool relaid = false;  // false: header and offsets are those of the source's file
  std::string header;   // when relaid
  uint64_t size = 0;
  std::vector<PlannedTensor> tensors;  // in the order of the data
};

struct PlannedLayout {
  std::vector<PlannedFile> files;
  std::vector<std::string> gone;  // files of the source that have no tensor left
  bool relaid = false;            // of any file
};

// Tensors stay in the file they are in; new ones go to the end of the last file. Metadata is kept.
Result<PlannedLayout> plan_layout(const Checkpoint& source, const Schema& schema);

}  // namespace deltawire
