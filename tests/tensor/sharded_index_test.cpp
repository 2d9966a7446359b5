#include "tensor/sharded_index.h"

#include "tensor/defects.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

template <class... Phrases>
::testing::AssertionResult corrupt(std::string_view json, const Phrases&... phrases) {
  return is_failure(parse_index(json).status(), Code::kCorruption, phrases...);
}

TEST(ShardedIndex, ParsesAndSorts) {
  const auto entries = must(parse_index(R"(
    {"weight_map": {"b": "2.safetensors", "a": "1.safetensors"},
     "metadata": {"total_size": 1e300, "weight_map": {"x": 1}, "deep": [[[{"a": null}]], -1, true]},
     "other": "skipped"}
  )"));
  EXPECT_EQ(entries, (std::vector<IndexEntry>{{"a", "1.safetensors"}, {"b", "2.safetensors"}}));
}

TEST(ShardedIndex, WrongTotalSizesAreIgnored) {
  for (const auto metadata : {"{}", "{\"total_size\":-1}", "{\"total_size\":\"x\"}", "null", "7",
                              "[]", "{\"total_size\":99999999999999999999999}"}) {
    const auto entries =
        parse_index(std::string("{\"metadata\":") + metadata + ",\"weight_map\":{\"a\":\"f\"}}");
    EXPECT_TRUE(entries.ok()) << metadata;
  }
}

TEST(ShardedIndex, NotAnIndex) {
  EXPECT_TRUE(corrupt("", defect::kNotObject));
  EXPECT_TRUE(corrupt("[]", defect::kNotObject));
  EXPECT_TRUE(corrupt("{", defect::kNotJson));
  EXPECT_TRUE(corrupt("{\"\xFF\":1}", defect::kNotUtf8));
  EXPECT_TRUE(corrupt("{} x", defect::kTrailingBytes));
  EXPECT_TRUE(corrupt(std::string_view("{}\0x", 4), defect::kNotJson));
  EXPECT_TRUE(corrupt("{}", defect::kNoWeightMap));
  EXPECT_TRUE(corrupt("{\"metadata\":" + std::string(100, '['), defect::kTooDeep));
  for (const auto value : {"1", "null", "[]", "\"a\"", "-1", "true"}) {
    EXPECT_TRUE(corrupt(std::string("{\"weight_map\":") + value + "}", defect::kWrongType,
                        "weight_map", "expected an object"))
        << value;
  }
  for (const auto value : {"1", "null", "[]", "{}", "-1", "1.5", "true"}) {
    EXPECT_TRUE(corrupt(std::string("{\"weight_map\":{\"w\":") + value + "}}", defect::kWrongType,
                        "tensor \"w\"", "expected a file name"))
        << value;
  }
}

TEST(ShardedIndex, DuplicateKeys) {
  EXPECT_TRUE(corrupt(R"({"weight_map":{"w":"a","w":"a"}})", defect::kDuplicateKey, "\"w\""));
  EXPECT_TRUE(corrupt(R"({"weight_map":{},"weight_map":{}})", defect::kDuplicateKey));
  EXPECT_TRUE(corrupt(R"({"metadata":{},"metadata":{},"weight_map":{}})", defect::kDuplicateKey,
                      "\"metadata\""));
}

TEST(ShardedIndex, NamesStayInsideTheFolder) {
  for (const auto name : {"", ".", "..", "/etc/passwd", "../x.safetensors", "a/b", "a/../b",
                          "..\\\\x", "\\u002fetc", "a\\u0000.safetensors"}) {
    EXPECT_TRUE(corrupt(std::string("{\"weight_map\":{\"w\":\"") + name + "\"}}",
                        defect::kNotAFileName, "tensor \"w\""))
        << name;
  }
  EXPECT_TRUE(parse_index(R"({"weight_map":{"w":"..a b.safetensors"}})").ok());
}

TEST(ShardedIndex, ExactBytes) {
  const auto text =
      must(serialise_index({{"b", "2.safetensors"}, {"caf\xC3\xA9", "1.safetensors"}}, 42));
  EXPECT_EQ(text,
            "{\n  \"metadata\": {\n    \"total_size\": 42\n  },\n  \"weight_map\": {\n"
            "    \"b\": \"2.safetensors\",\n    \"caf\\u00e9\": \"1.safetensors\"\n  }\n}\n");
  EXPECT_EQ(*serialise_index({}, 0),
            "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n  \"weight_map\": {}\n}\n");
}

TEST(ShardedIndex, SerialiseRefuses) {
  for (const std::vector<IndexEntry>& entries : {std::vector<IndexEntry>{{"w", "a"}, {"w", "b"}},
                                                 {{"w", "../a"}},
                                                 {{"\xFF", "a"}},
                                                 {{"w", "\xFF"}},
                                                 {{"w", ""}}}) {
    EXPECT_FAILS(serialise_index(entries, 0), Code::kInvalidArgument, "tensor");
  }
}

TEST(ShardedIndex, Write) {
  TempFolder folder;
  ASSERT_TRUE(write_index(folder.path(), {{"w", "a"}}, 1).ok());
  EXPECT_EQ(read_file(folder.path() / kIndexFileName), *serialise_index({{"w", "a"}}, 1));
  EXPECT_FAILS(write_index(folder.path() / "no", {}, 0), Code::kNotFound, "no");
}

}  // namespace
}  // namespace deltawire::testing
