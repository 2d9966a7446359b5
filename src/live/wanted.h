// Fetches what the workers of a host need from the parts of a version: headers, and the tiles of
// each payload that their boxes touch. The rest of the file is a hole.
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

// The boxes that workers hold, by tensor. They may overlap.
using WantedBoxes = std::map<std::string, std::vector<std::pair<TensorSpec, Box>>>;
// `text`: a JSON list of [name, dtype, shape, offset, extent], which is not trusted. Corruption if
// it is anything else.
Status add_boxes(std::string_view text, WantedBoxes* wanted);

using Ranges = std::vector<ByteRange>;  // ascending and not adjacent

// Fetches ranges of objects, several at a time. One call at a time.
class RangedFetch {
 public:
  // `gap`: ranges at most this many bytes apart are fetched together. None: derived from the
  // measured time of a request.
  explicit RangedFetch(Store& store, std::optional<uint64_t> gap = {});

  using Check = std::function<Status(const DeltaPart& part)>;
  // Writes to `to` all ranges of the part that are wanted and updates `have`. Ranges listed in
  // `have` are copied from the old file instead of fetched. Processes that have the old file open
  // keep it. `check` is called with the part before payloads are fetched. Size and header are
  // checked; payloads and the sha-256 are not.
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
