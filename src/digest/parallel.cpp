#include "digest/parallel.h"

#include <algorithm>
#include <vector>

#include "kernels/sum_math.h"

namespace deltawire {
namespace {

// Threads get whole words, because cut words allocate memory and loops of a pool must not throw.
constexpr size_t kWord = sum128::kWordBytes, kStretchBytes = size_t{1} << 20;

}  // namespace

void update_all(Hasher* hasher, Bytes bytes, ThreadPool* pool) {
  if (pool == nullptr) return hasher->update(bytes);
  const size_t words = bytes.size() / kWord * kWord;
  parallel_for(pool, (words + kStretchBytes - 1) / kStretchBytes, [&](size_t i, unsigned) {
    const size_t at = i * kStretchBytes;
    hasher->update_at(bytes.subspan(at, std::min(kStretchBytes, words - at)), at);
  });
  hasher->update_at(bytes.subspan(words), words);
}

Sums sums_of(Bytes bytes, uint64_t offset, ThreadPool* pool) {
  std::vector<Sums> workers(num_workers(pool));
  const size_t head = std::min<size_t>(bytes.size(), -offset % kWord);
  const size_t words = (bytes.size() - head) / kWord * kWord;
  workers[0].add(bytes.first(head), offset);
  workers[0].add(bytes.subspan(head + words), offset + head + words);
  parallel_for(pool, (words + kStretchBytes - 1) / kStretchBytes, [&](size_t i, unsigned worker) {
    const size_t at = head + i * kStretchBytes;
    workers[worker].add(bytes.subspan(at, std::min(kStretchBytes, head + words - at)), offset + at);
  });
  for (size_t i = 1; i < workers.size(); ++i) workers[0].add(workers[i]);
  return workers[0];
}

Digest sum128_of(Bytes bytes, ThreadPool* pool) {
  if (pool == nullptr) return digest_of(DigestKind::kSum128, bytes);
  return *sums_of(bytes, 0, pool).finish(bytes.size());
}

}  // namespace deltawire
