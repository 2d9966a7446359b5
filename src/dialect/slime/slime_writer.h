// Writes a slime version. slime_index.h has its files.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dialect/checksum.h"
#include "dialect/dialect.h"

namespace deltawire::slime {

// The layout of a slime version before it is written.
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

// Unsupported if slime's files cannot express the draft; the message names the tensor and a remedy.
// InvalidArgument for unknown options.
Result<WritePlan> plan_version(const ForeignDraft& draft, const ForeignOptions& options);

// The text of the index, without a newline at the end, as slime writes it.
std::string index_text(const WritePlan& plan);

// Removes the files of this version that a killed writer left. Memory is bounded by the payloads of
// one part: `buffer_bytes` of tensors, or one larger tensor.
Result<std::unique_ptr<ForeignWriter>> create_writer(std::shared_ptr<Store> store,
                                                     const ForeignDraft& draft,
                                                     const ForeignOptions& options);

}  // namespace deltawire::slime
