#include "sync/replica/lost_state.h"

#include <algorithm>
#include <atomic>

#include "deltawire/checkpoint.h"
#include "sync/replica/recognise.h"
#include "sync/replica/side_files.h"
#include "sync/tensor_digest.h"
#include "sync/waves.h"
#include "tensor/sharded_index.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

bool same_forms(const Checkpoint& checkpoint, const Schema& schema) {
  return std::equal(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                    schema.tensors.begin(), schema.tensors.end(),
                    [](const CheckpointTensor& own, const Schema::Tensor& other) {
                      return own.view.name == other.name && own.view.dtype == other.dtype &&
                             own.view.shape == other.shape;
                    });
}

Result<bool> holds(const Checkpoint& checkpoint, const Schema& schema, const Manifest& manifest,
                   ThreadPool* pool) {
  if (!same_forms(checkpoint, schema)) return false;
  DW_RETURN_IF_ERROR(states_of(schema, manifest).status());
  const std::span<const CheckpointTensor> tensors = checkpoint.tensors();
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  // A small tensor shows soon that it is another version.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return tensors[a].view.bytes.size() < tensors[b].view.bytes.size();
  });
  std::vector<uint64_t> sizes;
  for (const size_t i : order) sizes.push_back(tensors[i].view.bytes.size());
  std::atomic<bool> differs{false};
  const auto check = [&](size_t n, ThreadPool*) -> Status {
    if (differs) return {};
    const TensorView& view = tensors[order[n]].view;
    const auto boxes = manifest.boxes.find(view.name);
    const Digest got = tensor_digest(manifest.digest_kind, view.dtype, view.shape, view.bytes,
                                     boxes == manifest.boxes.end() ? nullptr : &boxes->second);
    if (got != manifest.digests[order[n]]) differs = true;
    return {};
  };
  DW_RETURN_IF_ERROR(
      Waves(std::move(sizes), Waves::Inside::kOneThread, pool, {}).run(check, [](size_t) {
        return Status();
      }));
  return !differs;
}

}  // namespace

Result<std::optional<LocalState>> find_lost_state(const Chain& chain, const LocalLayout& layout,
                                                  bool copy_on_write, uint64_t newest,
                                                  ThreadPool* pool) {
  const fs::path folder = copy_on_write ? layout.current() : layout.root;
  const Result<Checkpoint> checkpoint = Checkpoint::open(folder);
  if (!checkpoint.ok()) return std::optional<LocalState>();
  std::optional<VersionRecord> found;
  DW_ASSIGN_OR_RETURN(
      const std::optional<Held> held,
      recognise_version(chain, newest, [&](const VersionRecord& record) -> Result<bool> {
        DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(record.manifest));
        DW_ASSIGN_OR_RETURN(const bool same, holds(*checkpoint, schema, record.manifest, pool));
        if (same) found = record;
        return same;
      }));
  if (!held) return std::optional<LocalState>();
  std::error_code error;
  if (copy_on_write &&
      fs::read_symlink(layout.current(), error) != layout.version(held->version).filename()) {
    return std::optional<LocalState>();
  }
  LocalState state;
  state.copy_on_write = copy_on_write;
  state.replica.run = chain.run();
  state.replica.version = held->version;
  state.replica.manifest = held->manifest.hex();
  state.replica.state = found->manifest.state.hex();
  std::vector<std::string> weights;
  for (const CheckpointFile& file : checkpoint->files()) weights.push_back(file.name);
  if (checkpoint->has_index()) weights.emplace_back(kIndexFileName);
  DW_ASSIGN_OR_RETURN(state.weights, stamp_files(folder, weights));
  DW_ASSIGN_OR_RETURN(state.sides, find_side_files(folder, found->manifest.files));
  return std::optional(std::move(state));
}

}  // namespace deltawire
