#include "diff/hash_state.h"

#include "base/waves.h"
#include "diff/computed_tensors.h"
#include "diff/diff.h"
#include "format/tensor_digest.h"
#include "store/bodies.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr uint64_t kReadBytes = uint64_t{256} << 10;

}  // namespace

PieceRecord piece_of(const PublishTensor& tensor) {
  PieceRecord piece;
  static_cast<TensorSpec&>(piece) = tensor.view;
  piece.box = tensor.box;
  return piece;
}

bool wants_sums(const PieceRecord& piece) {
  return !piece.box.whole() && !BoxRows(piece.box, piece.dtype, piece.shape).cuts_many_words();
}

Contents contents_of(std::span<const PublishTensor> tensors, PublishDevice* device) {
  Contents contents;
  for (const PublishTensor& tensor : tensors) {
    contents.push_back(std::make_shared<StableBody>(
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

Status hash_piece(const Body& contents, PieceRecord* piece) {
  if (!wants_sums(*piece)) {
    DW_ASSIGN_OR_RETURN(piece->digest, digest_of_body(DigestKind::kSum128, contents));
    return {};
  }
  const BoxRows rows(piece->box, piece->dtype, piece->shape);
  Hasher hasher(DigestKind::kSum128);
  Sums sums;
  std::vector<uint8_t> buffer(size_t(std::min(kReadBytes, contents.size())));
  for (uint64_t at = 0; at < contents.size(); at += buffer.size()) {
    buffer.resize(size_t(std::min<uint64_t>(buffer.size(), contents.size() - at)));
    DW_RETURN_IF_ERROR(contents.read(at, buffer));
    hasher.update(buffer);
    add_contents(rows, buffer, at, &sums);
  }
  piece->digest = hasher.finish();
  piece->sums = std::move(sums);
  return {};
}

}  // namespace

Status hash_pieces(const Contents& contents, const std::vector<size_t>& which, ThreadPool* pool,
                   std::vector<PieceRecord>* pieces) {
  std::vector<uint64_t> sizes;
  for (const size_t i : which) sizes.push_back(contents[i]->size());
  return Waves(std::move(sizes), Waves::Inside::kOneThread, pool, {})
      .run([&](size_t n, ThreadPool*) {
        return hash_piece(*contents[which[n]], &(*pieces)[which[n]]);
      });
}

namespace {

// Hashes all pieces whose digests are not known.
Status hash_unknown(const Contents& contents, ThreadPool* pool, const KnownDigests* known,
                    std::vector<PieceRecord>* pieces) {
  std::vector<size_t> which;
  for (size_t i = 0; i < contents.size(); ++i) {
    PieceRecord& piece = (*pieces)[i];
    if (known != nullptr && piece.box.whole() && known->contains(piece.name)) {
      piece.digest = known->at(piece.name);
    } else {
      which.push_back(i);
    }
  }
  return hash_pieces(contents, which, pool, pieces);
}

std::vector<PieceRecord> pieces_of(std::span<const PublishTensor> tensors) {
  std::vector<PieceRecord> pieces;
  for (const PublishTensor& tensor : tensors) pieces.push_back(piece_of(tensor));
  return pieces;
}

void compare(std::span<const PublishTensor> tensors, const ParentState& parent,
             std::vector<PieceRecord>* pieces) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    PieceRecord& piece = (*pieces)[i];
    const std::optional<Digest> known = known_digest(parent, tensors[i].view, piece.box);
    piece.changed = !known || *known != piece.digest;
  }
}

}  // namespace

Result<std::vector<PieceRecord>> hash_state(std::span<const PublishTensor> tensors,
                                            const ParentState& parent, PublishDevice* device,
                                            ThreadPool* pool) {
  std::vector<PieceRecord> pieces = pieces_of(tensors);
  std::vector<const PublishTensor*> there;
  std::vector<uint64_t> sizes;
  std::vector<size_t> here_at, there_at;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (on_device(tensors[i])) {
      there.push_back(&tensors[i]);
      there_at.push_back(i);
    } else {
      sizes.push_back(published_bytes(tensors[i]));
      here_at.push_back(i);
    }
  }
  if (!there.empty()) {
    DW_ASSIGN_OR_RETURN(const std::vector<Digest> found, device->digests(there));
    for (size_t i = 0; i < found.size(); ++i) pieces[there_at[i]].digest = found[i];
  }
  const auto hash = [&](size_t i, ThreadPool*) -> Status {
    DW_ASSIGN_OR_RETURN(pieces[here_at[i]].digest, published_digest(tensors[here_at[i]]));
    return {};
  };
  DW_RETURN_IF_ERROR(Waves(std::move(sizes), Waves::Inside::kOneThread, pool, {}).run(hash));
  compare(tensors, parent, &pieces);
  return pieces;
}

Result<std::vector<PieceRecord>> hash_contents(std::span<const PublishTensor> tensors,
                                               const Contents& contents, const ParentState& parent,
                                               ThreadPool* pool, const KnownDigests* known) {
  std::vector<PieceRecord> pieces = pieces_of(tensors);
  DW_RETURN_IF_ERROR(hash_unknown(contents, pool, known, &pieces));
  compare(tensors, parent, &pieces);
  return pieces;
}

Status check_contents(const Contents& contents, const std::vector<PieceRecord>& pieces,
                      ThreadPool* pool, const KnownDigests* known) {
  if (pieces.empty()) return {};
  std::vector<PieceRecord> got = pieces;
  DW_RETURN_IF_ERROR(hash_unknown(contents, pool, known, &got));
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (got[i].digest == pieces[i].digest) continue;
    return corruption("tensor " + quote(pieces[i].name) +
                      ": changed since the version was published: expected " +
                      pieces[i].digest.hex() + ", got " + got[i].digest.hex());
  }
  return {};
}

}  // namespace deltawire
