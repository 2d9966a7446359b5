#include "codec/tight_fit.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "codec/fixed_log.h"

namespace deltawire::tight {
namespace {

constexpr int64_t kBit = int64_t{1} << kLogFraction;  // code lengths are in Q16 bits

// Merges neighbours, always the pair that costs least, while too many groups are left or that pays.
// Group needs: `Group& operator+=`, `int64_t cost() const`.
template <class Group>
void merge_neighbours(std::vector<Group>& groups, size_t max_groups) {
  std::vector<int64_t> cost, gain;  // gain[i]: what merging i and i + 1 adds to the total
  const auto gain_of = [&](size_t i) {
    Group both = groups[i];
    both += groups[i + 1];
    return both.cost() - cost[i] - cost[i + 1];
  };
  for (const Group& group : groups) cost.push_back(group.cost());
  for (size_t i = 0; i + 1 < groups.size(); ++i) gain.push_back(gain_of(i));
  while (groups.size() > 1) {
    const size_t best = size_t(std::min_element(gain.begin(), gain.end()) - gain.begin());
    if (groups.size() <= max_groups && gain[best] >= 0) return;
    groups[best] += groups[best + 1];
    const auto next = std::ptrdiff_t(best) + 1;
    groups.erase(groups.begin() + next);
    cost.erase(cost.begin() + next);
    gain.erase(gain.begin() + std::ptrdiff_t(best));
    cost[best] = groups[best].cost();
    if (best + 1 < groups.size()) gain[best] = gain_of(best);
    if (best > 0) gain[best - 1] = gain_of(best - 1);
  }
}

// The cheapest way to make at most `max_groups` groups of neighbours out of these: dynamic
// programming, cubic but for few groups.
template <class Group>
std::vector<Group> best_grouping(const std::vector<Group>& groups, size_t max_groups) {
  const size_t n = groups.size();
  if (n == 0) return groups;
  constexpr int64_t kNever = INT64_MAX / 4;
  // best[k][end]: cost of the first `end` groups in k pieces; from[k][end]: where the last begins.
  std::vector<std::vector<int64_t>> best(max_groups + 1, std::vector<int64_t>(n + 1, kNever));
  std::vector<std::vector<size_t>> from(max_groups + 1, std::vector<size_t>(n + 1, 0));
  best[0][0] = 0;
  for (size_t begin = 0; begin < n; ++begin) {
    Group piece = groups[begin];
    for (size_t end = begin + 1; end <= n; ++end) {
      if (end > begin + 1) piece += groups[end - 1];
      const int64_t cost = piece.cost();
      for (size_t k = 0; k < max_groups; ++k) {
        if (best[k][begin] + cost < best[k + 1][end]) {
          best[k + 1][end] = best[k][begin] + cost;
          from[k + 1][end] = begin;
        }
      }
    }
  }
  size_t pieces = 1;
  for (size_t k = 2; k <= max_groups; ++k) pieces = best[k][n] < best[pieces][n] ? k : pieces;
  std::vector<Group> result;
  for (size_t end = n; pieces > 0; end = from[pieces--][end]) {
    Group piece = groups[from[pieces][end]];
    for (size_t i = from[pieces][end] + 1; i < end; ++i) piece += groups[i];
    result.insert(result.begin(), piece);
  }
  return result;
}

// A range of keys that share one chance of a change.
struct PositionGroup {
  uint8_t first_key;
  uint64_t population, changed;
  int64_t overhead;  // of one more class: its border, its chance, its count in every block

  PositionGroup& operator+=(const PositionGroup& other) {
    population += other.population;
    changed += other.changed;
    return *this;
  }
  int64_t cost() const {
    return int64_t(xlogx_q16(population) - xlogx_q16(changed) - xlogx_q16(population - changed)) +
           overhead;
  }
};

// A range of keys that share one table of steps.
struct ValueGroup {
  uint8_t first_key;
  uint32_t num_tokens;
  uint64_t scale_num, scale_den;  // from the sample to the array
  uint32_t tokens[kMaxValueTokens];

  ValueGroup& operator+=(const ValueGroup& other) {
    for (uint32_t t = 0; t < num_tokens; ++t) tokens[t] += other.tokens[t];
    return *this;
  }
  int64_t cost() const {
    uint64_t sum = 0, own = 0;
    uint32_t used = 0;
    for (uint32_t t = 0; t < num_tokens; ++t) {
      if (tokens[t] == 0) continue;
      sum += tokens[t];
      own += xlogx_q16(tokens[t]);
      ++used;
    }
    return int64_t((unsigned __int128)(xlogx_q16(sum) - own) * scale_num / scale_den) +
           (8 + 9 + 5 * used) * kBit;
  }
};

void code_counts(const uint32_t* counts, uint32_t num_symbols, uint8_t* codes) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < num_symbols; ++i) sum += counts[i];
  for (uint32_t i = 0; i < num_symbols; ++i) {
    if (counts[i] == 0) {
      codes[i] = 0;
      continue;
    }
    const uint64_t bits = log2_q16(sum) - log2_q16(counts[i]);
    const uint64_t steps = (bits * 5 / 2 + kBit / 2) >> kLogFraction;  // of 0.4 bits
    codes[i] = uint8_t(steps >= kMaxCode ? 1 : kMaxCode - steps);
  }
}

