// A device's word on a batch of patches as a Status.
#pragma once

#include "codec/cuda/device_parts.h"
#include "kernels/cuda/lists.h"

namespace deltawire::cuda {

// `number_of` gives the number that an array of the batch has in the call.
template <class NumberOf>
Status to_status(const PatchStatus& found, const char* where, const NumberOf& number_of) {
  if (found.code == 0) return {};
  return corruption(std::string(describe(PatchError(found.code))) + ", " + where + " " +
                    std::to_string(found.where))
      .at("patch " + std::to_string(number_of(found.array)));
}

}  // namespace deltawire::cuda
