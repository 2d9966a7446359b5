// Writes a slime version. slime_index.h has its files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dialect/checksum.h"
#include "dialect/dialect.h"

namespace deltawire::slime {

// What a slime version that is to be written will look like; and whether it can be.
struct PlannedPart {
  std::string file;
  size_t begin = 0, end = 0;  // of WritePlan::tensors
};

struct WritePlan {
  uint64_t version = 0, base = 0;
  bool full = false, overwrite = false;
  ChecksumKind checksum = ChecksumKind::kXxh3_128;
  std::vector<TensorSpec> tensors;  // in the order of the draft
  std::vector<PlannedPart> parts;   // cut by `buffer_bytes` of tensors; their names have the count
};

// Unsupported, naming tensor and way out, for what slime's files cannot express; InvalidArgument
// for options that are not known.
Result<WritePlan> plan_version(const ForeignDraft& draft, const ForeignOptions& options);

// The text of the index; its last byte is no newline, as theirs.
std::string index_text(const WritePlan& plan);

// Removes what a writer that was killed left of this version. Memory is bounded by the payloads of
// one part: `buffer_bytes` of tensors, or a larger tensor.
Result<std::unique_ptr<ForeignWriter>> create_writer(std::shared_ptr<Store> store,
                                                     const ForeignDraft& draft,
                                                     const ForeignOptions& options);

}  // namespace deltawire::slime
