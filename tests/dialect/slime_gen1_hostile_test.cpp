// Damaged and hostile files of slime's first generation: a named error, or provably no harm.

#include "dialect/frames/zstd_frame.h"
#include "dialect/slime_gen1/gen1_values.h"
#include "foreign_model.h"

namespace deltawire::testing {
namespace {

const std::string kGen1File = "weight_v000001/rank0000_flush000000.safetensors";

// A file by hand. Two parameters: "a" of 3 changes, "b" of 2.
struct Gen1Hand {
  std::string encoding = "indices", version = "1";
  std::string params =
      R"([{"name": "a", "dtype": "bfloat16", "shape": [4, 6], "pos_start": 0, "pos_end": 12,)"
      R"( "pos_width": 4, "val_start": 0, "val_end": 3}, {"name": "b", "dtype": "bfloat16",)"
      R"( "shape": [10], "pos_start": 12, "pos_end": 20, "pos_width": 4, "val_start": 3,)"
      R"( "val_end": 5}])";
  std::vector<uint32_t> positions = {0, 7, 23, 2, 9};
  std::vector<uint16_t> values = {0x4000, 0x8000, 0x3f81, 0xc123, 0x7f80};
  std::string positions_dtype = "U8", values_dtype = "BF16", more_tensors, more_metadata;
  std::optional<std::string> checksum;

  std::string text() const {
    std::string position_bytes(4 * positions.size(), 0), value_bytes(2 * values.size(), 0);
    std::memcpy(position_bytes.data(), positions.data(), position_bytes.size());
    std::memcpy(value_bytes.data(), values.data(), value_bytes.size());
    std::string escaped;
    for (const char c : params) escaped += c == '"' ? "\\\"" : std::string(1, c);
    const std::string sum =
        checksum ? *checksum
                 : gen1::checksum(as_bytes(position_bytes), DType::kBF16, as_bytes(value_bytes));
    const size_t v = value_bytes.size(), all = v + position_bytes.size();
    std::string json = R"({"__metadata__":{"encoding":")" + encoding + R"(","params":")" + escaped +
                       R"(","checksum":")" + sum + R"(","current_version":")" + version + "\"" +
                       more_metadata + R"(},"__values__":{"dtype":")" + values_dtype +
                       R"(","shape":[)" + std::to_string(values.size()) +
                       R"(],"data_offsets":[0,)" + std::to_string(v) +
                       R"(]},"__positions__":{"dtype":")" + positions_dtype + R"(","shape":[)" +
                       std::to_string(position_bytes.size()) + R"(],"data_offsets":[)" +
                       std::to_string(v) + "," + std::to_string(all) + "]}" + more_tensors + "}";
    json.append(7 - (json.size() + 7) % 8, ' ');
    return frame(json, value_bytes + position_bytes);
  }

  Gen1Hand& replace(std::string_view from, std::string_view to) {
    const size_t at = params.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    params.replace(at, from.size(), to);
    return *this;
  }
};

ForeignModel gen1_hand_model() {
  ForeignModel model;
  model.add("a", DType::kBF16, {4, 6});
  model.add("b", DType::kBF16, {10});
  return model;
}

Status read_gen1(const std::string& file, ForeignModel* model) {
  MemoryStore store;
  DW_RETURN_IF_ERROR(store.put(kGen1File, MemoryBody(file)));
  return read_version(*find_dialect("slime-gen1"), store, 1, model);
}

Status read_gen1(const Gen1Hand& hand) {
  ForeignModel model = gen1_hand_model();
  return read_gen1(hand.text(), &model);
}

template <class... Phrases>
::testing::AssertionResult gen1_corrupt(const Gen1Hand& hand, const Phrases&... phrases) {
  return is_failure(read_gen1(hand), Code::kCorruption, "rank0000_flush000000", phrases...);
}

TEST(SlimeGen1Hostile, TheSampleIsGood) {
  ForeignModel model = gen1_hand_model(), expected = model;
  must(read_gen1(Gen1Hand().text(), &model));
  expected.set<uint16_t>("a", 0, 0x4000);
  expected.set<uint16_t>("a", 7, 0x8000);
  expected.set<uint16_t>("a", 23, 0x3f81);
  expected.set<uint16_t>("b", 2, 0xc123);
  expected.set<uint16_t>("b", 9, 0x7f80);
  EXPECT_EQ(model, expected);
}

