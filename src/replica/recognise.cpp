#include "replica/recognise.h"

#include <algorithm>
#include <set>
#include <vector>

#include "base/thread_pool.h"
#include "base/waves.h"
#include "deltawire/checkpoint.h"
#include "format/tensor_digest.h"
#include "replica/journal.h"
#include "replica/side_files.h"
#include "replica/tensors.h"
#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// For older versions, a whole version is probably the shorter path.
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
  // opens what was stamped, in case a file was replaced meanwhile
  checkpoint = Checkpoint::open(folder);
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

namespace {

// The state digest covers names, dtypes, shapes and digests.
Status check_forms(const Checkpoint& checkpoint, const Manifest& manifest) {
  Schema own;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    own.tensors.push_back(tensor.view);
  }
  const Result<std::vector<TensorState>> states = states_of(own, manifest);
  if (states.ok() && state_digest(*states) == manifest.state) return {};
  return base_mismatch(checkpoint.path().string() + ": its tensors are not those of version " +
                       std::to_string(manifest.version));
}

}  // namespace

Status check_files(const Checkpoint& checkpoint, const Manifest& manifest,
                   const std::set<std::string>& files, ThreadPool* pool) {
  DW_RETURN_IF_ERROR(check_forms(checkpoint, manifest));
  const std::span<const CheckpointTensor> tensors = checkpoint.tensors();
  const auto file_of = [&](size_t i) -> const CheckpointFile& {
    return checkpoint.files()[tensors[i].file];
  };
  std::vector<size_t> order;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (files.contains(file_of(i).name)) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].view.bytes.size() < tensors[b].view.bytes.size();
  });
  std::vector<uint64_t> sizes;
  for (const size_t i : order) sizes.push_back(tensors[i].view.bytes.size());
  const auto check = [&](size_t n, ThreadPool*) -> Status {
    const TensorView& view = tensors[order[n]].view;
    const Digest got =
        tensor_digest(view.dtype, view.shape, view.bytes, boxes_hashed(manifest, view.name));
    const Digest& expected = manifest.digests[order[n]];
    if (got == expected) return {};
    return base_mismatch(file_of(order[n]).path.string() + ", tensor " + quote(view.name) +
                         ": does not match the manifest: " + digest_difference(expected, got));
  };
  return Waves(std::move(sizes), Waves::Inside::kOneThread, pool, {}).run(check);
}

Result<FileStamps> prove_files(const fs::path& folder, const std::vector<std::string>& weights,
                               const FileStamps& left, const Manifest& manifest, ThreadPool* pool,
                               bool* read) {
  const auto missing_is_mismatch = [](const Status& status) {
    const bool disk = status.code() == Code::kIo || status.code() == Code::kOutOfMemory;
    return disk ? status : base_mismatch(status.message());
  };
  Result<FileStamps> before = stamp_files(folder, weights);
  if (!before.ok()) return missing_is_mismatch(before.status());
  std::set<std::string> changed;
  for (const auto& [name, stamp] : *before) {
    const auto known = left.find(name);
    if (known == left.end() || known->second != stamp) changed.insert(name);
  }
  *read = !changed.empty();
  if (changed.empty()) return before;
  const Result<Checkpoint> checkpoint = open_own_checkpoint(folder, weights);
  if (!checkpoint.ok()) return missing_is_mismatch(checkpoint.status());
  DW_RETURN_IF_ERROR(check_files(*checkpoint, manifest, changed, pool));
  if (const auto edited = find_edited(folder, *before)) {
    return base_mismatch(*edited + ": changed while it was read");
  }
  return before;
}

}  // namespace deltawire