uint64_t scaled(uint64_t count, uint64_t n, uint64_t seen) {
  return seen == 0 ? 0 : uint64_t((unsigned __int128)count * n / seen);
}

// -16 log2(changed / population), a little away from both ends.
uint8_t chance_code(uint64_t changed, uint64_t population) {
  const uint64_t numerator = 4 * changed + 1, denominator = 4 * population + 2;
  if (numerator >= denominator) return 0;
  const uint64_t code =
      ((log2_q16(denominator) - log2_q16(numerator)) * 16 + kBit / 2) >> kLogFraction;
  return uint8_t(std::min<uint64_t>(255, code));
}

}  // namespace

ClassSplit fit_split(const KeyStats& stats, Layout layout, uint64_t n) {
  const int64_t num_blocks = int64_t(n >> kBlockLog2) + 1;
  std::vector<PositionGroup> groups;
  for (unsigned key = 0; key < 256; ++key) {
    if (stats.population[key] == 0) continue;
    groups.push_back({uint8_t(key), scaled(stats.population[key], n, stats.num_elements),
                      scaled(stats.changed[key], n, stats.num_elements),
                      (24 + 8 * num_blocks) * kBit});
  }
  merge_neighbours(groups, 2 * kMaxClasses + 4);  // the rest is worth a thorough search
  groups = best_grouping(groups, kMaxClasses);

  ClassSplit split;
  split.key_shift = layout.key_shift;
  split.key_mask = layout.key_mask;
  split.num_classes = uint8_t(std::max<size_t>(1, groups.size()));
  for (size_t c = 1; c < groups.size(); ++c) split.thresholds[c - 1] = groups[c].first_key;
  return split;
}

Model fit_model(const ClassSplit& split, const ClassStats& classes, const ValueStats& values,
                Layout layout, uint64_t n) {
  Model model;
  model.fitted = true;
  model.split = split;
  for (int c = 0; c < split.num_classes; ++c) {
    model.q[c] = chance_code(classes.changed[c], classes.population[c]);
    // 12 log2 of the changes expected in a full block
    const uint64_t per_block =
        scaled(classes.changed[c], uint64_t{1} << kBlockLog2, classes.num_elements);
    model.mean_codes[c] = uint8_t(
        (uint64_t(log2_q16(std::max<uint64_t>(1, per_block))) * 12 + kBit / 2) >> kLogFraction);
  }

  const uint32_t num_tokens = num_value_tokens(layout.width);
  std::vector<ValueGroup> groups;
  for (unsigned key = 0; key < 256; ++key) {
    ValueGroup group{uint8_t(key), num_tokens, n, std::max<uint64_t>(1, classes.num_elements), {}};
    std::memcpy(group.tokens, values.tokens[key], num_tokens * sizeof group.tokens[0]);
    if (std::any_of(group.tokens, group.tokens + num_tokens,
                    [](uint32_t count) { return count != 0; })) {
      groups.push_back(group);
    }
  }
  merge_neighbours(groups, kMaxContexts);
  model.num_contexts = uint8_t(std::max<size_t>(1, groups.size()));
  for (size_t v = 0; v < groups.size(); ++v) {
    if (v > 0) model.context_thresholds[v - 1] = groups[v].first_key;
    code_counts(groups[v].tokens, num_tokens, model.value_codes[v]);
  }
  code_counts(values.escapes, num_escapes(layout.width), model.escape_codes);
  return model;
}

Model fit_law(const KeyStats& stats, Layout layout, uint64_t n) {
  uint64_t population[256], changed[256], total_changed = 0;
  unsigned first = 255, last = 0;
  for (unsigned key = 0; key < 256; ++key) {
    changed[key] = scaled(stats.changed[key], n, stats.num_elements);
    population[key] = scaled(stats.population[key], n, stats.num_elements);
    total_changed += changed[key];
    if (changed[key] != 0) first = std::min(first, key), last = key;
  }
  Model best;
  best.split.key_shift = layout.key_shift;
  best.split.key_mask = layout.key_mask;
  int64_t best_cost = INT64_MAX;
  for (unsigned start = first > 8 ? first - 8 : 0; start <= 255; start = start < last  ? start + 1
                                                                         : start < 255 ? 255
                                                                                       : 256) {
    // Expected changes in units of the top chance, Q8: each key above `start` counts half the last.
    uint64_t weight = 0;
    for (unsigned key = 0; key < 256; ++key) {
      const unsigned c = key <= start ? 0 : std::min(key - start, 7U);
      weight += (population[key] << 8) >> c;
    }
    const uint8_t q = chance_code(total_changed, std::max(weight >> 8, total_changed));
    int64_t cost =
        0;  // bits of the changed elements; those that stay cost little and much the same
    for (unsigned key = 0; key < 256; ++key) {
      const unsigned c = key <= start ? 0 : std::min(key - start, 7U);
      cost += int64_t(changed[key]) * std::min(255, int(q) + 16 * int(c));
    }
    if (cost < best_cost) {
      best_cost = cost;
      best.law_key = uint8_t(start);
      best.law_q = q;
    }
  }
  best.set_law(layout.width);
  return best;
}

}  // namespace deltawire::tight
