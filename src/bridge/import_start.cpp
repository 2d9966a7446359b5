#include "bridge/import_start.h"

#include <algorithm>

#include "bridge/patch.h"
#include "delta/open_checkpoint.h"

namespace deltawire {
namespace {

std::string number(uint64_t version) { return std::to_string(version); }

// A chain's seed is what the first version is applied to.
Result<std::optional<ImportStart>> start_from_base(const Dialect& dialect, Store& source,
                                                   const std::vector<uint64_t>& versions,
                                                   const ImportOptions& options, ThreadPool* pool) {
  const uint64_t first = options.range.from.value_or(1);
  if (first == 0) {
    return invalid_argument("version 0 has no base: leave the base out, or begin with version 1");
  }
  DW_ASSIGN_OR_RETURN(const Checkpoint base, open_checkpoint(options.base));
  if (!options.source_may_be_empty && (versions.empty() || versions.back() < first)) {
    return std::optional<ImportStart>();
  }
  const auto later = std::ranges::lower_bound(versions, first);
  if (later != versions.end() && *later != first) {
    return not_found(source.url() + ": begins with version " + number(*later) + ", not " +
                     number(first) + "; if " + options.base.string() + " is version " +
                     number(*later - 1) + ", import from version " + number(*later) + " on");
  }
  if (later != versions.end()) {
    DW_ASSIGN_OR_RETURN(const auto version, dialect.open(source, first));
    const ForeignInfo& info = version->info();
    if (info.base && *info.base != first - 1) {
      return base_mismatch(source.url() + ": version " + number(first) + " is based on version " +
                           number(*info.base) + ", not " + number(first - 1));
    }
    Status fits = info.full ? Status() : try_patch(*version, base, pool, options.publish.progress);
    if (fits.code() == Code::kCorruption) {
      return Status(Code::kBaseMismatch,
                    fits.message() + "; is " + options.base.string() +
                        " the checkpoint that the run began with? Nothing was committed");
    }
    DW_RETURN_IF_ERROR(std::move(fits));
  }
  return std::optional(ImportStart{first - 1, true});
}

}  // namespace

Result<std::optional<ImportStart>> choose_start(const Dialect& dialect, Store& source,
                                                const ImportOptions& options, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> versions, dialect.versions(source));
  if (!options.base.empty()) return start_from_base(dialect, source, versions, options, pool);
  const uint64_t from = options.range.from.value_or(0);
  for (const uint64_t candidate : versions) {
    if (candidate < from) continue;
    DW_ASSIGN_OR_RETURN(const auto version, dialect.open(source, candidate));
    if (version->info().full) return std::optional(ImportStart{candidate, false});
    if (options.range.from) break;
  }
  if (versions.empty() || versions.back() < from) return std::optional<ImportStart>();
  return invalid_argument(source.url() +
                          (options.range.from ? ": version " + number(from) + " is not whole"
                                              : ": no version is whole") +
                          ", so the chain needs the checkpoint that the first one is applied to");
}

}  // namespace deltawire
