#include "replica/recognise.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "replica/prove_files.h"
#include "replica/side_files.h"
#include "tensor/sharded_index.h"

namespace deltawire {
namespace fs = std::filesystem;
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

namespace {}  // namespace

Result<std::optional<LocalState>> find_lost_state(const Chain& chain, const LocalLayout& layout,
                                                  bool copy_on_write, uint64_t newest,
                                                  ThreadPool* pool) {
  const std::vector<uint64_t> folders = version_folders(layout.root);
  if (copy_on_write && folders.empty()) return std::optional<LocalState>();
  const fs::path folder = copy_on_write ? layout.version(folders.back()) : layout.root;
  Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) return std::optional<LocalState>();
  std::vector<std::string> weights;
  for (const CheckpointFile& file : checkpoint->files()) weights.push_back(file.name);
  const std::set<std::string> all(weights.begin(), weights.end());
  if (checkpoint->has_index()) weights.emplace_back(kIndexFileName);
  LocalState state;
  DW_ASSIGN_OR_RETURN(state.weights, stamp_files(folder, weights));
  checkpoint = Checkpoint::open(folder);  // what was stamped, should a file have been replaced
  if (!checkpoint.ok()) return std::optional<LocalState>();
  std::optional<VersionRecord> found;
  DW_ASSIGN_OR_RETURN(
      const std::optional<Held> held,
      recognise_version(chain, newest, [&](const VersionRecord& record) -> Result<bool> {
        const Status status = check_files(*checkpoint, record.manifest, all, pool);
        if (status.code() == Code::kBaseMismatch) return false;
        DW_RETURN_IF_ERROR(Status(status));
        found = record;
        return true;
      }));
  if (!held || find_edited(folder, state.weights)) return std::optional<LocalState>();
  if (copy_on_write && held->version != folders.back()) return std::optional<LocalState>();
  state.copy_on_write = copy_on_write;
  state.replica.run = chain.run();
  state.replica.version = held->version;
  state.replica.manifest = held->manifest.hex();
  state.replica.state = found->manifest.state.hex();
  DW_ASSIGN_OR_RETURN(state.sides, find_side_files(folder, found->manifest.files));
  return std::optional(std::move(state));
}

}  // namespace deltawire
