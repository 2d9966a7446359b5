// The digests of a state, and the contents of a version stored whole.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "deltawire/checkpoint.h"
#include "diff/device.h"
#include "format/manifest.h"

namespace deltawire {

// A tensor of the new state, or a box of one.
struct PieceRecord : TensorSpec {  // of the tensor
  Box box;
  Digest digest;  // of the contents
  bool changed = false;
  uint64_t num_elements = 0;  // compared, or new
  uint64_t num_changed = 0;
  // What a box adds to its tensor's sums. None if its rows cut many words.
  std::optional<Sums> sums = {};
};

// The previous version, if any.
struct ParentState {
  const Manifest* manifest = nullptr;
  const Schema* schema = nullptr;
};

// A tensor's record without its digest.
PieceRecord piece_of(const PublishTensor& tensor);

// Whether the piece needs sums. Words that are cut take space in every manifest; if there are many,
// the tensor's digest covers digests of boxes instead.
bool wants_sums(const PieceRecord& piece);
// The tensors, each in a StableBody.
using Contents = std::vector<std::shared_ptr<const Body>>;
Contents contents_of(std::span<const PublishTensor> tensors, PublishDevice* device);
// Computes digests and sums of these pieces, reading their contents once.
Status hash_pieces(const Contents& contents, const std::vector<size_t>& which, ThreadPool* pool,
                   std::vector<PieceRecord>* pieces);

// All tensors of a checkpoint, in order.
std::vector<PublishTensor> tensors_of(const Checkpoint& checkpoint);

// Computes only digests, and sets `changed` where the parent's digest differs. Fast; for callers
// that only need to know what changed.
Result<std::vector<PieceRecord>> hash_state(std::span<const PublishTensor> tensors,
                                            const ParentState& parent, PublishDevice* device,
                                            ThreadPool* pool);
// Known digests of whole tensors, by name, which are not computed again.
using KnownDigests = std::map<std::string, Digest>;
// The same through `contents`: other readers of `contents` see bytes with these digests.
Result<std::vector<PieceRecord>> hash_contents(std::span<const PublishTensor> tensors,
                                               const Contents& contents, const ParentState& parent,
                                               ThreadPool* pool,
                                               const KnownDigests* known = nullptr);
// Corruption, naming the tensor, if `contents` do not match the digests of `pieces`.
Status check_contents(const Contents& contents, const std::vector<PieceRecord>& pieces,
                      ThreadPool* pool, const KnownDigests* known = nullptr);

}  // namespace deltawire
