#include "publish/fp8_made.h"

#include "tensor/text.h"

namespace deltawire {

Status Fp8Made::read(uint64_t offset, MutableBytes out) const {
  if (offset != 0 || out.size() != size()) return internal_error("FP8 blocks are made whole");
  const cuda::Fp8Task task{weights_, nullptr, nullptr, out.data()};
  DW_ASSIGN_OR_RETURN(const std::vector<cuda::Fp8Outcome> done,
                      cuda::quantise_fp8({&task, 1}, cuda::Fp8Digests::kNone, nullptr));
  return done[0].bounded ? Status() : invalid_argument("NaN or an infinity cannot be quantised");
}

const cuda::Fp8Weights* fp8_of(const Body* made) {
  const auto* const own = dynamic_cast<const Fp8Made*>(made);
  return own == nullptr ? nullptr : &own->weights();
}

Status unbounded_weights(const std::string& tensor) {
  return invalid_argument("tensor " + quote(tensor) +
                          ": holds NaN or an infinity, and cannot be quantised");
}

}  // namespace deltawire
