// sum128 with any vectors that multiply 32 by 32 bits. Included once per target by simd.cpp, inside
// HWY_NAMESPACE. One product takes an addition, a shift and a multiplication; four chains hide how
// long these take.

namespace hn = hwy::HWY_NAMESPACE;
using Words = hn::ScalableTag<uint64_t>;
using Halves = hn::ScalableTag<uint32_t>;

template <class V>
inline auto sum_product(V words, V keys) {
  const V sums =
      hn::BitCast(Words(), hn::Add(hn::BitCast(Halves(), words), hn::BitCast(Halves(), keys)));
  return hn::MulEven(hn::BitCast(Halves(), sums), hn::BitCast(Halves(), hn::ShiftRight<32>(sums)));
}

inline auto load_words(const uint8_t* data) {
  return hn::BitCast(Words(), hn::LoadU(hn::ScalableTag<uint8_t>(), data));
}

inline void sum_whole(const uint8_t* data, size_t count, uint64_t segment, uint64_t* sums) {
  const Words words;
  constexpr size_t kStep = hn::MaxLanes(Words());
  // The compiler must not know the keys: it would keep them as constants in the code.
  const sum128::WordKeys* table = &sum128::kWordKeys;
  asm volatile("" : "+r"(table));
  uint64_t total[sum128::kLanes] = {sums[0], sums[1]};
  for (; count != 0; --count, ++segment, data += sum128::kSegmentBytes) {
    auto a0 = hn::Zero(words), a1 = a0, b0 = a0, b1 = a0;
    for (size_t i = 0; i < sum128::kSegmentWords; i += 2 * kStep) {
      const auto v = load_words(data + 8 * i), w = load_words(data + 8 * (i + kStep));
      a0 = hn::Add(a0, sum_product(v, hn::Load(words, table->keys[0] + i)));
      a1 = hn::Add(a1, sum_product(v, hn::Load(words, table->keys[1] + i)));
      b0 = hn::Add(b0, sum_product(w, hn::Load(words, table->keys[0] + i + kStep)));
      b1 = hn::Add(b1, sum_product(w, hn::Load(words, table->keys[1] + i + kStep)));
    }
    total[0] +=
        sum128::segment_key(0, segment) * hn::GetLane(hn::SumOfLanes(words, hn::Add(a0, b0)));
    total[1] +=
        sum128::segment_key(1, segment) * hn::GetLane(hn::SumOfLanes(words, hn::Add(a1, b1)));
  }
  sums[0] = total[0];
  sums[1] = total[1];
}

inline void sum_part(const uint8_t* data, size_t num_words, size_t column, uint64_t* products) {
  const Words words;
  constexpr size_t kStep = hn::MaxLanes(Words());
  auto a0 = hn::Zero(words), a1 = a0;
  size_t i = 0;
  for (; i + kStep <= num_words; i += kStep) {
    const auto v = load_words(data + 8 * i);
    a0 = hn::Add(a0, sum_product(v, hn::LoadU(words, sum128::kWordKeys.keys[0] + column + i)));
    a1 = hn::Add(a1, sum_product(v, hn::LoadU(words, sum128::kWordKeys.keys[1] + column + i)));
  }
  products[0] += hn::GetLane(hn::SumOfLanes(words, a0));
  products[1] += hn::GetLane(hn::SumOfLanes(words, a1));
  for (; i < num_words; ++i) {
    uint64_t word;
    std::memcpy(&word, data + 8 * i, sizeof word);
    for (size_t lane = 0; lane < sum128::kLanes; ++lane) {
      products[lane] += sum128::product(word, sum128::kWordKeys.keys[lane][column + i]);
    }
  }
}
