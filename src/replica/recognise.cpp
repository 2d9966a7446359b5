#include "replica/recognise.h"

#include <algorithm>
#include <vector>

#include "base/thread_pool.h"

namespace deltawire {
namespace {

// Further back a version that is stored whole is likely to be the shorter way anyhow.
constexpr uint64_t kLookBack = 16;
constexpr unsigned kHashedAtOnce = 8;

}  // namespace

Result<std::optional<Held>> recognise_version(
    const Chain& chain, uint64_t wanted,
    const std::function<Result<bool>(const VersionRecord&)>& holds) {
  const uint64_t count = std::min(wanted, kLookBack) + 1;
  std::vector<Result<VersionRecord>> records(count, Result<VersionRecord>(not_found("")));
  ThreadPool pool(unsigned(std::min<uint64_t>(count, kHashedAtOnce)));
  pool.parallel_for(count, [&](size_t i, unsigned) { records[i] = chain.version(wanted - i); });
  for (const Result<VersionRecord>& record : records) {
    if (!record.ok()) {
      const Code code = record.status().code();
      if (code == Code::kNotFound || code == Code::kCorruption) continue;
      return record.status();
    }
    DW_ASSIGN_OR_RETURN(const bool same, holds(*record));
    if (same) return std::optional(Held{record->manifest.version, record->digest});
  }
  return std::optional<Held>();
}

}  // namespace deltawire
