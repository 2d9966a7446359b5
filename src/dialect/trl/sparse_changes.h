// Changes of one tensor as TRL's patches have them: positions, then values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/status.h"
#include "dialect/dialect.h"

namespace deltawire {

// Positions count elements. They may be unaligned, and they are untrusted.
struct SparsePositions {
  Bytes bytes;
  unsigned width = 4;  // of one: 2 (gaps alone) or 4 bytes
  // True: how many elements lie between a change and the one before it. False: absolute, int32.
  bool gaps = false;

  uint64_t count() const noexcept { return bytes.size() / width; }
};

// Positions are int32 for receivers, also where files have room for more.
inline constexpr uint64_t kMaxSparseElements = uint64_t{1} << 31;

// One past the last position; 0 where there is none. Corruption unless all of them ascend and are
// below kMaxSparseElements.
Result<uint64_t> sparse_positions_end(const SparsePositions& positions);

// Writes values of `width` bytes each (1, 2, 4 or 8) to their positions. Looks at each position
// again: the file may be mapped, and another process may be writing to it. Corruption when one does
// not ascend or lies outside; `data` may have been written to by then.
Status scatter_sparse(const SparsePositions& positions, unsigned width, Bytes values,
                      MutableBytes data);

// What a writer puts into a file.
struct SparseChanges {
  uint64_t count = 0;
  unsigned position_width = 4;  // gaps: 2 where all of them fit
  std::vector<uint8_t> positions, values;
};

// What differs between two arrays of equal size, by bytes. At most kMaxSparseElements elements.
Result<SparseChanges> collect_sparse(unsigned width, Bytes old_bytes, Bytes new_bytes, bool gaps,
                                     ThreadPool* pool);

// Unsupported if a patch cannot express the draft: a tensor was removed, added or changed its form,
// has elements smaller than a byte or too many elements, or the base is not the previous version.
Status check_sparse_draft(const ForeignDraft& draft);

}  // namespace deltawire
