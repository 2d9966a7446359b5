// Of the parts of a version, what the workers of a host decode: headers, and of each payload the
// tiles that a box touches. The rest of such a file is a hole.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/status.h"
#include "deltawire/store.h"
#include "deltawire/tensor.h"
#include "format/delta_part.h"
#include "format/manifest.h"

namespace deltawire {

// Boxes that workers hold, by tensor. They may overlap.
using WantedBoxes = std::map<std::string, std::vector<std::pair<TensorSpec, Box>>>;
// `text`: JSON, a list of [name, dtype, shape, offset, extent]. It is untrusted: Corruption for
// anything else.
Status add_boxes(std::string_view text, WantedBoxes* wanted);

using Ranges = std::vector<ByteRange>;  // ascending, and none touches the next

// Fetches ranges, several at once. One call at a time.
class RangedFetch {
 public:
  // `gap`: ranges that are less bytes apart are fetched as one. None: by what a request takes.
  explicit RangedFetch(Store& store, std::optional<uint64_t> gap = {});

  using Check = std::function<Status(const DeltaPart& part)>;
  // Makes `to` the part with all that is wanted of it, and `have` what it has; what it had before,
  // by `have`, is not fetched again. Whoever has the file open keeps the old one. `check` sees the
  // part before payloads are fetched. Its size and header are checked, its payloads and its sha-256
  // are not.
  Status fetch(const PartRef& part, const WantedBoxes& wanted, const Check& check,
               const std::filesystem::path& to, Ranges* have);

  uint64_t fetched_bytes() const noexcept { return fetched_bytes_; }

 private:
  struct File;
  Status fetch_once(const PartRef& part, const WantedBoxes& wanted, const Check& check, File* file);
  Status add(const PartRef& part, Ranges wanted, File* file);
  uint64_t gap() const;

  Store& store_;
  const std::optional<uint64_t> gap_;
  double request_seconds_ = 1;       // the fastest so far
  uint64_t header_bytes_ = 4 << 10;  // that the next part may have
  uint64_t fetched_bytes_ = 0;
  ThreadPool pool_;
};

}  // namespace deltawire
