// Exchange with arrays on a GPU, beside arrays in host memory.
#include "live/exchange.h"

#include "cuda/contexts.h"
#include "support/exchange_model.h"

namespace deltawire::cuda {
namespace {

struct MixedArrays {
  std::vector<ExchangedArray> arrays;
  std::vector<OnDevice> device;  // every array but the third ones
  std::vector<std::vector<uint8_t>> host;

  bool on_host(size_t i) const { return i % 3 == 2; }
  uint8_t* data(size_t i) { return on_host(i) ? host[i].data() : device[i].data(); }
  std::vector<uint8_t> now(size_t i) { return on_host(i) ? host[i] : device[i].fetch(); }

  void add(ExchangedArray array, size_t skew) {
    device.emplace_back(array.before, skew);
    host.push_back(array.before);
    arrays.push_back(std::move(array));
  }
  std::vector<ExchangeList> lists() {
    std::vector<ExchangeList> all;
    for (size_t i = 0; i < arrays.size(); ++i) {
      all.push_back(arrays[i].list(data(i), on_host(i) ? Memory::kHost : Memory::kCuda));
    }
    return all;
  }
};

MixedArrays make_mixed() {
  MixedArrays mixed;
  for (const unsigned width : {1U, 2U, 4U, 8U}) {
    for (const size_t n : {1, 2, 1023, 1024, 1025, 70'000, 1'000'003}) {
      for (const size_t skew : {0, 3}) {
        mixed.add(make_exchanged(n + width, width, n, n < 2000 ? 1.0 : 0.1), skew);
      }
    }
  }
  return mixed;
}

TEST(ExchangeOnGpuTest, SwapsValuesAndRestoresThem) {
  SKIP_WITHOUT_GPU();
  MixedArrays mixed = make_mixed();
  uint64_t device_bytes = 0, host_bytes = 0;
  for (size_t i = 0; i < mixed.arrays.size(); ++i) {
    const uint64_t own = mixed.arrays[i].offsets.size() * 4 + mixed.arrays[i].values.size();
    (mixed.on_host(i) ? host_bytes : device_bytes) += own;
  }
  // All on the device; some of it; none of it.
  for (const std::optional<uint64_t> most :
       {std::optional<uint64_t>(), std::optional<uint64_t>(device_bytes / 2),
        std::optional<uint64_t>(0)}) {
    Result<Exchange> exchange = Exchange::stage(mixed.lists(), {most, 2});
    ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
    const uint64_t tables = uint64_t{1} << 16;
    EXPECT_LE(exchange->device_bytes(), most.value_or(device_bytes + 4096) + tables);
    EXPECT_GE(exchange->device_bytes() + exchange->host_bytes(), device_bytes + host_bytes);
    EXPECT_EQ(exchange->host_bytes() == host_bytes, !most);
    EXPECT_EQ(exchange->device_bytes() > tables, most != uint64_t{0});
    const OwnedStream stream = OwnedStream::create().value();
    for (const Stream on : {Stream(nullptr), stream.get()}) {
      for (const bool forward : {true, false}) {
        ASSERT_GOOD(exchange->swap(on));
        for (size_t i = 0; i < mixed.arrays.size(); ++i) {
          const ExchangedArray& array = mixed.arrays[i];
          ASSERT_EQ(mixed.now(i), forward ? array.after : array.before) << i;
        }
      }
    }
  }
}

// Earlier work on the caller's stream comes first.
TEST(ExchangeOnGpuTest, RunsAfterEarlierWorkOnItsStream) {
  SKIP_WITHOUT_GPU();
  const ExchangedArray array = make_exchanged(1, 2, 50'000'000, 0.01);
  const std::vector<uint8_t> zeros(array.before.size());
  const OnDevice live(zeros), from(array.before);
  const ExchangeList list = array.list(live.data(), Memory::kCuda);
  Result<Exchange> exchange = Exchange::stage({&list, 1});
  ASSERT_TRUE(exchange.ok()) << exchange.status().to_string();
  const OwnedStream stream = OwnedStream::create().value();
  for (int i = 0; i < 20; ++i) {
    ASSERT_GOOD(copy(live.data(), from.data(), zeros.size(), stream.get()));
  }
  ASSERT_GOOD(exchange->swap(stream.get()));
  EXPECT_TRUE(live.fetch() == array.after);
}

TEST(ExchangeOnGpuTest, RejectsBadOffsetsAndWrongMemory) {
  SKIP_WITHOUT_GPU();
  const ExchangedArray array = make_exchanged(1, 2, 100, 0.5);
  const OnDevice live(array.before);
  ExchangedArray outside = array;
  outside.offsets.back() = 100;
  const ExchangeList bad = outside.list(live.data(), Memory::kCuda);
  const Status status = Exchange::stage({&bad, 1}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_TRUE(mentions(status, "offset 100")) << status.to_string();
  EXPECT_EQ(live.fetch(), array.before);
  std::vector<uint8_t> host = array.before;
  const ExchangeList wrong = array.list(host.data(), Memory::kCuda);
  EXPECT_TRUE(mentions(Exchange::stage({&wrong, 1}).status(), "is not on a GPU"));
}

}  // namespace
}  // namespace deltawire::cuda
