#include "codec/cuda/adaptive_payloads.h"

#include <algorithm>
#include <numeric>

#include "base/guard.h"
#include "codec/adaptive_encode.h"

namespace deltawire::cuda {
namespace {

// The lists of an array's changes.
class FetchedLists {
 public:
  FetchedLists(const DevicePair& pair, uint64_t count, Bytes lists)
      : num_elements_(pair.num_elements),
        count_(count),
        width_(pair.layout.width),
        gap_bytes_(unsigned(lists.size() / count) - 2 * width_),
        gaps_(lists.data()),
        new_values_(gaps_ + count * gap_bytes_),
        old_values_(new_values_ + count * width_) {}

  template <class Visit>
  void for_each(const Visit& visit) const {
    uint64_t next = 0;
    for (uint64_t i = 0; i < count_; ++i) {
      const uint64_t position = next + adaptive::load_element(gaps_ + i * gap_bytes_, gap_bytes_);
      visit(position, adaptive::load_element(old_values_ + i * width_, width_),
            adaptive::load_element(new_values_ + i * width_, width_));
      next = position + 1;
    }
  }

  // Lists are sound unless somebody wrote to the new array while it was compared.
  bool sound() const {
    uint64_t next = 0;
    bool good = true;
    for_each([&](uint64_t position, uint64_t before, uint64_t after) {
      good &= position >= next && position < num_elements_ && before != after;
      next = position + 1;
    });
    return good;
  }

 private:
  const uint64_t num_elements_, count_;
  const unsigned width_, gap_bytes_;
  const uint8_t *const gaps_, *const new_values_, *const old_values_;
};

}  // namespace

Status code_adaptive(std::span<const DevicePair> pairs, const DeviceOptions& options,
                     std::span<DeviceEncoded> out) {
  // The longest first: a payload is one thread's.
  std::vector<size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return out[a].num_changed > out[b].num_changed; });
  return parallel_try("encoding", options.pool, order.size(), [&](size_t k, unsigned) -> Status {
    const DevicePair& pair = pairs[order[k]];
    DeviceEncoded& one = out[order[k]];
    if (one.num_changed == 0) return {};
    std::vector<uint8_t> fetched = std::move(one.payload);
    const FetchedLists lists(pair, one.num_changed, fetched);
    if (!lists.sound()) {
      return io_error(
          "a tensor changed while it was read; nothing was committed, publish again when nobody "
          "writes to it");
    }
    one.payload =
        adaptive::encode_changes(pair.layout.width, pair.num_elements,
                                 [&](const auto& visit) { return lists.for_each(visit); });
    if (options.spare != nullptr) options.spare->give_back(std::move(fetched));
    return {};
  });
}

}  // namespace deltawire::cuda
