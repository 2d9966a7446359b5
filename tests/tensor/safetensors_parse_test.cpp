// Every defect of a safetensors file as literal bytes, and valid corner cases.

#include "tensor/defects.h"
#include "tensor/safetensors.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

using namespace std::string_literals;

Status parse_file(std::string_view file) { return parse_safetensors(as_bytes(file)).status(); }
Status parse(std::string_view json, std::string_view data = "") {
  return parse_file(frame(json, data));
}
template <class... Phrases>
::testing::AssertionResult corrupt(const Status& status, const Phrases&... phrases) {
  return is_failure(status, Code::kCorruption, phrases...);
}

TEST(SafetensorsParse, NamesFilesOfTorchSave) {
  for (const std::string& file : {"PK\3\4\0\0\b\b and more"s, "\x80\2}q\0(X\1 and more"s,
                                  "\x80\4\x95\x0a\0\0\0\0\0\0\0}\x94\x8c\1a\x94K\1s."s}) {
    EXPECT_FAILS(parse_file(file), kUnsupported, "as torch.save writes it");
  }
  // A header of 640 bytes starts with the same two bytes.
  EXPECT_TRUE(parse_file(frame("{}" + std::string(638, ' '))).ok());
  EXPECT_EQ(parse_file(frame("[]" + std::string(638, ' '))).code(), Code::kCorruption);
  EXPECT_TRUE(corrupt(parse_file(frame("{" + std::string(639, ' ')).substr(0, 600)),
                      defect::kHeaderPastEnd));
}

TEST(SafetensorsFrame, RejectsShortFiles) {
  EXPECT_TRUE(corrupt(parse_file(""), defect::kTooShort, "0 bytes"));
  EXPECT_TRUE(corrupt(parse_file("\1\0\0\0\0\0\0"), defect::kTooShort));
}

TEST(SafetensorsFrame, ChecksTheHeaderLength) {
  EXPECT_TRUE(corrupt(parse(""), defect::kHeaderEmpty));
  EXPECT_TRUE(corrupt(parse_file("\x01\xE1\xF5\x05" + std::string(4, '\0') + "{}"),
                      defect::kHeaderOverLimit, "100000000", "100000001"));
  EXPECT_TRUE(corrupt(parse_file(std::string(8, '\xFF') + "{}"), defect::kHeaderOverLimit));
  EXPECT_TRUE(corrupt(parse_file("\x03" + std::string(7, '\0') + "{}"), defect::kHeaderPastEnd,
                      "3 bytes, 2 are there"));
}

TEST(SafetensorsJson, RejectsNonObjects) {
  for (const auto json : {"[]", "1", "null", "\"a\"", " {}", "\n{}", "\xEF\xBB\xBF{}", "   "}) {
    EXPECT_TRUE(corrupt(parse(json), defect::kNotObject)) << json;
  }
}

TEST(SafetensorsJson, RejectsInvalidUtf8) {
  EXPECT_TRUE(corrupt(parse("{\"\xFF\":1}"), defect::kNotUtf8));
  EXPECT_TRUE(corrupt(parse("{\"\xED\xA0\x80\":1}"), defect::kNotUtf8));
  EXPECT_TRUE(corrupt(parse("{}\x80"), defect::kNotUtf8));
}

TEST(SafetensorsJson, RejectsInvalidJson) {
  for (const auto json :
       {"{", "{\"a\"", "{\"a\":", "{\"__metadata__\":{\"a\":\"b\"", "{a:1}", "{'a':1}", "{,}",
        "{\"__metadata__\":{},}", "{/*c*/}", "{\"\\ud800\":{}}", "{\"a\nb\":{}}", "{\"\\x\":1}",
        "{\"a\":{\"shape\":[01]}}", "{\"a\":{\"shape\":[+1]}}", "{\"a\":{\"shape\":[1e999]}}"}) {
    EXPECT_TRUE(corrupt(parse(json), defect::kNotJson, "at byte")) << json;
  }
  EXPECT_TRUE(corrupt(parse(std::string_view("{\0}", 3)), defect::kNotJson, "zero byte at byte 2"));
}

