#include "serve/api/version_history.h"

#include <algorithm>
#include <bit>

#include "base/clock.h"

namespace deltawire {

void VersionSums::add(const VersionSums& other) {
  num_versions += other.num_versions;
  num_full += other.num_full;
  num_deltas += other.num_deltas;
  num_watched += other.num_watched;
  num_failed += other.num_failed;
  bytes += other.bytes;
  milliseconds += other.milliseconds;
  shares += other.shares;
  created = std::max(created, other.created);
}

VersionGrid VersionGrid::over(uint64_t from, uint64_t to, uint64_t most_columns) {
  VersionGrid grid;
  while (to / grid.step - from / grid.step >= most_columns) grid.step *= 2;
  grid.first = from / grid.step * grid.step;
  grid.num_columns = size_t(to / grid.step - from / grid.step + 1);
  return grid;
}

void VersionHistory::add(const Manifest& m, int64_t created) {
  VersionSums sums;
  sums.num_versions = 1;
  sums.num_full = m.kind == VersionKind::kFull;
  sums.bytes = m.part_bytes();
  sums.milliseconds = m.milliseconds;
  sums.created = created;
  if (m.kind == VersionKind::kDelta && m.elements != 0) {
    sums.num_deltas = 1;
    sums.shares = double(m.changed) / double(m.elements);
  }
  add(m.version, sums);
}

void VersionHistory::add_failed(uint64_t version, uint32_t num_failed) {
  VersionSums sums;
  sums.num_watched = 1;
  sums.num_failed = num_failed;
  add(version, sums);
}

void VersionHistory::add(uint64_t version, const VersionSums& sums) {
  for (size_t level = 0; level < kLevels; ++level) levels_[level][version >> level].add(sums);
}

std::optional<int64_t> VersionHistory::created(uint64_t version) const {
  const VersionSums* const own = find(0, version);
  // Of a version that was just published its failed attempts may be known first.
  if (own == nullptr || own->num_versions == 0) return {};
  return own->created;
}

const VersionSums* VersionHistory::column(const VersionGrid& grid, size_t column) const {
  return find(size_t(std::countr_zero(grid.step)), grid.begin(column));
}

const VersionSums* VersionHistory::find(size_t level, uint64_t version) const {
  const auto found = levels_[level].find(version >> level);
  return found == levels_[level].end() ? nullptr : &found->second;
}

}  // namespace deltawire
