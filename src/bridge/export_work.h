// The model of a chain on disk, one version after the other, with the tensors of the version before
// that the next one changes. One copy of the model, and one of what changes.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bridge/patch.h"
#include "deltawire/chain.h"
#include "deltawire/checkpoint.h"
#include "deltawire/progress.h"
#include "deltawire/replica.h"
#include "deltawire/store.h"
#include "dialect/dialect.h"

namespace deltawire {

// The marker that says which chain an export belongs to, so that two never mix.

// An object beside the versions, which readers of the dialect ignore.
inline constexpr std::string_view kExportMarker = "deltawire-export.json";

// Conflict when the target is of another run or dialect, or holds versions that no export wrote.
Status check_target(const Chain& chain, const Dialect& dialect, Store& target,
                    const std::vector<uint64_t>& versions);
// Writes the marker, before the first version.
Status mark_target(const Chain& chain, const Dialect& dialect, Store& target);

// Compares an existing version with the chain by its digests; `held` is the model at that version.
// Conflict names the tensor.
Status check_exported(const ForeignVersion& version, const Checkpoint& held, const Store& target,
                      ThreadPool* pool);

// A version as its records describe it.
struct DescribedVersion {
  VersionRecord record;
  Schema schema;
};
Result<DescribedVersion> describe_version(const Chain& chain, uint64_t version);

// One thread.
class ExportWork {
 public:
  ExportWork(const Chain& chain, std::filesystem::path folder, uint64_t memory_bytes,
             unsigned threads, Progress progress);

  // `old_bytes` of these tensors at `before`, and all tensors at `now`; each of those named is
  // proven by digest. Valid until the next call.
  struct Step {
    std::vector<MutableBytes> old_bytes;  // in the order of the names
    const Checkpoint* now = nullptr;
  };
  // `before`: null where the version is wanted whole; `names` are proven all the same.
  Result<Step> step(const DescribedVersion* before, const DescribedVersion& now,
                    const std::vector<std::string>& names);
  // The model at this version. Its tensors are not proven.
  Result<const Checkpoint*> bring_to(uint64_t version);

  // The next call rebuilds the model from the chain.
  Status discard();

  ThreadPool* pool() noexcept { return &pool_; }

 private:
  Result<Step> step_once(const DescribedVersion* before, const DescribedVersion& now,
                         const std::vector<std::string>& names);
  Status prove(const DescribedVersion& version, const std::string& name, Bytes bytes) const;

  const Chain chain_;
  const std::filesystem::path folder_;
  const Progress progress_;
  ThreadPool pool_;
  Scratch scratch_;
  std::optional<Replica> replica_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<uint64_t> at_;
};

}  // namespace deltawire
