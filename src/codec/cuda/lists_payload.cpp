#include "codec/cuda/lists_payload.h"

#include "codec/checks.h"
#include "codec/gaps_body.h"
#include "codec/indices_body.h"
#include "codec/leb128.h"

namespace deltawire::cuda {

Result<ListsPayload> open_lists(CodecId codec, unsigned width, uint64_t num_elements,
                                Bytes payload) {
  ListsPayload lists;
  lists.body = payload;
  lists.absolute = codec == CodecId::kIndices;
  if (!lists.absolute) {
    DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(num_elements, &lists.body));
    lists.entry_bytes = header.gap_width;
    lists.count = header.count;
  } else {
    lists.entry_bytes = position_width(num_elements);
    DW_RETURN_IF_ERROR(take_leb128("change count", &lists.body, &lists.count));
    if (lists.count == 0 || lists.count > num_elements) {
      return bad_payload("change count", "1 to " + std::to_string(num_elements), lists.count);
    }
  }
  const uint64_t record = lists.entry_bytes + width;
  if (lists.body.size() / record != lists.count || lists.body.size() % record != 0) {
    return bad_payload("size of positions and values", lists.count * record, lists.body.size());
  }
  return lists;
}

}  // namespace deltawire::cuda
