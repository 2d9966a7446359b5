// Sums of sum128, the digest that adds up: what bytes of a tensor add to its digest, wherever they
// are. Sums of pieces that make up a tensor, however it was cut, add to the sums of all of it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/digest.h"
#include "deltawire/status.h"

namespace deltawire {

class Sums {
 public:
  // Bytes that lie at `offset` of their tensor. Cuts that are no multiples of eight bytes are
  // fine: a word that is cut is kept until its other bytes come, and takes room in to_string().
  void add(std::span<const uint8_t> bytes, uint64_t offset);
  // Those of other bytes of the same tensor.
  void add(const Sums& other);
  // Whole words of `num_bytes` in all that were summed elsewhere, in either lane. No bytes: words
  // that were added are now others, and these are their terms now, less those before.
  void add_lanes(const std::array<uint64_t, 2>& lanes, uint64_t num_bytes);

  // The tensor's digest, when each of its bytes was added once. InvalidArgument when their number
  // is wrong, and when a word that is cut has a byte twice or never. It cannot see that one whole
  // word came twice and another never: whoever adds boxes checks first that they tile the tensor
  // (Proof).
  Result<Digest> finish(uint64_t size_bytes) const;
  uint64_t num_bytes() const noexcept { return num_bytes_; }

  // For other processes: hex digits, colons and commas.
  std::string to_string() const;
  static Result<Sums> parse(std::string_view text);

  bool operator==(const Sums&) const = default;

 private:
  // A word that is cut. Bytes that are not known are zero.
  struct Edge {
    uint64_t position = 0, word = 0;
    uint8_t known = 0;  // bit i: byte i
    bool operator==(const Edge&) const = default;
  };
  void add_edge(const Edge& edge);
  Edge joined(const Edge& a, const Edge& b);

  std::array<uint64_t, 2> lanes_{};
  uint64_t num_bytes_ = 0;
  std::vector<Edge> edges_;  // positions ascend
  bool twice_ = false;       // a byte of a cut word came twice
};

}  // namespace deltawire