TEST(SlimeGen1Hostile, Metadata) {
  Gen1Hand hand;
  hand.checksum = "1";
  EXPECT_TRUE(gen1_corrupt(hand, "checksum: expected \"1\""));
  hand = {};
  hand.encoding = "deltas_zstd";  // but it is no frame
  EXPECT_TRUE(gen1_corrupt(hand, "encoding", "indices or deltas"));
  hand.encoding = "\\u001b[2J";  // does not reach a terminal
  EXPECT_TRUE(gen1_corrupt(hand, "encoding"));
  EXPECT_EQ(read_gen1(hand).message().find('\x1b'), std::string::npos);
  hand = {};
  hand.version = "01";
  EXPECT_TRUE(gen1_corrupt(hand, "current_version", "a number", "01"));
  hand.version = "2";
  EXPECT_TRUE(gen1_corrupt(hand, "current_version", "expected 1", "got 2"));
  hand = {};
  hand.more_tensors = R"(,"x":{"dtype":"U8","shape":[0],"data_offsets":[30,30]})";
  EXPECT_TRUE(gen1_corrupt(hand, "number of tensors: expected 2, got 3"));
  hand = {};
  hand.values_dtype = "C64";
  EXPECT_FALSE(read_gen1(hand).ok());
  hand.values_dtype = "F16";  // holds no bf16
  EXPECT_FALSE(read_gen1(hand).ok());
}

// Before there were checksums a file said what it goes onto.
TEST(SlimeGen1Hostile, OldFiles) {
  const std::string text = Gen1Hand().text();
  Gen1Hand hand;
  hand.more_metadata = R"(,"prev_version":"default")";
  EXPECT_TRUE(read_gen1(hand).ok());
  hand.more_metadata = R"(,"prev_version":"x")";
  EXPECT_TRUE(gen1_corrupt(hand, "prev_version", "a number"));
  const auto without_checksum = [](std::string file) {
    file.replace(file.find("\"checksum\""), 10, "\"nothing_\"");
    return file;
  };
  ForeignModel model = gen1_hand_model();
  EXPECT_FAILS(read_gen1(without_checksum(text), &model), kCorruption,
               "missing metadata \"checksum\"");
  hand.more_metadata = R"(,"prev_version":"0")";
  EXPECT_TRUE(read_gen1(without_checksum(hand.text()), &model).ok());
}

TEST(SlimeGen1Hostile, Params) {
  const auto with = [](std::string_view from, std::string_view to) {
    return Gen1Hand().replace(from, to);
  };
  Gen1Hand hand;
  hand.params = "{}";
  EXPECT_TRUE(gen1_corrupt(hand, "\"params\": not a JSON list"));
  hand.params = std::string(100000, '[');
  EXPECT_TRUE(gen1_corrupt(hand, "\"params\": not a JSON list"));
  hand.params = "[1]";
  EXPECT_TRUE(gen1_corrupt(hand, "entry 0: not an object"));
  hand.params = "[]";
  EXPECT_TRUE(gen1_corrupt(hand, "bytes of \"__positions__\": expected 0, got 20"));
  EXPECT_TRUE(gen1_corrupt(with("\"a\"", "5"), "entry 0: \"name\" is not text"));
  EXPECT_TRUE(gen1_corrupt(with("\"name\": \"b\"", "\"name\": \"a\""), "\"a\" is there twice"));
  EXPECT_TRUE(
      gen1_corrupt(with("\"pos_width\": 4", "\"pos_width\": 2"), "pos_width", "expected 4"));
  EXPECT_TRUE(gen1_corrupt(with("\"pos_width\": 4", "\"pos_width\": 0"), "2 or 4"));
  EXPECT_TRUE(gen1_corrupt(with("\"pos_width\": 4", "\"pos_width\": -4"), "is not a number"));
  EXPECT_TRUE(gen1_corrupt(with("\"pos_width\": 4", "\"pos_width\": 4, \"x\": 1"), "fields"));
  EXPECT_TRUE(gen1_corrupt(with("\"pos_start\": 12", "\"pos_start\": 8"), "tensor \"b\"",
                           "pos_start: expected 12, got 8"));  // overlaps
  EXPECT_TRUE(gen1_corrupt(with("\"val_start\": 3", "\"val_start\": 4"), "val_start"));
  EXPECT_TRUE(gen1_corrupt(with("\"pos_end\": 20", "\"pos_end\": 24"), "pos_end", "12 to 20"));
  EXPECT_TRUE(gen1_corrupt(with("\"pos_end\": 20", "\"pos_end\": 11"), "pos_end"));
  EXPECT_TRUE(gen1_corrupt(with("\"pos_end\": 20", "\"pos_end\": 16"), "bytes of positions"));
  EXPECT_TRUE(gen1_corrupt(with("\"val_end\": 5", "\"val_end\": 18446744073709551615"), "val_end"));
  EXPECT_FAILS(read_gen1(with("bfloat16", "complex64")), kUnsupported, "tensor \"a\"",
               "\"complex64\"");
  EXPECT_FAILS(read_gen1(with("bfloat16", "float32")), kUnsupported,
               "F32 does not survive in values of BF16");
}

