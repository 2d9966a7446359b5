// A payload of `gaps`, taken apart as far as the host does it.
#pragma once

#include "codec/codec.h"

namespace deltawire::cuda {

struct ListsPayload {
  unsigned gap_bytes = 0;
  uint64_t count = 0;  // of changes
  Bytes body;          // all gaps, then all values

  Bytes gaps() const { return body.first(count * gap_bytes); }

  // What goes to the device to be checked, or to be written too, and the room that it takes there.
  Bytes sent(bool write) const { return write ? body : gaps(); }
  uint64_t room(bool write) const { return (sent(write).size() + 15) / 16 * 16; }
};

// Corruption unless the head makes sense and the body has the size that it says. Gaps are not
// looked at.
Result<ListsPayload> open_lists(unsigned width, uint64_t num_elements, Bytes payload);

}  // namespace deltawire::cuda
