// The digests of a state, and what a version that is stored whole is made of.
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
  // What a box adds to its tensor. None: its rows cut many words.
  std::optional<Sums> sums = {};
};

// The version before, if there is one.
struct ParentState {
  const Manifest* manifest = nullptr;
  const Schema* schema = nullptr;
};

// A tensor's record without its digest.
PieceRecord piece_of(const PublishTensor& tensor);

// Whether it must say what it adds to its tensor. Words that are cut take space in every manifest:
// where there are many, the tensor has the digests of its boxes alone.
bool wants_sums(const PieceRecord& piece);
// The tensors, each in a StableBody.
using Contents = std::vector<std::shared_ptr<const Body>>;
Contents contents_of(std::span<const PublishTensor> tensors, PublishDevice* device);
// Sets digest and sums of these pieces by their contents, which are read once.
Status hash_pieces(const Contents& contents, const std::vector<size_t>& which, ThreadPool* pool,
                   std::vector<PieceRecord>* pieces);

// All of a checkpoint, in its order.
std::vector<PublishTensor> tensors_of(const Checkpoint& checkpoint);

// All pieces by their digests alone. `changed` is set where the parent's digest is another. Quick:
// for those who only want to know whether anything changed.
Result<std::vector<PieceRecord>> hash_state(std::span<const PublishTensor> tensors,
                                            const ParentState& parent, PublishDevice* device,
                                            ThreadPool* pool);
// Digests that are known of whole tensors, by name: those are not read again.
using KnownDigests = std::map<std::string, Digest>;
// The same through `contents`: what others read from those has these digests.
Result<std::vector<PieceRecord>> hash_contents(std::span<const PublishTensor> tensors,
                                               const Contents& contents, const ParentState& parent,
                                               ThreadPool* pool,
                                               const KnownDigests* known = nullptr);
// Corruption, naming the tensor, when contents do not have the digests of `pieces`.
Status check_contents(const Contents& contents, const std::vector<PieceRecord>& pieces,
                      ThreadPool* pool, const KnownDigests* known = nullptr);

}  // namespace deltawire
