#include "format/tensor_digest.h"

#include <algorithm>
#include <vector>

#include "base/guard.h"
#include "digest/parallel.h"
#include "tensor/box.h"

namespace deltawire {

Digest box_digest(DType dtype, const Shape& shape, Bytes tensor, const Box& box) {
  if (box.whole()) return digest_of(DigestKind::kSum128, tensor);
  const BoxRows rows(box, dtype, shape);
  Hasher hasher(DigestKind::kSum128);
  for (uint64_t row = 0; row < rows.count(); ++row) {
    hasher.update(tensor.subspan(rows.position(row), rows.row_bytes()));
  }
  return hasher.finish();
}

Digest tensor_digest(DType dtype, const Shape& shape, Bytes bytes,
                     const std::vector<BoxDigest>* boxes) {
  if (boxes == nullptr) return digest_of(DigestKind::kSum128, bytes);
  std::vector<BoxDigest> computed;
  for (const BoxDigest& box : *boxes) {
    computed.push_back({box.box, box_digest(dtype, shape, bytes, box.box)});
  }
  return boxes_digest(computed, bytes.size()).value();  // they have no sums
}

Sums added_up(std::vector<Sums> parts) {
  if (parts.empty()) return {};
  for (size_t step = 1; step < parts.size(); step *= 2) {
    for (size_t i = 0; i + step < parts.size(); i += 2 * step) parts[i].add(parts[i + step]);
  }
  return std::move(parts[0]);
}

void add_contents(const BoxRows& rows, Bytes bytes, uint64_t offset, Sums* sums) {
  while (!bytes.empty()) {
    const uint64_t row = offset / rows.row_bytes(), skip = offset % rows.row_bytes();
    const size_t count = size_t(std::min<uint64_t>(bytes.size(), rows.row_bytes() - skip));
    sums->add(bytes.first(count), rows.position(row) + skip);
    bytes = bytes.subspan(count);
    offset += count;
  }
}

Result<Sums> sums_of_box(const BoxRows& rows, Bytes contents, ThreadPool* pool) {
  constexpr uint64_t kRowsOfATask = 256;
  if (rows.count() == 1) return sums_of(contents, rows.position(0), pool);
  std::vector<Sums> tasks((rows.count() + kRowsOfATask - 1) / kRowsOfATask);
  DW_RETURN_IF_ERROR(
      parallel_try("hashing", pool, tasks.size(), [&](size_t task, unsigned) -> Status {
        const uint64_t begin = task * kRowsOfATask * rows.row_bytes();
        const uint64_t size = std::min(kRowsOfATask * rows.row_bytes(), contents.size() - begin);
        add_contents(rows, contents.subspan(begin, size), begin, &tasks[task]);
        return {};
      }));
  return added_up(std::move(tasks));
}

}  // namespace deltawire
