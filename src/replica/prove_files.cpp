#include "replica/prove_files.h"

#include <algorithm>

#include "base/waves.h"
#include "format/tensor_digest.h"
#include "replica/journal.h"
#include "replica/tensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// The state digest covers names, dtypes and shapes along with the digests.
Status check_forms(const Checkpoint& checkpoint, const Manifest& manifest) {
  Schema own;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    own.tensors.push_back({tensor.view.name, tensor.view.dtype, tensor.view.shape});
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
                         ": not what the manifest says: " + digest_difference(expected, got));
  };
  return Waves(std::move(sizes), Waves::Inside::kOneThread, pool, {}).run(check, [](size_t) {
    return Status();
  });
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
    return base_mismatch(*edited + ": it changes while it is read");
  }
  return before;
}

}  // namespace deltawire
