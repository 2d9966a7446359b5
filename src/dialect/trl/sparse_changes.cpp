#include "dialect/trl/sparse_changes.h"

#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/elements.h"
#include "tensor/text.h"

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

namespace {

// Calls use(stored) for each change: its position, or its gap.
template <class Use>
void for_each_stored(const std::vector<ChunkChanges>& chunks, bool gaps, const Use& use) {
  uint64_t resume = 0;
  for (const ChunkChanges& chunk : chunks) {
    for (const uint32_t inside : chunk.positions) {
      const uint64_t position = chunk.base + inside;
      use(gaps ? position - resume : position);
      resume = position + 1;
    }
  }
}

template <class Stored>
void write_positions(const std::vector<ChunkChanges>& chunks, bool gaps, uint8_t* out) {
  for_each_stored(chunks, gaps, [&](uint64_t stored) {
    store_le(out, Stored(stored));
    out += sizeof(Stored);
  });
}

Result<SparseChanges> collect(unsigned width, Bytes old_bytes, Bytes new_bytes, bool gaps,
                              ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const std::vector<ChunkChanges> chunks,
                      collect_chunks(width, old_bytes, new_bytes, pool));
  SparseChanges changes;
  changes.count = count_changes(chunks);
  uint64_t largest = 0;
  for_each_stored(chunks, gaps, [&](uint64_t stored) { largest = std::max(largest, stored); });
  changes.position_width = gaps && largest <= 0xffff ? 2 : 4;
  changes.positions.resize(changes.count * changes.position_width);
  if (changes.position_width == 2) {
    write_positions<uint16_t>(chunks, gaps, changes.positions.data());
  } else {
    write_positions<uint32_t>(chunks, gaps, changes.positions.data());
  }
  changes.values.reserve(changes.count * width);
  for (const ChunkChanges& chunk : chunks) {
    changes.values.insert(changes.values.end(), chunk.values.begin(), chunk.values.end());
  }
  return changes;
}

}  // namespace

Result<SparseChanges> collect_sparse(unsigned width, Bytes old_bytes, Bytes new_bytes, bool gaps,
                                     ThreadPool* pool) {
  if (old_bytes.size() != new_bytes.size() || new_bytes.size() / width > kMaxSparseElements) {
    return invalid_argument("arrays of " + std::to_string(old_bytes.size()) + " and " +
                            std::to_string(new_bytes.size()) + " bytes");
  }
  return collect(width, old_bytes, new_bytes, gaps, pool);
}

namespace {

std::string quoted_tensor(std::string_view name) { return "tensor " + quote(name); }

}  // namespace

Status check_sparse_draft(const ForeignDraft& draft) {
  const auto refuse = [](const std::string& what) {
    return unsupported("TRL's delta format cannot express that " + what +
                       "; instead: export an anchor (a whole version)");
  };
  if (!draft.removed.empty()) return refuse(quoted_tensor(draft.removed[0]) + " was removed");
  if (!draft.added.empty()) {
    return refuse(quoted_tensor(draft.added[0]) + " is new, or of another dtype or shape");
  }
  if (draft.base + 1 != draft.version) {
    return refuse("version " + std::to_string(draft.version) + " goes onto version " +
                  std::to_string(draft.base) + ", not on the version before it");
  }
  for (const TensorSpec& spec : draft.tensors) {
    DW_ASSIGN_OR_RETURN(const uint64_t elements, num_elements(spec.shape));
    if (dtype_bits(spec.dtype) % 8 != 0) {
      return refuse(quoted_tensor(spec.name) + " of " + std::string(dtype_name(spec.dtype)) +
                    " changed: sub-byte dtypes are not supported");
    }
    if (elements > kMaxSparseElements) {
      return refuse(quoted_tensor(spec.name) + " changed: it has " + std::to_string(elements) +
                    " elements, positions are int32");
    }
  }
  return {};
}

}  // namespace deltawire
