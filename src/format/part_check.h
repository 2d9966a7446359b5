// Whether parts fit the records around them: names, dtypes, shapes, digests. Nothing is decoded.
#pragma once

#include <set>
#include <string>

#include "deltawire/status.h"
#include "format/delta_part.h"
#include "format/manifest.h"
#include "format/schema.h"

namespace deltawire {

// A version as its records describe it. Must outlive the checks.
struct DescribedState {
  const Schema* schema = nullptr;
  const Manifest* manifest = nullptr;
};

// All parts of one delta, one after the other.
class DeltaPartsCheck {
 public:
  // `base.schema` is null when the base's records are gone: then only the target is looked at.
  DeltaPartsCheck(DescribedState base, DescribedState target) : base_(base), target_(target) {}

  // Every entry must be of a tensor that the target has, with its dtype, shape and digest, and
  // begin at the digest that the base has.
  Status add(const DeltaPart& part);
  // Every tensor that differs between base and target must have had an entry; those that went must
  // be listed as removed.
  Status finish() const;

 private:
  Status check_entry(const DeltaEntry& entry) const;

  DescribedState base_, target_;
  std::set<std::string> covered_, removed_;
};

// All files of a version that is stored whole, by their headers.
class WholeFilesCheck {
 public:
  explicit WholeFilesCheck(const Schema& schema) : schema_(schema) {}

  // The header of a safetensors file, length field included, and the file's size.
  Status add(std::string_view header, uint64_t file_bytes);
  Status finish() const;  // every tensor was in one of them

 private:
  const Schema& schema_;
  std::set<std::string> seen_;
};

// What a manifest says must follow from its schema and digests: counts, boxes, the state digest.
Status check_state(const Schema& schema, const Manifest& manifest);

}  // namespace deltawire