TEST(SlimeGen1Hostile, Shapes) {
  const auto with = [](std::string_view shape) { return Gen1Hand().replace("[4, 6]", shape); };
  EXPECT_TRUE(gen1_corrupt(with("[9223372036854775808, 4]"), "over 2^64 elements"));
  EXPECT_TRUE(gen1_corrupt(with("[0, 9223372036854775808, 4]"), "over 2^64 elements"));
  EXPECT_TRUE(gen1_corrupt(with("[18446744073709551615]"), "over 2^64 bytes"));
  EXPECT_TRUE(gen1_corrupt(with("[4, -6]"), "a list of numbers"));
  EXPECT_TRUE(gen1_corrupt(with("[4, 6.0]"), "a list of numbers"));
  EXPECT_TRUE(gen1_corrupt(with("24"), "not a list"));
  EXPECT_TRUE(gen1_corrupt(with("[0]"), "last position in [0]: expected below 0, got 23"));
  EXPECT_TRUE(gen1_corrupt(with("[23]"), "below 23, got 23"));
  std::string deep = "[1";
  for (int i = 0; i < 64; ++i) deep += ", 1";
  EXPECT_TRUE(gen1_corrupt(with(deep + "]"), "dimensions", "at most 64"));
  // Sizes that could be, but are not the checkpoint's: nothing is allocated for them.
  EXPECT_FAILS(read_gen1(with("[1099511627776]")), kInvalidArgument, "tensor \"a\"",
               "[1099511627776]", "the checkpoint has BF16 [4, 6]");
  EXPECT_FAILS(read_gen1(with("[6, 4]")), kInvalidArgument, "[6, 4]");
}

TEST(SlimeGen1Hostile, Positions) {
  Gen1Hand hand;
  hand.positions = {0, 7, 7, 2, 9};
  EXPECT_TRUE(gen1_corrupt(hand, "tensor \"a\"", "position of change 2: expected 8 to", "got 7"));
  hand.positions = {7, 0, 23, 2, 9};
  EXPECT_TRUE(gen1_corrupt(hand, "position of change 1"));
  hand.positions = {0, 7, 24, 2, 9};
  EXPECT_TRUE(gen1_corrupt(hand, "last position", "below 24, got 24"));
  hand.positions = {0, 7, 0xffffffff, 2, 9};  // -1
  EXPECT_TRUE(gen1_corrupt(hand, "position of change 2"));
  hand.encoding = "deltas";
  hand.positions = {0, 6, 15, 2, 6};
  EXPECT_TRUE(read_gen1(hand).ok());
  hand.positions = {0, 6, 16, 2, 6};
  EXPECT_TRUE(gen1_corrupt(hand, "last position"));
  hand.positions = {0xffffffff, 0xffffffff, 0xffffffff, 2, 6};  // sums over 2^32
  EXPECT_TRUE(gen1_corrupt(hand, "position of change 0"));
}

TEST(SlimeGen1Hostile, EveryTruncation) {
  const std::string file = Gen1Hand().text();
  for (size_t size = 0; size < file.size(); ++size) {
    ForeignModel model = gen1_hand_model();
    const Status status = read_gen1(file.substr(0, size), &model);
    EXPECT_FAILS(status, kCorruption, "rank0000_flush000000") << size;
  }
}

// All flips of one bit that are accepted and give other tensors.
std::vector<size_t> unnoticed_flips(const std::string& good, const ForeignModel& base) {
  ForeignModel expected = base;
  EXPECT_TRUE(read_gen1(good, &expected).ok());
  std::vector<size_t> unnoticed;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string file = good;
    file[bit / 8] = char(file[bit / 8] ^ 1 << bit % 8);
    ForeignModel model = base;
    const Status status = read_gen1(file, &model);
    if (status.ok() && model != expected) unnoticed.push_back(bit);
    EXPECT_TRUE(status.ok() || !status.message().empty());
  }
  return unnoticed;
}

