// A checkpoint becomes the next version in slime's layout: whole, or as the difference to the
// version before, which a local checkpoint holds. That one only ever advances by pulling what was
// published, so it cannot run ahead of what readers can have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "deltawire/status.h"
#include "dialect/dialect.h"

namespace deltawire {

struct SlimePublishOptions {
  std::filesystem::path source;  // where versions go
  std::filesystem::path local;   // holds the version before; a whole version does without
  std::filesystem::path base;    // what version 0 is; empty: what `local` holds
  bool full = false;
  std::string dialect = "slime";  // or "slime-gen1", which has no whole versions
  ForeignOptions write;
  unsigned threads = 0;           // 0: one per core
  std::function<Status()> check;  // asked often; an error ends it, and no version appears
};

struct SlimePublishReport {
  uint64_t version = 0;
  bool written = false;  // false: nothing differs from `version`
  size_t num_tensors = 0, num_changed = 0;
  uint64_t file_bytes = 0;  // of the version's files
  std::filesystem::path folder;
  double seconds = 0;
};

// Unsupported: a tensor came, went or has another form, and the dialect cannot say so. Conflict:
// another publisher was faster. BaseMismatch: `local` is not what the source's last version left.
Result<SlimePublishReport> slime_publish(const std::filesystem::path& checkpoint,
                                         const SlimePublishOptions& options);

}  // namespace deltawire
