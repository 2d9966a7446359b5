#include "dialect/sparse_changes.h"

#include "codec/checks.h"
#include "codec/elements.h"

namespace deltawire {
namespace {

Status outside(uint64_t change, uint64_t lowest, uint64_t num_elements, uint64_t position) {
  return bad_payload("position of change " + std::to_string(change),
                     std::to_string(lowest) + " to below " + std::to_string(num_elements),
                     position);
}

// Calls use(change, position) for each of them. A negative int32 is merely out of range.
template <class Use>
Status for_each_position(const SparsePositions& positions, uint64_t num_elements, const Use& use) {
  const auto visit = [&]<class Stored>(Stored) -> Status {
    const uint8_t* at = positions.bytes.data();
    const uint64_t count = positions.count();
    uint64_t lowest = 0;
    for (uint64_t i = 0; i < count; ++i, at += sizeof(Stored)) {
      const uint64_t stored = load_le<Stored>(at);
      const uint64_t position = positions.gaps ? lowest + stored : stored;
      if (position < lowest || position >= num_elements) [[unlikely]] {
        return outside(i, lowest, num_elements, position);
      }
      use(i, position);
      lowest = position + 1;
    }
    return {};
  };
  return positions.width == 2 ? visit(uint16_t{}) : visit(uint32_t{});
}

}  // namespace

Result<uint64_t> sparse_positions_end(const SparsePositions& positions) {
  uint64_t end = 0;
  DW_RETURN_IF_ERROR(for_each_position(positions, kMaxSparseElements,
                                       [&](uint64_t, uint64_t position) { end = position + 1; }));
  return end;
}

uint64_t sparse_position(const SparsePositions& positions, uint64_t change) {
  SparsePositions until = positions;
  until.bytes = positions.bytes.first((change + 1) * positions.width);
  const auto end = sparse_positions_end(until);
  return end.ok() ? *end - 1 : 0;
}

Status scatter_sparse(const SparsePositions& positions, unsigned width, Bytes values,
                      MutableBytes data) {
  if (values.size() / width != positions.count() || values.size() % width != 0) {
    return bad_payload("bytes of values", positions.count() * width, values.size());
  }
  return with_element(width, [&]<class Element>(Element) -> Status {
    return for_each_position(positions, data.size() / width,
                             [&](uint64_t change, uint64_t position) {
                               store_le(data.data() + position * sizeof(Element),
                                        load_le<Element>(values.data() + change * sizeof(Element)));
                             });
  });
}

}  // namespace deltawire