TEST(SlimeGen1Hostile, EveryFlippedBit) {
  EXPECT_TRUE(unnoticed_flips(Gen1Hand().text(), gen1_hand_model()).empty());
}

TEST(SlimeGen1Hostile, EveryFlippedBitAndTruncationOfAFrame) {
  Gen1Hand hand;
  hand.encoding = "deltas_zstd";
  hand.positions = {0, 6, 15, 2, 6};
  std::vector<uint8_t> packed;
  ASSERT_TRUE(ZstdCompressor().append(as_bytes(hand.text()), &packed).ok());
  const std::string file = as_string(packed);
  EXPECT_TRUE(unnoticed_flips(file, gen1_hand_model()).empty());
  for (size_t size = 0; size < file.size(); ++size) {
    ForeignModel model = gen1_hand_model();
    EXPECT_EQ(read_gen1(file.substr(0, size), &model).code(), Code::kCorruption) << size;
  }
  ForeignModel model = gen1_hand_model();
  EXPECT_FAILS(read_gen1(file + file, &model), kCorruption, "zstd frame size");
}

// What neither checksum nor structure can notice, and only a digest of the tensors would:

// 1. The bit that tells a quiet NaN from a signalling one: float64 has none of the latter.
TEST(SlimeGen1Unnoticed, TheQuietBitOfANaN) {
  Gen1Hand hand;
  hand.values[1] = 0x7fc1;
  const std::string file = hand.text();
  const size_t value = file.size() - 4 * 5 - 2 * 5 + 2 * 1;
  EXPECT_EQ(unnoticed_flips(file, gen1_hand_model()), std::vector<size_t>{8 * value + 6});
}

// 2. A name that becomes that of another tensor of the same dtype and shape, which the version
// leaves alone.
TEST(SlimeGen1Unnoticed, ANameThatBecomesAnother) {
  ForeignModel model = gen1_hand_model();
  model.add("c", DType::kBF16, {10});
  const std::string file = Gen1Hand().text();
  const size_t name = file.find(R"(\"b\")") + 2;  // 'b' ^ 1 is 'c'
  EXPECT_EQ(unnoticed_flips(file, model), std::vector<size_t>{8 * name});
}

// 3. Two errors that cancel out: values that changed places, or the same bit in two of them.
TEST(SlimeGen1Unnoticed, ErrorsThatCancelOut) {
  ForeignModel good = gen1_hand_model(), swapped = good, flipped = good;
  ASSERT_TRUE(read_gen1(Gen1Hand().text(), &good).ok());
  const std::string text = Gen1Hand().text();
  std::string file = text;
  const size_t values = file.size() - 4 * 5 - 2 * 5;
  std::swap_ranges(file.begin() + long(values), file.begin() + long(values) + 2,
                   file.begin() + long(values) + 2);
  EXPECT_TRUE(read_gen1(file, &swapped).ok());
  EXPECT_NE(swapped, good);
  file = text;
  for (const size_t i : {0, 2}) file[values + 2 * i] = char(file[values + 2 * i] ^ 2);
  EXPECT_TRUE(read_gen1(file, &flipped).ok());
  EXPECT_NE(flipped, good);
}

// A frame of a few bytes that claims to hold `size`: one block of zeros, the last.
std::string claiming_frame(uint64_t size) {
  std::string frame("\x28\xb5\x2f\xfd\xe0", 5);
  frame.append(8, '\0');
  store_le(frame.data() + 5, size);
  return frame + std::string("\x03\x00\x10\x00", 4);
}

TEST(SlimeGen1Hostile, BombsAreRefusedBeforeMemoryIsTaken) {
  ForeignModel model = gen1_hand_model();
  EXPECT_FAILS(read_gen1(claiming_frame(uint64_t{1} << 50), &model), kCorruption,
               "zstd content size", "at most 1073741824 for a file of 17 bytes",
               "got 1125899906842624");
  EXPECT_EQ(read_gen1(claiming_frame(1 << 20), &model).code(), Code::kCorruption);  // a lie
}

}  // namespace
}  // namespace deltawire::testing
