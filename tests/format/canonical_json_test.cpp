// Canonical text is accepted; all other JSON is refused.
#include "format/canonical_json.h"

#include <nlohmann/json.hpp>

#include "test_files.h"

namespace deltawire::testing {
namespace {

bool accepts(std::string_view text) {
  CanonicalReader reader(text);
  reader.skip();
  reader.finish();
  return reader.ok();
}

TEST(CanonicalJson, AcceptsCanonicalText) {
  for (const char* text : {"{}", "[]", "null", "0", "18446744073709551615", "\"\"", "[0,1]",
                           "{\"a\":1,\"b\":[{}]}", "\"\\\"\\\\\\b\\f\\n\\r\\t\"", "\"\\u0001\"",
                           "\"\\u001f\"", "\"\x7f\"", "\"/\"", "\"\xc3\xa9\""}) {
    EXPECT_TRUE(accepts(text)) << text;
  }
}

TEST(CanonicalJson, RejectsEveryOtherForm) {
  for (const char* text : {"",
                           " {}",
                           "{} ",
                           "{ }",
                           "[0, 1]",
                           "[0,]",
                           "[,0]",
                           "[0 1]",
                           "[0",
                           "01",
                           "-1",
                           "1.0",
                           "1e3",
                           "18446744073709551616",
                           "true",
                           "nul",
                           "\"",
                           "\"\n\"",
                           "\"\\u000A\"",
                           "\"\\u000a\"",
                           "\"\\u001F\"",
                           "\"\\/\"",
                           "\"\\u0041\"",
                           "\"\\x\"",
                           "\"\\u00\"",
                           "\"\xff\"",
                           "\"\xed\xa0\x80\"",
                           "{\"b\":1,\"a\":2}",
                           "{\"a\":1,\"a\":2}",
                           "{\"a\" :1}",
                           "{\"a\":}",
                           "{a:1}",
                           "{\"a\":1,}",
                           "{\"a\":1}{",
                           "]"}) {
    EXPECT_FALSE(accepts(text)) << text;
  }
  EXPECT_FALSE(accepts(std::string(1, '\0')));
}

TEST(CanonicalJson, LimitsNestingDepth) {
  EXPECT_TRUE(accepts(std::string(15, '[') + std::string(15, ']')));
  EXPECT_FALSE(accepts(std::string(100'000, '[')));
}

TEST(CanonicalJson, ErrorsNameTheByteAndWhatWasExpected) {
  CanonicalReader reader("[1,x]");
  for (reader.open_list(); reader.next_item();) reader.number();
  EXPECT_FAILS(reader.status(), kCorruption, "byte 3", "a number");
}

// nlohmann::json sorts keys, too: an independent implementation of the canonical text.
TEST(CanonicalJson, WritesLikeAnotherImplementation) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) {
      const char* const pieces[] = {"a", "\"", "\\", "\n", "\x01", "\x1f", "\x7f", "\xc3\xa9", "/"};
      text += pieces[random() % std::size(pieces)];
    }
    const std::string canonical = canonical_text(text);
    EXPECT_EQ(canonical, nlohmann::json(text).dump());
    CanonicalReader reader(canonical);
    EXPECT_EQ(reader.text(), text);
    EXPECT_TRUE(reader.ok());
  }
  EXPECT_EQ(canonical_text("a\xff"), "\"a?\"");
}

// JSON has booleans, fractions and negative numbers; our records have none.
bool is_plain(const nlohmann::json& json) {
  if (json.is_structured()) return std::all_of(json.begin(), json.end(), is_plain);
  return json.is_null() || json.is_string() || json.is_number_unsigned();
}

TEST(CanonicalJson, AcceptsExactlyWhatAnotherImplementationWrites) {
  std::mt19937_64 random(2);
  const std::string alphabet = "{}[],:\"\\abu0019 n\t-.e";
  const std::string seeds[] = {"{\"a\":[1,2],\"b\":{\"c\":\"\\u0001\"}}", "[\"\\n\",[],{},10]"};
  size_t accepted = 0;
  for (int round = 0; round < 200'000; ++round) {
    std::string text = seeds[random() % 2];
    for (int changes = int(random() % 3); changes >= 0; --changes) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          text.insert(at, 1, alphabet[random() % alphabet.size()]);
          break;
        default:
          text.erase(at, 1);
      }
      if (text.empty()) text = "1";
    }
    const auto json = nlohmann::json::parse(text, nullptr, false);
    const bool ours = !json.is_discarded() && json.dump() == text && is_plain(json);
    EXPECT_EQ(accepts(text), ours) << text;
    accepted += ours;
  }
  EXPECT_GT(accepted, 1000U);
}

}  // namespace
}  // namespace deltawire::testing
