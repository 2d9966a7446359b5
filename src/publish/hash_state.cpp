#include "publish/hash_state.h"

#include <numeric>

#include "base/waves.h"
#include "publish/diff.h"
#include "publish/rounding.h"
#include "store/bodies.h"
#include "store/steady_body.h"
#include "tensor/text.h"

namespace deltawire {

PieceRecord piece_of(const PublishTensor& tensor) {
  const TensorView& view = tensor.view;
  return {view.name, view.dtype, view.shape, tensor.box, {}, false, 0, 0};
}

Result<std::vector<Digest>> hash_tensors(std::span<const PublishTensor> tensors,
                                         const std::vector<size_t>& which, DigestKind kind,
                                         PublishDevice* device, ThreadPool* pool) {
  std::vector<Digest> digests(which.size());
  std::vector<const PublishTensor*> there;
  std::vector<uint64_t> sizes;
  std::vector<size_t> here_at, there_at;
  for (size_t i = 0; i < which.size(); ++i) {
    const PublishTensor& tensor = tensors[which[i]];
    if (on_device(tensor)) {
      there.push_back(&tensor);
      there_at.push_back(i);
    } else {
      sizes.push_back(published_bytes(tensor));
      here_at.push_back(i);
    }
  }
  if (!there.empty()) {
    DW_ASSIGN_OR_RETURN(const std::vector<Digest> found, device->digests(kind, there));
    for (size_t i = 0; i < found.size(); ++i) digests[there_at[i]] = found[i];
  }
  const auto hash = [&](size_t i, ThreadPool*) -> Status {
    digests[here_at[i]] = published_digest(kind, tensors[which[here_at[i]]]);
    return {};
  };
  DW_RETURN_IF_ERROR(
      Waves(std::move(sizes), Waves::Inside::kOneThread, pool, {}).run(hash, [](size_t) {
        return Status();
      }));
  return digests;
}

Contents contents_of(std::span<const PublishTensor> tensors, PublishDevice* device) {
  Contents contents;
  for (const PublishTensor& tensor : tensors) {
    contents.push_back(std::make_shared<SteadyBody>(
        on_device(tensor) ? device->body(tensor) : published_body(tensor),
        "tensor " + quote(tensor.view.name)));
  }
  return contents;
}

std::vector<PublishTensor> tensors_of(const Checkpoint& checkpoint) {
  std::vector<PublishTensor> tensors;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) tensors.push_back({tensor.view, {}});
  return tensors;
}

namespace {

Result<std::vector<Digest>> hash_bodies(const Contents& contents, DigestKind kind,
                                        ThreadPool* pool) {
  std::vector<uint64_t> sizes;
  for (const auto& body : contents) sizes.push_back(body->size());
  std::vector<Digest> digests(contents.size());
  const auto hash = [&](size_t i, ThreadPool*) -> Status {
    DW_ASSIGN_OR_RETURN(digests[i], digest_of_body(kind, *contents[i]));
    return {};
  };
  DW_RETURN_IF_ERROR(
      Waves(std::move(sizes), Waves::Inside::kOneThread, pool, {}).run(hash, [](size_t) {
        return Status();
      }));
  return digests;
}

PublishRecord record_of(std::span<const PublishTensor> tensors, const std::vector<Digest>& digests,
                        const ParentState& parent) {
  PublishRecord record;
  for (size_t i = 0; i < tensors.size(); ++i) {
    PieceRecord piece = piece_of(tensors[i]);
    piece.digest = digests[i];
    const std::optional<Digest> known = known_digest(parent, tensors[i].view, piece.box);
    piece.changed = !known || *known != piece.digest;
    record.pieces.push_back(std::move(piece));
  }
  return record;
}

}  // namespace

Result<PublishRecord> hash_state(std::span<const PublishTensor> tensors, const ParentState& parent,
                                 DigestKind kind, PublishDevice* device, ThreadPool* pool) {
  std::vector<size_t> all(tensors.size());
  std::iota(all.begin(), all.end(), 0);
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> digests,
                      hash_tensors(tensors, all, kind, device, pool));
  return record_of(tensors, digests, parent);
}

Result<PublishRecord> hash_contents(std::span<const PublishTensor> tensors,
                                    const Contents& contents, const ParentState& parent,
                                    DigestKind kind, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> digests, hash_bodies(contents, kind, pool));
  return record_of(tensors, digests, parent);
}

Status check_contents(const Contents& contents, const std::vector<PieceRecord>& pieces,
                      ThreadPool* pool) {
  if (pieces.empty()) return {};
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> got,
                      hash_bodies(contents, pieces[0].digest.kind, pool));
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (got[i] == pieces[i].digest) continue;
    return corruption("tensor " + quote(pieces[i].tensor) +
                      ": changed since the version was published: expected " +
                      pieces[i].digest.hex() + ", got " + got[i].hex());
  }
  return {};
}

}  // namespace deltawire
