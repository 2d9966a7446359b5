// Statistics from the manifests of a chain, summed over any range of versions.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "deltawire/manifest.h"

namespace deltawire {

// Of one version, or of several.
struct VersionSums {
  uint32_t num_versions = 0, num_full = 0;
  uint32_t num_deltas = 0;                   // whose weights were compared
  uint32_t num_watched = 0, num_failed = 0;  // failed attempts to publish those that were watched
  uint64_t bytes = 0, milliseconds = 0;
  double shares = 0;    // of changed weights, of the deltas
  int64_t created = 0;  // the last of them

  void add(const VersionSums& other);
};

// A stretch of a chain in columns of `step` versions, a power of two; a column begins at a multiple
// of it.
struct VersionGrid {
  uint64_t step = 1, first = 0;  // of the first column
  size_t num_columns = 0;

  // Of at most so many columns. from <= to, 1 <= most_columns.
  static VersionGrid over(uint64_t from, uint64_t to, uint64_t most_columns);
  uint64_t begin(size_t column) const { return first + column * step; }
};

// Sums over 1, 2, 4, ... versions are kept, so that a column costs one look. About 300 bytes for
// each version. One thread.
class VersionHistory {
 public:
  void add(const Manifest& manifest, int64_t created);  // once for each version
  void add_failed(uint64_t version, uint32_t num_failed);

  bool has(uint64_t version) const { return created(version).has_value(); }
  std::optional<int64_t> created(uint64_t version) const;
  // Null: none of its versions is known.
  const VersionSums* column(const VersionGrid& grid, size_t column) const;

 private:
  static constexpr size_t kLevels = 34;  // versions have ten digits
  const VersionSums* find(size_t level, uint64_t version) const;
  void add(uint64_t version, const VersionSums& sums);

  std::vector<std::unordered_map<uint64_t, VersionSums>> levels_{kLevels};
};

}  // namespace deltawire
