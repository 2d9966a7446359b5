// Values of options: numbers, sizes, words.

#include "cli/next_step.h"
#include "cli/options.h"
#include "cli/units.h"
#include "test_files.h"

namespace deltawire::cli {
namespace {

// What is said about `--x TEXT`; empty when it is taken.
std::string parse_x(Command* app, const std::string& text) {
  return app->parse({"--x", text}).text;
}

TEST(WholeNumber, TakesDecimalDigitsInItsRange) {
  uint64_t value = 7;
  Command app;
  add_whole_number(&app, "-y,--x", &value, "", 0, UINT64_MAX);
  EXPECT_EQ(parse_x(&app, "0"), "");
  EXPECT_EQ(value, 0U);
  EXPECT_EQ(parse_x(&app, "18446744073709551615"), "");
  EXPECT_EQ(value, UINT64_MAX);
  for (const char* bad :
       {"18446744073709551616", "010", "00", "0x10", "-1", "+1", "1.0", "1e3", " 1", "1 ", "ten"}) {
    EXPECT_EQ(parse_x(&app, bad),
              "--x: expected a whole number from 0 to 18446744073709551615, got \"" +
                  std::string(bad) + "\"");
  }
  EXPECT_EQ(value, UINT64_MAX);
}

TEST(Version, MayHaveTheZerosOfItsName) {
  std::optional<uint64_t> value;
  Command app;
  add_version(&app, "--x", &value, "");
  EXPECT_EQ(parse_x(&app, "0000000012"), "");
  EXPECT_EQ(value, 12U);
  EXPECT_EQ(parse_x(&app, "9999999999"), "");
  EXPECT_EQ(value, 9'999'999'999U);
  for (const char* bad : {"10000000000", "-1", "0x10", "1.0", "v12", ""}) {
    EXPECT_EQ(parse_x(&app, bad), "--x: expected the number of a version, 0 to 9999999999, got \"" +
                                      std::string(bad) + "\"");
  }
}

TEST(Seconds, MayHaveAFraction) {
  double value = 7;
  Command app;
  add_seconds(&app, "--x", &value, "", 0.01, 86400);
  EXPECT_EQ(parse_x(&app, "0.25"), "");
  EXPECT_EQ(value, 0.25);
  EXPECT_EQ(parse_x(&app, "86400"), "");
  EXPECT_EQ(value, 86400);
  for (const char* bad : {"0", "-1", "86401", "nan", "inf", "5s", "", "1e9"}) {
    EXPECT_EQ(parse_x(&app, bad),
              "--x: expected seconds, 0.01 to 86400, got \"" + std::string(bad) + "\"");
  }
  EXPECT_EQ(value, 86400);
}

TEST(WholeNumber, KeepsItsLimitsInNarrowTypes) {
  unsigned threads = 0;
  Command app;
  add_whole_number(&app, "--x", &threads, "", 1, 1024);
  EXPECT_EQ(parse_x(&app, "1024"), "");
  EXPECT_EQ(threads, 1024U);
  EXPECT_NE(parse_x(&app, "0"), "");
  EXPECT_NE(parse_x(&app, "1025"), "");
  EXPECT_NE(parse_x(&app, "4294967297"), "");  // 1, cut to 32 bits
}

TEST(Share, IsAboveItsLeastAndAtMostItsMost) {
  double value = 0;
  Command app;
  add_share(&app, "--x", &value, "", 0, 0.5);
  EXPECT_EQ(parse_x(&app, "0.5"), "");
  EXPECT_EQ(parse_x(&app, "1e-3"), "");
  EXPECT_EQ(value, 0.001);
  for (const char* bad : {"0", "-0.1", "0.51", "nan", "inf", "1e999", "0x1p-2", "half", "0.1x"}) {
    EXPECT_EQ(parse_x(&app, bad),
              "--x: expected a number above 0 and at most 0.5, got \"" + std::string(bad) + "\"");
  }
}

TEST(Choice, NamesWhatThereIs) {
  std::string value;
  Command app;
  const Option* option = add_choice(&app, "--x", &value, "", {"auto", "tight"});
  EXPECT_EQ(option->words(), (std::vector<std::string>{"auto", "tight"}));
  EXPECT_EQ(parse_x(&app, "tight"), "");
  EXPECT_EQ(value, "tight");
  EXPECT_EQ(parse_x(&app, "Tight"), "--x: expected one of auto, tight, got \"Tight\"");
  EXPECT_TRUE(app.options().front()->words().empty());  // --help
}

TEST(Units, CountsAndBytesDifferInALoneB) {
  const auto count = [](const char* text) { return parse_count(text).value(); };
  const auto bytes = [](const char* text) { return parse_bytes(text).value(); };
  EXPECT_EQ(count("512"), 512U);
  EXPECT_EQ(count("1.5k"), 1500U);
  EXPECT_EQ(count("100M"), 100'000'000U);
  EXPECT_EQ(count("1.7B"), 1'700'000'000U);
  EXPECT_EQ(bytes("512"), 512U);
  EXPECT_EQ(bytes("512B"), 512U);
  EXPECT_EQ(bytes("4kB"), 4000U);
  EXPECT_EQ(bytes("64MiB"), uint64_t{64} << 20);
  EXPECT_EQ(bytes("1G"), 1'000'000'000U);
  for (const char* bad : {"", ".", "B", "1.2.3", "-1", "+1", "0x10", "1e3", "1XB", "1KiBB", "1 MB",
                          "nan", "inf", "99999999999T"}) {
    EXPECT_FALSE(parse_count(bad).ok()) << bad;
    EXPECT_FALSE(parse_bytes(bad).ok()) << bad;
  }
}

TEST(NearestWord, IsAtMostTwoSlipsAway) {
  const std::vector<std::string> words = {"--output", "--codec", "--digest", "diff", "apply"};
  EXPECT_EQ(nearest_word("--outptu", words), "--output");  // two letters swapped: one slip
  EXPECT_EQ(nearest_word("--codc", words), "--codec");
  EXPECT_EQ(nearest_word("--digests", words), "--digest");
  EXPECT_EQ(nearest_word("dif", words), "diff");
  EXPECT_EQ(nearest_word("aply", words), "apply");
  EXPECT_EQ(nearest_word("diff", words), "diff");
  EXPECT_EQ(nearest_word("--threads", words), "");
  EXPECT_EQ(nearest_word("xx", words), "");
  EXPECT_EQ(nearest_word("", words), "");
}

}  // namespace
}  // namespace deltawire::cli
