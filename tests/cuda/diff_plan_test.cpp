// Diffs for those who want lists on the device, and for CUDA graphs.
#include <cuda_runtime_api.h>

#include "cuda/contexts.h"

namespace deltawire::cuda {
namespace {

class DiffPlanTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_GPU(); }
};

// Room for lists on the device.
struct Lists {
  unsigned width;
  uint64_t capacity;
  size_t num_arrays;
  Buffer positions, values, first;

  Lists(unsigned given_width, uint64_t room, size_t arrays)
      : width(given_width),
        capacity(room),
        num_arrays(arrays),
        positions(good(Buffer::allocate(Place::kDevice, room * 8 + 8))),
        values(good(Buffer::allocate(Place::kDevice, room * given_width + 8))),
        first(good(Buffer::allocate(Place::kDevice, (arrays + 1) * 8))) {}

  ChangeLists out() const {
    return {positions.data<uint64_t>(), values.data(), capacity, first.data<uint64_t>()};
  }

  template <class T>
  static std::vector<T> fetch(const Buffer& from, size_t count) {
    std::vector<T> out(count);
    EXPECT_TRUE(copy(out.data(), from.data(), count * sizeof(T), nullptr).ok());
    EXPECT_TRUE(wait(nullptr).ok());
    return out;
  }

  // The CPU decodes what it encodes: positions and values.
  void expect(const std::vector<HostPair>& pairs) const {
    const auto begins = fetch<uint64_t>(first, num_arrays + 1);
    ASSERT_EQ(begins[0], 0);
    ASSERT_LE(begins.back(), capacity);
    const auto all_positions = fetch<uint64_t>(positions, begins.back());
    const auto all_values = fetch<uint8_t>(values, begins.back() * width);
    for (size_t i = 0; i < num_arrays; ++i) {
      const Layout layout = layout_of(dtype_of(width));
      const Codec& codec = *find_codec(CodecId::kIndices);
      const Encoded encoded =
          good(codec.encode(layout, pairs[i].old_bytes, pairs[i].new_bytes, nullptr));
      ASSERT_EQ(begins[i + 1] - begins[i], encoded.num_changed) << "array " << i;
      if (encoded.num_changed == 0) continue;
      const Changes changes =
          good(codec.decode(layout, encoded.payload, pairs[i].old_bytes, nullptr));
      ASSERT_TRUE(std::equal(changes.positions.begin(), changes.positions.end(),
                             all_positions.begin() + ptrdiff_t(begins[i])))
          << "array " << i;
      ASSERT_TRUE(std::equal(changes.values.begin(), changes.values.end(),
                             all_values.begin() + ptrdiff_t(begins[i] * width)))
          << "array " << i;
    }
  }
};

std::vector<HostPair> hosts_of(const std::vector<BothSides>& arrays) {
  std::vector<HostPair> hosts;
  for (const BothSides& array : arrays) hosts.push_back(array.host);
  return hosts;
}

TEST_F(DiffPlanTest, ListsAreInOrder) {
  Context context = make_context();
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    std::vector<BothSides> arrays;
    uint64_t seed = 0, elements = 0;
    for (const double density : {0.01, 0.0, 0.3, 1.0}) {
      for (const size_t n : {0, 1, 7, 8191, 8192, 32768, 65537, 700'000, 0}) {
        ++seed;
        arrays.emplace_back(make_pair(seed, width, n, density), seed % 3 == 0 ? seed % 8 : 0);
        elements += n;
      }
    }
    Result<DiffPlan> plan = context.plan_diff(pairs_of(arrays));
    ASSERT_TRUE(plan.ok()) << plan.status().to_string();
    const Lists lists(width, elements, arrays.size());
    for (unsigned round = 0; round < 3; ++round) {
      ASSERT_GOOD(plan->diff(lists.out(), nullptr));
      lists.expect(hosts_of(arrays));
    }
  }
}

TEST_F(DiffPlanTest, ManyTilesLookBack) {
  Context context = make_context();
  std::vector<BothSides> arrays;
  for (size_t i = 0; i < 3000; ++i) arrays.emplace_back(make_pair(i, 2, 1 + i * 37 % 500, 0.1));
  arrays.emplace_back(make_pair(1, 2, 30'000'000, 0.012));
  Result<DiffPlan> plan = context.plan_diff(pairs_of(arrays));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Lists lists(2, 1'000'000, arrays.size());
  ASSERT_GOOD(plan->diff(lists.out(), nullptr));
  lists.expect(hosts_of(arrays));
}

