#include "delta/patched_digest.h"

#include "digest/parallel.h"
#include "digest/sum_changes.h"

namespace deltawire {

BothDigests digests_around(unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool) {
  return digests_around(sums_of(bytes, 0, pool), width, bytes, changes, pool);
}

BothDigests digests_around(Sums sums, unsigned width, Bytes bytes, const ChangeSpan& changes,
                           ThreadPool* pool) {
  const Digest before = *sums.finish(bytes.size());
  replace_elements(width, bytes, changes.positions, changes.values, pool, &sums);
  return {before, *sums.finish(bytes.size())};
}

}  // namespace deltawire
