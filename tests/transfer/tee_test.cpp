#include "transfer/tee.h"

#include <latch>

#include "test_files.h"

namespace deltawire::testing {
namespace {

std::vector<uint8_t> tee_bytes(size_t size) {
  std::mt19937_64 random(size);
  std::vector<uint8_t> bytes(size);
  for (uint8_t& byte : bytes) byte = uint8_t(random());
  return bytes;
}

TEST(Tee, EveryTakerHasEveryByteInOrder) {
  std::mt19937_64 random(1);
  for (const bool threaded : {false, true}) {
    for (const size_t size : {0, 1, 1000, 524'288, 9'000'000}) {
      const std::vector<uint8_t> bytes = tee_bytes(size);
      std::vector<std::vector<uint8_t>> got(3);
      std::vector<Tee::Take> takers;
      for (std::vector<uint8_t>& own : got) {
        takers.push_back([&own](Bytes some) { own.insert(own.end(), some.begin(), some.end()); });
      }
      Tee tee(std::move(takers), threaded);
      for (size_t at = 0; at < size;) {
        const size_t piece = std::min<size_t>(1 + random() % 1'500'000, size - at);
        tee.write(Bytes(bytes).subspan(at, piece));
        at += piece;
      }
      tee.drain();
      tee.drain();  // nothing is left
      for (const std::vector<uint8_t>& own : got) EXPECT_TRUE(own == bytes) << size;
    }
  }
}

TEST(Tee, GoesOnAfterADrain) {
  const std::vector<uint8_t> bytes = tee_bytes(3000);
  std::vector<uint8_t> got;
  Tee tee({[&](Bytes some) { got.insert(got.end(), some.begin(), some.end()); }}, true);
  for (size_t at = 0; at < bytes.size(); at += 1000) {
    tee.write(Bytes(bytes).subspan(at, 1000));
    tee.drain();
    EXPECT_EQ(got.size(), at + 1000);
  }
  EXPECT_TRUE(got == bytes);
}

TEST(Tee, WaitsForTheSlowest) {
  constexpr size_t kMost = size_t{4} << 20;
  std::atomic<size_t> written{0}, slow{0};
  std::atomic<bool> too_far{false};
  const auto take_slowly = [&](Bytes some) {
    std::this_thread::yield();
    if (written > slow + kMost) too_far = true;
    slow += some.size();
  };
  Tee tee({[](Bytes) {}, take_slowly}, true);
  const std::vector<uint8_t> bytes = tee_bytes(100'000);
  for (int i = 0; i < 300; ++i) {
    tee.write(bytes);
    written += bytes.size();
  }
  tee.drain();
  EXPECT_EQ(slow, written);
  EXPECT_FALSE(too_far);
}

TEST(Tee, DropsWhatWaitsWhenItGoes) {
  std::latch began(1), go_on(1);
  std::atomic<size_t> calls{0};
  std::thread opener;
  {
    Tee tee({[&](Bytes) {
              ++calls;
              began.count_down();
              go_on.wait();
            }},
            true);
    tee.write(tee_bytes(3'000'000));  // several chunks, less than the most
    began.wait();
    opener = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      go_on.count_down();
    });
  }
  opener.join();
  EXPECT_EQ(calls, 1u);
}

}  // namespace
}  // namespace deltawire::testing