TEST_F(DiffPlanTest, WiderFloatsBesideOthers) {
  Context context = make_context();
  std::vector<HostPair> hosts;
  std::vector<OnDevice> on_device;
  std::vector<Pair> pairs;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const size_t n : {999, 200'000}) {
      const WideFloats wide = make_wide(n, dtype == DType::kBF16 ? DType::kF16 : dtype, n);
      HostPair host{2, wide.rounded, wide.rounded};
      for (size_t i = 0; i < n; i += 31) host.old_bytes[2 * i] ^= 1;
      on_device.emplace_back(host.old_bytes);
      on_device.emplace_back(dtype == DType::kBF16 ? wide.rounded : wide.wide);
      pairs.push_back(
          {{DType::kBF16, on_device.end()[-2].data(), 2 * n}, {dtype, on_device.back().data()}});
      hosts.push_back(std::move(host));
    }
  }
  Result<DiffPlan> plan = context.plan_diff(pairs);
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Lists lists(2, 100'000, pairs.size());
  ASSERT_GOOD(plan->diff(lists.out(), nullptr));
  lists.expect(hosts);
}

TEST_F(DiffPlanTest, WithoutRoomTheCountIsRight) {
  Context context = make_context();
  const BothSides array(make_pair(1, 2, 500'000, 0.1));
  const Pair pair = array.pair();
  Result<DiffPlan> plan = context.plan_diff({&pair, 1});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const uint64_t count = cpu_encode("gaps", array.dtype, array.host).num_changed;
  for (const uint64_t capacity : {uint64_t{0}, uint64_t{1}, count - 1, count}) {
    const Lists lists(2, capacity, 1);
    ASSERT_GOOD(plan->diff(lists.out(), nullptr));
    EXPECT_EQ(Lists::fetch<uint64_t>(lists.first, 2)[1], count);
    if (capacity == count) lists.expect({array.host});
  }
}

TEST_F(DiffPlanTest, IsCapturedIntoAGraphAndReplayed) {
  Context context = make_context();
  std::vector<BothSides> arrays;
  for (const size_t n : {100'000, 0, 40'000, 3'000'000}) {
    arrays.emplace_back(make_pair(n, 2, n, 0.01));
  }
  Result<DiffPlan> plan = context.plan_diff(pairs_of(arrays));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const Lists lists(2, 500'000, arrays.size());

  const OwnedStream stream = [] {
    Result<OwnedStream> made = OwnedStream::create();
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_GOOD(plan->diff(lists.out(), stream.get()));
  ASSERT_EQ(cudaStreamEndCapture(stream.get(), &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (uint64_t round = 0; round < 3; ++round) {
    for (size_t i = 0; i < arrays.size(); ++i) {  // other contents, in the same place
      HostPair& host = arrays[i].host;
      host = make_pair(100 * round + i, 2, host.old_bytes.size() / 2, 0.002 * double(1 + round));
      ASSERT_GOOD(send(host.old_bytes, arrays[i].old_array.data(), nullptr));
      ASSERT_GOOD(send(host.new_bytes, arrays[i].new_array.data(), nullptr));
    }
    ASSERT_EQ(cudaGraphLaunch(replay, stream.get()), cudaSuccess);
    ASSERT_GOOD(wait(stream.get()));
    lists.expect(hosts_of(arrays));
  }
  EXPECT_EQ(cudaGraphExecDestroy(replay), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(DiffPlanTest, MistakesAreNamed) {
  Context context = make_context();
  const BothSides narrow(make_pair(1, 2, 10, 0.1)), wide(make_pair(1, 4, 10, 0.1));
  const Pair pairs[] = {narrow.pair(), wide.pair()};
  const Status status = context.plan_diff(pairs).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(mentions(status, "pair 1")) << status.to_string();
  Result<DiffPlan> plan = context.plan_diff({});
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan->diff({}, nullptr).code(), Code::kInvalidArgument);
  const Lists none(2, 0, 0);
  ASSERT_GOOD(plan->diff(none.out(), nullptr));
  none.expect({});
}

}  // namespace
}  // namespace deltawire::cuda
