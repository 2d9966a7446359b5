// A payload of `indices` or `gaps`, taken apart as far as the host does it.
#pragma once

#include "codec/codec.h"

namespace deltawire::cuda {

struct ListsPayload {
  unsigned entry_bytes = 0;  // of a position
  bool absolute = false;     // else a position is a gap
  uint64_t count = 0;        // of changes
  Bytes body;                // all positions, then all values

  Bytes positions() const { return body.first(count * entry_bytes); }
  Bytes values() const { return body.subspan(count * entry_bytes); }

  // What goes to the device to be checked, or to be written too, and the room that it takes there.
  Bytes sent(bool write) const { return write ? body : positions(); }
  uint64_t room(bool write) const { return (sent(write).size() + 15) / 16 * 16; }
};

// Corruption unless the head makes sense and the body has the size that it says. Positions are not
// looked at.
Result<ListsPayload> open_lists(CodecId codec, unsigned width, uint64_t num_elements,
                                Bytes payload);

}  // namespace deltawire::cuda
