// Verifies weights that several processes hold together, without moving them: each sums its pieces
// of every tensor, and the sums of all processes give the tensors' digests. Uses sum128, which is
// additive.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/digest.h"
#include "deltawire/manifest.h"
#include "deltawire/tensor.h"

namespace deltawire {

// A tensor, or a box of it, in host memory.
struct HeldPiece : TensorSpec {  // of the whole tensor
  Box box;
  std::span<const uint8_t> bytes;  // the box's contents, row by row
};

// The same with sums computed elsewhere, as by cuda::Context::sums().
struct SummedPiece : TensorSpec {
  Box box;
  Sums sums;
};

using Digests = std::map<std::string, Digest>;  // by name of a tensor

class Proof {
 public:
  // What this process holds. InvalidArgument for a box that its tensor does not have, for other
  // bytes than it has, and for a tensor in two forms. `threads`: 0 is one for each core.
  Status add(std::span<const HeldPiece> pieces, unsigned threads = 0);
  Status add_summed(std::vector<SummedPiece> pieces);
  // What another process holds.
  Status add(const Proof& other);
  // A box that is added twice counts once. If its bytes differ, the functions above add everything
  // and then return BaseMismatch naming it; differing() lists all such tensors.
  std::vector<std::string> differing() const;

  size_t num_tensors() const noexcept { return tensors_.size(); }
  // The digests of all tensors but those in differing(), by name. InvalidArgument, naming a tensor,
  // when its boxes overlap or leave something out.
  Result<Digests> digests() const;
  // Tensors in differing(), and those with other digests than these. InvalidArgument as digests().
  Result<std::vector<std::string>> differing_from(const Digests& digests) const;
  // Compares the digests with those of a version. BaseMismatch names the tensors that differ;
  // InvalidArgument as digests(); Unsupported when a tensor was published in boxes without sums.
  Status check(const Schema& schema, const Manifest& manifest) const;

  // Serialised as JSON for other processes. parse() returns Corruption for malformed text.
  std::string to_text() const;
  static Result<Proof> parse(std::string_view text);

 private:
  struct Piece {
    Box box;
    Sums sums;
  };
  struct Tensor : TensorSpec {
    std::vector<Piece> pieces;
  };
  Status add_piece(TensorSpec spec, Piece piece);
  Status check_same() const;
  static Result<Digest> digest_of_tensor(const std::string& name, const Tensor& tensor);

  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> differing_;  // tensor -> its box that differs
};

}  // namespace deltawire
