// Exchange with arrays in host memory; tests/cuda/exchange_test.cpp does the same on a GPU.
#include "live/exchange.h"

#include "test_files.h"

#include <numeric>

#include "support/exchange_model.h"

namespace deltawire::testing {
namespace {

TEST(ExchangeTest, SwapsValuesAndRestoresThem) {
  for (const unsigned threads : {1U, 3U}) {
    std::vector<ExchangedArray> arrays;
    for (const unsigned width : {1U, 2U, 4U, 8U}) {
      for (const size_t n : {size_t{1}, size_t{2}, size_t{1000}, size_t{300'000}}) {
        arrays.push_back(make_exchanged(n + width, width, n, n == 1000 ? 1.0 : 0.3));
      }
    }
    std::vector<std::vector<uint8_t>> live;
    for (const ExchangedArray& array : arrays) live.push_back(array.before);
    std::vector<ExchangeList> lists;
    uint64_t changed = 0, bytes = 0;
    for (size_t i = 0; i < arrays.size(); ++i) {
      lists.push_back(arrays[i].list(live[i].data(), Memory::kHost));
      changed += arrays[i].offsets.size();
      bytes += arrays[i].offsets.size() * 4 + arrays[i].values.size();
    }
    Exchange exchange = must(Exchange::stage(lists, {{}, threads}));
    EXPECT_EQ(exchange.num_changed(), changed);
    EXPECT_EQ(exchange.host_bytes(), bytes);
    EXPECT_EQ(exchange.device_bytes(), 0);
    for (size_t i = 0; i < arrays.size(); ++i) EXPECT_EQ(live[i], arrays[i].before);
    // Exchange copies the lists: the caller may free its own.
    for (ExchangedArray& array : arrays) {
      array.offsets.assign(array.offsets.size(), 0);
      array.values.assign(array.values.size(), 0);
    }
    for (const bool forward : {true, false, true, false}) {
      ASSERT_TRUE(exchange.swap().ok());
      for (size_t i = 0; i < arrays.size(); ++i) {
        ASSERT_EQ(live[i], forward ? arrays[i].after : arrays[i].before) << i;
      }
    }
  }
}

TEST(ExchangeTest, AllowsEmptyExchanges) {
  Exchange none = must(Exchange::stage({}));
  EXPECT_TRUE(none.swap().ok());
  EXPECT_EQ(none.num_changed(), 0);
  std::vector<uint8_t> live(8, 7);
  const ExchangeList empty{live, 2, Memory::kHost, {}, {}};
  const ExchangeList no_array{{}, 2, Memory::kHost, {}, {}};
  Exchange exchange = must(Exchange::stage(std::vector{empty, no_array}));
  EXPECT_TRUE(exchange.swap().ok());
  EXPECT_EQ(live, std::vector<uint8_t>(8, 7));
}

// Returns the error for two lists, of which the second one is `bad`.
std::string refusal(ExchangeList bad) {
  std::vector<uint8_t> other(8), values{1, 2};
  const std::vector<uint32_t> offsets{3};
  const ExchangeList good{other, 2, Memory::kHost, offsets, values};
  const Status status = Exchange::stage(std::vector{good, bad}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(other, std::vector<uint8_t>(8));
  return status.message();
}

TEST(ExchangeTest, RejectsBadLists) {
  std::vector<uint8_t> live(20), values(6);
  const auto list = [&](const std::vector<uint32_t>& offsets, unsigned width = 2) {
    return ExchangeList{live, width, Memory::kHost, offsets, values};
  };
  const std::vector<uint32_t> outside{0, 5, 10}, twice{1, 1, 2}, down{4, 9, 8}, few{1, 2},
      fine{1, 2, 3};
  EXPECT_EQ(refusal(list(outside)),
            "list 1: offset 10 (number 2 of the list): the array has 10 elements");
  EXPECT_EQ(refusal(list(twice)),
            "list 1: offset 1 (number 1 of the list): comes after 1; offsets must ascend");
  EXPECT_EQ(refusal(list(down)),
            "list 1: offset 8 (number 2 of the list): comes after 9; offsets must ascend");
  EXPECT_EQ(refusal(list(few)), "list 1: 2 offsets of elements of 2 bytes, but 6 bytes of values");
  EXPECT_EQ(refusal(list(fine, 3)), "list 1: elements of 3 bytes; 1, 2, 4 or 8 can be exchanged");
  EXPECT_EQ(refusal(list(fine, 8)),
            "list 1: an array of 20 bytes is not a whole number of elements of 8 bytes");
}

TEST(ExchangeTest, NamesTheFirstBadOffsetOfALongList) {
  std::vector<uint8_t> live(2'000'000);
  std::vector<uint32_t> offsets(1'000'000);
  std::iota(offsets.begin(), offsets.end(), 0);
  const std::vector<uint8_t> values(offsets.size());
  for (const size_t at : {size_t{1} << 18, size_t{999'999}, size_t{1}}) {
    const uint32_t before = std::exchange(offsets[at], offsets[at - 1]);
    const ExchangeList list{live, 1, Memory::kHost, offsets, values};
    const Status status = Exchange::stage({&list, 1}, {{}, 2}).status();
    EXPECT_EQ(status.message(), "list 0: offset " + std::to_string(at - 1) + " (number " +
                                    std::to_string(at) + " of the list): comes after " +
                                    std::to_string(at - 1) + "; offsets must ascend");
    offsets[at] = before;
  }
}

// Parts of a fused parameter: lists for one array, or for arrays that share memory.
TEST(ExchangeTest, ListsMayShareAnArrayButNotAnElement) {
  std::vector<uint8_t> live(40);
  const std::vector<uint32_t> even{0, 2, 8}, odd{1, 3, 9}, wide{2};
  const std::vector<uint8_t> ones(6, 1), twos(6, 2), threes(4, 3);
  const ExchangeList a{live, 2, Memory::kHost, even, ones}, b{live, 2, Memory::kHost, odd, twos};
  const ExchangeList c{live, 4, Memory::kHost, wide, threes};  // bytes 8 to 11, which are free
  Exchange exchange = must(Exchange::stage(std::vector{a, b, c}));
  ASSERT_TRUE(exchange.swap().ok());
  EXPECT_EQ(live[0], 1);
  EXPECT_EQ(live[18], 2);
  EXPECT_EQ(live[11], 3);
  ASSERT_TRUE(exchange.swap().ok());
  EXPECT_EQ(live, std::vector<uint8_t>(40));

  const std::vector<uint32_t> first{0};
  const std::vector<uint8_t> value(4, 9);
  const ExchangeList d{std::span(live).subspan(16), 4, Memory::kHost, first, value};
  EXPECT_EQ(Exchange::stage(std::vector{b, a, d}).status().message().substr(0, 5), "list ");
  EXPECT_EQ(Exchange::stage(std::vector{a, b, a}).status().code(), Code::kInvalidArgument);
  // Bytes 18 and 19 are in list 1 and, as the second half of an element, in list 0.
  EXPECT_EQ(Exchange::stage(std::vector{d, b}).status().message(),
            "list 1: offset 9: the same memory is in list 0");
}

}  // namespace
}  // namespace deltawire::testing
