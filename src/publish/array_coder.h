// Tensors that are coded where they are, on a GPU: what comes from there is what is put.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "codec/exponents.h"
#include "deltawire/digest.h"

namespace deltawire {

// A whole array as blocks of `exponents`. Any thread.
class ArrayCoder {
 public:
  virtual ~ArrayCoder() = default;
  virtual Result<std::vector<exponents::BlockPlan>> plan() const = 0;
  // Blocks from `first` on, as many as there are plans, one after the other, to `out`, which has
  // their size. Io if they are not as planned.
  virtual Status code(size_t first, std::span<const exponents::BlockPlan> plans,
                      MutableBytes out) const = 0;
};

// Whole tensors of one look at a GPU. Nobody there holds what is read against what was read before,
// as StableBody does: the last look has to find what the first one has found.
struct CodedThere {
  std::map<std::string, std::shared_ptr<const ArrayCoder>> coders = {};  // by tensor
  std::map<std::string, Digest> digests = {};                            // of the first look
  // The last look: Io, naming the tensor, unless it is what it was. Empty without coders.
  std::function<Status()> check_unchanged = {};
};

}  // namespace deltawire