TEST(SafetensorsJson, RejectsTrailingBytes) {
  EXPECT_TRUE(parse("{}      ").ok());
  for (const auto json : {"{}}", "{}x", "{} {}", "{}  x  ", "{}\n", "{}\t ", "{},"}) {
    EXPECT_TRUE(corrupt(parse(json), defect::kTrailingBytes)) << json;
  }
  // A zero byte ends the text for many parsers; bytes after it must not be ignored.
  EXPECT_TRUE(corrupt(parse(std::string_view("{}\0", 3)), defect::kNotJson));
  EXPECT_TRUE(corrupt(parse(std::string_view("{}\0evil", 7)), defect::kNotJson));
}

TEST(SafetensorsJson, LimitsNestingDepth) {
  EXPECT_TRUE(corrupt(parse(R"({"a":{"shape":[[1]]}})"), defect::kTooDeep, "3 levels"));
  EXPECT_TRUE(corrupt(parse(R"({"a":{"shape":[{}]}})"), defect::kTooDeep));
  std::string deep = R"({"a":{"shape":)" + std::string(1'000'000, '[');
  EXPECT_TRUE(corrupt(parse(deep), defect::kTooDeep));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_FALSE(parse(objects).ok());
}

TEST(SafetensorsHeader, RejectsDuplicateTensors) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_TRUE(corrupt(parse("{\"w\":" + entry + ",\"w\":" + entry + "}", "x"),
                      defect::kDuplicateTensor, "\"w\""));
  // The same name, spelled differently.
  EXPECT_TRUE(corrupt(parse("{\"w\":" + entry + ",\"\\u0077\":" + entry + "}", "x"),
                      defect::kDuplicateTensor, "\"w\""));
}

TEST(SafetensorsHeader, RejectsDuplicateFields) {
  EXPECT_TRUE(corrupt(parse(R"({"w":{"dtype":"U8","dtype":"U8","shape":[],"data_offsets":[0,1]}})"),
                      defect::kDuplicateField, "tensor \"w\"", "dtype"));
  EXPECT_TRUE(corrupt(parse(R"({"w":{"shape":[],"shape":[]}})"), defect::kDuplicateField, "shape"));
  EXPECT_TRUE(corrupt(parse(R"({"w":{"data_offsets":[0,0],"data_offsets":[0,0]}})"),
                      defect::kDuplicateField, "data_offsets"));
}

TEST(SafetensorsHeader, RejectsUnknownFields) {
  EXPECT_TRUE(corrupt(parse(R"({"w":{"dtype":"U8","strides":[1]}})"), defect::kUnknownField,
                      "tensor \"w\"", "\"strides\""));
  EXPECT_TRUE(corrupt(parse(R"({"w":{"":1}})"), defect::kUnknownField));
}

TEST(SafetensorsHeader, RejectsMissingFields) {
  EXPECT_TRUE(corrupt(parse(R"({"w":{}})"), defect::kMissingField, "tensor \"w\"", "dtype"));
  EXPECT_TRUE(corrupt(parse(R"({"w":{"dtype":"U8","data_offsets":[0,0]}})"), defect::kMissingField,
                      "shape"));
  EXPECT_TRUE(
      corrupt(parse(R"({"w":{"dtype":"U8","shape":[0]}})"), defect::kMissingField, "data_offsets"));
  // Fields of the previous tensor do not count.
  EXPECT_TRUE(
      corrupt(parse(R"({"v":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"w":{"dtype":"U8"}})"),
              defect::kMissingField, "tensor \"w\"", "shape"));
}

TEST(SafetensorsHeader, RejectsWrongTypes) {
  for (const auto value : {"1", "\"x\"", "null", "true", "[]", "-1", "1.5"}) {
    EXPECT_TRUE(corrupt(parse(std::string("{\"w\":") + value + "}"), defect::kWrongType,
                        "tensor \"w\"", "expected an object"))
        << value;
  }
  for (const auto value : {"1", "null", "true", "[]", "{}", "-1", "1.5"}) {
    EXPECT_TRUE(corrupt(parse(std::string("{\"w\":{\"dtype\":") + value + "}}"), defect::kWrongType,
                        "dtype: expected a string"))
        << value;
  }
  for (const auto value : {"1", "null", "\"[1]\"", "{}", "[null]", "[true]", "[\"1\"]"}) {
    EXPECT_TRUE(corrupt(parse(std::string("{\"w\":{\"shape\":") + value + "}}"), defect::kWrongType,
                        "shape: expected an array of integers"))
        << value;
  }
  for (const auto value : {"1", "null", "{}", "[]", "[0]", "[0,0,0]", "[\"0\",0]", "[0,null]"}) {
    EXPECT_TRUE(corrupt(parse(std::string("{\"w\":{\"data_offsets\":") + value + "}}"),
                        defect::kWrongType, "data_offsets: expected an array of two integers"))
        << value;
  }
}

