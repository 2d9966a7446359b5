// slime's pull: brings a local checkpoint to a version that a trainer published in slime's layout.
//
// What is there is only read until every changed tensor is decoded and its digest compared; then a
// journal with absolute values is committed, and carried out. A process that dies at any instant
// leaves a folder that the next call finishes, or repeats from what was there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

struct SlimePullRequest {
  std::filesystem::path local, source;  // absolute
  uint64_t target = 0;
};

struct SlimePullOptions {
  // The checkpoint that version 0 is: in slime, the engine's model path. Empty: version 0 is what
  // LOCAL holds when it has no state.
  std::filesystem::path base;
  // Where versions may be read from, symbolic links followed; empty: anywhere.
  std::vector<std::filesystem::path> roots;
  std::string dialect = "slime";               // or "slime-gen1"
  unsigned threads = 0;                        // 0: one per core
  uint64_t chunk_bytes = uint64_t{512} << 20;  // of tensors that are decoded at one time
  // A shell command, run before a version above 0 is read: it makes the source's files visible.
  // DELTAWIRE_SOURCE_DIR and DELTAWIRE_TARGET_VERSION say which.
  std::string pre_read_hook;
  double hook_timeout_seconds = 600;
  // Asked often, until the journal is committed: an error ends the pull, and nothing has changed.
  std::function<Status()> check;
};

struct SlimePullReport {
  uint64_t version = 0;
  std::optional<uint64_t> from;  // none: nothing was there, or it could not be used
  bool changed = false;
  bool recovered = false;  // a step that an earlier call had begun was finished
  bool rebuilt = false;    // from a whole version or the base
  size_t num_deltas = 0, num_tensors = 0;
  size_t num_tied = 0;  // changed tensors that the checkpoint has under another name
  std::string reason;   // why it was rebuilt although the folder held something
  double seconds = 0;
};

// LOCAL has the version; others that pull into it wait until this is destroyed.
class SlimePulled {
 public:
  struct Impl;
  explicit SlimePulled(std::unique_ptr<Impl> impl);
  ~SlimePulled();
  SlimePulled(SlimePulled&&) noexcept;
  SlimePulled& operator=(SlimePulled&&) = delete;

  const SlimePullReport& report() const noexcept;
  // Waits until all is on disk, and drops the journal. Without it the next call does so.
  Status settle();

 private:
  std::unique_ptr<Impl> impl_;
};

// NotFound: the source does not have the version, or one on the way to it, complete. BaseMismatch:
// what is there is not what deltas expect, and there is neither a base nor a whole version to begin
// with. Corruption, InvalidArgument: of files of the source. LOCAL is as before in all cases.
Result<SlimePulled> slime_pull(const SlimePullRequest& request, const SlimePullOptions& options);

}  // namespace deltawire
