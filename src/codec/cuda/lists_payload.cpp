#include "codec/cuda/lists_payload.h"

#include "codec/checks.h"
#include "codec/gaps_body.h"

namespace deltawire::cuda {

Result<ListsPayload> open_lists(unsigned width, uint64_t num_elements, Bytes payload) {
  DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(num_elements, &payload));
  const uint64_t record = header.gap_width + width;
  if (payload.size() / record != header.count || payload.size() % record != 0) {
    return bad_payload("size of gaps and values", header.count * record, payload.size());
  }
  return ListsPayload{header.gap_width, header.count, payload};
}

}  // namespace deltawire::cuda