TEST(SafetensorsHeader, RejectsBadNumbers) {
  for (const auto number :
       {"-1", "-0", "1.5", "1.0", "1e0", "18446744073709551616", "-9223372036854775809", "0.5"}) {
    EXPECT_TRUE(corrupt(parse(std::string("{\"w\":{\"shape\":[") + number + "]}}"),
                        defect::kBadNumber, "tensor \"w\"", "shape has"))
        << number;
    EXPECT_TRUE(corrupt(parse(std::string("{\"w\":{\"data_offsets\":[0,") + number + "]}}"),
                        defect::kBadNumber, "data_offsets has"))
        << number;
  }
}

TEST(SafetensorsHeader, UnknownDTypeIsUnsupported) {
  for (const auto dtype : {"F128", "bf16", "", "BF16 "}) {
    EXPECT_FAILS(parse(std::string("{\"w\":{\"dtype\":\"") + dtype + "\"}}"), kUnsupported,
                 defect::kUnknownDType, "tensor \"w\"", "\"" + std::string(dtype) + "\"");
  }
}

TEST(SafetensorsHeader, LimitsTheRank) {
  const auto with_rank = [](size_t rank) {
    std::string shape = "1";
    for (size_t i = 1; i < rank; ++i) shape += ",1";
    return parse("{\"w\":{\"dtype\":\"U8\",\"shape\":[" + shape + "],\"data_offsets\":[0,1]}}",
                 "x");
  };
  EXPECT_TRUE(with_rank(64).ok());
  EXPECT_TRUE(corrupt(with_rank(65), defect::kRankOverLimit, "at most 64"));
}

TEST(SafetensorsHeader, MetadataMustBeUniqueStrings) {
  for (const auto value : {"1", "null", "\"x\"", "[]", "true", "-1"}) {
    EXPECT_TRUE(corrupt(parse(std::string("{\"__metadata__\":") + value + "}"),
                        defect::kMetadataNotStrings))
        << value;
  }
  for (const auto value : {"1", "null", "{}", "[]", "true", "1.5", "{\"dtype\":\"U8\"}"}) {
    EXPECT_TRUE(corrupt(parse(std::string("{\"__metadata__\":{\"k\":") + value + "}}"),
                        defect::kMetadataNotStrings, "key \"k\""))
        << value;
  }
  EXPECT_TRUE(corrupt(parse(R"({"__metadata__":{"k":"a","j":"b","k":"c"}})"),
                      defect::kDuplicateMetadata, "\"k\""));
  EXPECT_TRUE(corrupt(parse(R"({"__metadata__":{},"__metadata__":{}})"), defect::kDuplicateField,
                      "\"__metadata__\""));
}

