#include "tensor/text.h"

#include <span>

#include "deltawire/checkpoint.h"
#include "tensor/form.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST(Text, ValidatesUtf8) {
  for (const auto good : {"", "abc", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF",
                          "\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const auto bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80",
                         "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF",
                         "\xE2\x82", "\xC3", "\xC3x", "\xF0\x9F\x98"}) {
    EXPECT_FALSE(is_utf8(bad));
  }
}

TEST(Text, QuotesAndEscapes) {
  EXPECT_EQ(quote("layers.7"), "\"layers.7\"");
  EXPECT_EQ(quote("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(quote("\x1b[31m\x7f"), R"("\x1b[31m\x7f")");
  EXPECT_EQ(quote("caf\xC3\xA9"), "\"caf\xC3\xA9\"");
  EXPECT_EQ(quote("caf\xC3"), R"("caf\xc3")");
  EXPECT_EQ(quote(std::string_view("a\0b", 3)), R"("a\x00b")");
}

TEST(Text, TruncatesLongQuotes) {
  EXPECT_EQ(quote(std::string(1000, 'x')), "\"" + std::string(120, 'x') + "...\"");
  // Cut between characters, not inside one.
  EXPECT_EQ(quote(std::string(119, 'x') + "\xC3\xA9"), "\"" + std::string(119, 'x') + "...\"");
  // Only continuation bytes: no boundary to cut at, but still short.
  EXPECT_EQ(quote(std::string(1000, '\x80')), "\"...\"");
}

TEST(Text, JoinsAndSplitsNumbers) {
  using Numbers = std::vector<uint64_t>;
  EXPECT_EQ(join_numbers({}), "");
  for (const Numbers& numbers : {Numbers{7}, Numbers{0, 1}, Numbers{2048, UINT64_MAX, 3}}) {
    Numbers got;
    EXPECT_TRUE(split_numbers(join_numbers(numbers), &got));
    EXPECT_EQ(got, numbers);
  }
  for (const auto bad : {"", ",", "1,", ",1", "1,,2", "1 ,2", "-1", "+1", "0x1", "1;2", "1.5",
                         "18446744073709551616"}) {
    Numbers got;
    EXPECT_FALSE(split_numbers(bad, &got)) << bad;
  }
  Numbers two, three;
  EXPECT_TRUE(split_numbers("1,2", &two, 2));
  EXPECT_FALSE(split_numbers("1,2,3", &three, 2));
}

TEST(Text, EscapesControlCharactersOnly) {
  EXPECT_EQ(escape_controls("a \"b\" c\\d"), "a \"b\" c\\d");
  EXPECT_EQ(escape_controls("\x1b[31m\n\x7f"), "\\x1b[31m\\x0a\\x7f");
  EXPECT_EQ(escape_controls("caf\xC3\xA9 \xC3"), "caf\xC3\xA9 \\xc3");
  EXPECT_EQ(escape_controls("\xC2\x9B"
                            "31m"),
            "\\xc2\\x9b"
            "31m");  // U+009B, the one-character CSI
  EXPECT_EQ(escape_controls(std::string(500, 'x')), std::string(500, 'x'));
}

struct Named {
  std::string name;
  int value = 0;
};

TEST(FindTensor, FindsByName) {
  std::vector<Named> tensors = {{"a", 1}, {"b", 2}, {"bb", 3}, {"d", 4}};
  EXPECT_EQ(find_tensor(tensors, "a")->value, 1);
  EXPECT_EQ(find_tensor(tensors, "bb")->value, 3);
  EXPECT_EQ(find_tensor(tensors, "d")->value, 4);
  for (const char* other : {"", "aa", "c", "e"}) EXPECT_EQ(find_tensor(tensors, other), nullptr);
  find_tensor(tensors, "b")->value = 7;
  EXPECT_EQ(tensors[1].value, 7);
  EXPECT_EQ(find_tensor(std::span<const Named>(), "a"), nullptr);
}

TEST(FindTensor, FindsInViews) {
  std::vector<CheckpointTensor> tensors(2);
  tensors[0].view.name = "x";
  tensors[1].view.name = "y";
  const std::span<const CheckpointTensor> held = tensors;
  EXPECT_EQ(find_tensor(held, "y"), &tensors[1]);
  EXPECT_EQ(find_tensor(held, "z"), nullptr);
}

}  // namespace
}  // namespace deltawire::testing