std::string u8(std::string_view name, uint64_t begin, uint64_t end) {
  return "\"" + std::string(name) + R"(":{"dtype":"U8","shape":[)" +
         std::to_string(end > begin ? end - begin : 0) + R"(],"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST(SafetensorsLayout, RejectsBadOffsets) {
  EXPECT_TRUE(corrupt(parse("{" + u8("w", 2, 1) + "}", "xx"), defect::kOffsetsReversed,
                      "tensor \"w\"", "[2, 1]"));
  EXPECT_TRUE(corrupt(parse("{" + u8("w", 0, 3) + "}", "xx"), defect::kOffsetsPastEnd,
                      "[0, 3] of 2 bytes"));
  EXPECT_TRUE(corrupt(parse("{" + u8("w", 18446744073709551614U, 18446744073709551615U) + "}"),
                      defect::kOffsetsPastEnd));
}

TEST(SafetensorsLayout, EveryByteBelongsToOneTensor) {
  EXPECT_TRUE(parse("{" + u8("a", 0, 2) + "," + u8("b", 2, 4) + "}", "xxxx").ok());
  EXPECT_TRUE(corrupt(parse("{" + u8("a", 1, 4) + "}", "xxxx"), defect::kHole, "tensor \"a\"",
                      "expected to begin at 0, got [1, 4]"));
  EXPECT_TRUE(corrupt(parse("{" + u8("a", 0, 2) + "," + u8("b", 3, 4) + "}", "xxxx"), defect::kHole,
                      "tensor \"b\""));
  EXPECT_TRUE(corrupt(parse("{" + u8("a", 0, 3) + "," + u8("b", 2, 4) + "}", "xxxx"),
                      defect::kOverlap, "tensor \"b\"", "expected to begin at 3"));
  EXPECT_TRUE(
      corrupt(parse("{" + u8("a", 0, 4) + "," + u8("b", 0, 4) + "}", "xxxx"), defect::kOverlap));
  EXPECT_TRUE(corrupt(parse("{" + u8("a", 0, 4) + "," + u8("b", 2, 2) + "}", "xxxx"),
                      defect::kOverlap, "tensor \"b\""));
  EXPECT_TRUE(
      corrupt(parse("{" + u8("a", 0, 2) + "}", "xxxx"), defect::kUncovered, "end at 2 of 4 bytes"));
  EXPECT_TRUE(corrupt(parse("{}", "x"), defect::kUncovered));
}

Status parse_shape(std::string_view dtype, std::string_view shape, size_t size) {
  return parse(R"({"w":{"dtype":")" + std::string(dtype) + R"(","shape":)" + std::string(shape) +
                   R"(,"data_offsets":[0,)" + std::to_string(size) + "]}}",
               std::string(size, 'x'));
}

TEST(SafetensorsLayout, SizeMustMatchTheShape) {
  EXPECT_TRUE(parse_shape("BF16", "[2,2]", 8).ok());
  EXPECT_TRUE(corrupt(parse_shape("BF16", "[2,2]", 6), defect::kSizeMismatch, "tensor \"w\"",
                      "BF16 [2, 2] takes 8 bytes, [0, 6] holds 6"));
  EXPECT_TRUE(corrupt(parse_shape("U8", "[0]", 1), defect::kSizeMismatch));
  EXPECT_TRUE(corrupt(parse_shape("U8", "[]", 0), defect::kSizeMismatch));
}

TEST(SafetensorsLayout, DetectsSizeOverflow) {
  EXPECT_TRUE(corrupt(parse_shape("U8", "[4294967296,4294967296]", 0), defect::kShapeInvalid,
                      "tensor \"w\"", "over 2^64 elements"));
  EXPECT_TRUE(corrupt(parse_shape("F64", "[2305843009213693952]", 0), defect::kShapeInvalid,
                      "over 2^64 bytes"));
  EXPECT_TRUE(corrupt(parse_shape("U8", "[18446744073709551615,0,2]", 0), defect::kShapeInvalid));
}

TEST(SafetensorsLayout, PackedElementsMustFillBytes) {
  EXPECT_TRUE(parse_shape("F4", "[4]", 2).ok());
  EXPECT_TRUE(parse_shape("F6_E2M3", "[2,2]", 3).ok());
  EXPECT_TRUE(
      corrupt(parse_shape("F4", "[3]", 2), defect::kShapeInvalid, "does not fill whole bytes"));
  EXPECT_TRUE(corrupt(parse_shape("F6_E3M2", "[2]", 2), defect::kShapeInvalid));
}

TEST(SafetensorsParse, ParsesAnEmptyFile) {
  const std::string file = frame("{}");
  const auto view = must(parse_safetensors(as_bytes(file)));
  EXPECT_EQ(view.data_offset, 10U);
  EXPECT_TRUE(view.tensors.empty());
  EXPECT_TRUE(view.metadata.empty());
}

TEST(SafetensorsParse, ParsesScalarsEmptyTensorsAndAnyOrder) {
  // Header order differs from data order; whitespace between tokens is legal.
  const std::string file = frame(R"({ "b" : {"dtype":"BF16","shape":[],"data_offsets":[4,6]},
      "e":{"dtype":"F32","shape":[3,0],"data_offsets":[4,4]},
      "a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},
      "":{"data_offsets":[6,6],"shape":[0],"dtype":"U8"},
      "__metadata__":{"z":"1","a":"2"}})",
                                 "abcdef");
  const auto view = must(parse_safetensors(as_bytes(file)));
  ASSERT_EQ(view.tensors.size(), 4U);
  EXPECT_EQ(view.tensors[0].name, "a");
  EXPECT_EQ(as_string(view.tensors[0].bytes), "abcd");
  EXPECT_EQ(view.tensors[0].bytes.data(), as_bytes(file).data() + view.data_offset);
  EXPECT_EQ(view.tensors[1].name, "e");
  EXPECT_EQ(view.tensors[1].shape, (Shape{3, 0}));
  EXPECT_TRUE(view.tensors[1].bytes.empty());
  EXPECT_EQ(view.tensors[2].name, "b");
  EXPECT_EQ(view.tensors[2].dtype, DType::kBF16);
  EXPECT_TRUE(view.tensors[2].shape.empty());
  EXPECT_EQ(as_string(view.tensors[2].bytes), "ef");
  EXPECT_EQ(view.tensors[3].name, "");
  EXPECT_EQ(view.metadata, (Metadata{{"z", "1"}, {"a", "2"}}));
  EXPECT_EQ(*find_metadata(view.metadata, "a"), "2");
  EXPECT_EQ(find_metadata(view.metadata, "b"), nullptr);
}

TEST(SafetensorsParse, DecodesEscapesInMetadata) {
  const std::string file =
      frame(R"({"__metadata__":{"caf\u00e9":"\ud83d\ude00 \"q\" \\ \n\u0000.","":""}})");
  const auto view = must(parse_safetensors(as_bytes(file)));
  EXPECT_EQ(view.metadata[0].first, "caf\xC3\xA9");
  EXPECT_EQ(view.metadata[0].second, "\xF0\x9F\x98\x80 \"q\" \\ \n\0."s);
  EXPECT_EQ(view.metadata[1], (std::pair<std::string, std::string>("", "")));
}

TEST(SafetensorsParse, ParsesAHeaderWithoutItsData) {
  const auto header =
      must(parse_safetensors_header("{" + u8("w", 0, 1ULL << 40) + "}", 1ULL << 40));
  EXPECT_EQ(header.entries[0].end, 1ULL << 40);
}

std::string small_file() {
  return frame(R"({"__metadata__":{"k":"v\n"},)" + u8("a", 0, 3) +
                   R"(,"b":{"dtype":"F4","shape":[2,3],"data_offsets":[3,6]},)" + u8("c", 6, 6) +
                   "}  ",
               "abcdef");
}

TEST(SafetensorsHostile, RejectsEveryTruncation) {
  const std::string file = small_file();
  ASSERT_TRUE(parse_file(file).ok());
  for (size_t size = 0; size < file.size(); ++size) {
    // In a buffer of its own, so that a sanitizer detects a read past the end.
    const std::string cut(file, 0, size);
    EXPECT_TRUE(corrupt(parse_file(std::string_view(cut)))) << size;
  }
  EXPECT_TRUE(corrupt(parse_file(file + "x"), defect::kUncovered));
}

TEST(SafetensorsHostile, SurvivesEveryBitFlip) {
  const std::string file = small_file();
  size_t accepted = 0;
  for (size_t bit = 0; bit < (file.size() - 6) * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = char(flipped[bit / 8] ^ 1 << bit % 8);
    const auto view = parse_safetensors(as_bytes(flipped));
    if (!view.ok()) continue;
    ++accepted;  // a letter of a name or of metadata, or a dtype of the same width
    size_t covered = 0;
    for (const TensorView& tensor : view->tensors) covered += tensor.bytes.size();
    EXPECT_EQ(covered, 6U) << bit;
    EXPECT_EQ(view->data_offset + covered, flipped.size()) << bit;
  }
  EXPECT_GT(accepted, 0U);
  EXPECT_LT(accepted, 60U);
}

TEST(SafetensorsHostile, KeepsMessagesShort) {
  const std::string name(1'000'000, 'n');
  const Status status = parse("{\"" + name + "\":{\"dtype\":\"" + name + "\"}}");
  EXPECT_FAILS(status, kUnsupported, defect::kUnknownDType);
  EXPECT_LT(status.message().size(), 400U);
  EXPECT_LT(parse("{\"" + name).message().size(), 400U);
}

TEST(SafetensorsHostile, ParsesManyTensors) {
  DW_LABEL(long);
  std::string json = "{";
  for (int i = 0; i < 50'000; ++i) {
    if (i > 0) json += ',';
    json += u8(std::to_string(i), 0, 0);
  }
  EXPECT_TRUE(parse(json + "}").ok());
}

}  // namespace
}  // namespace deltawire::testing
