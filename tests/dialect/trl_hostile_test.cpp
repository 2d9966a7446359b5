// Damaged and hostile files in TRL's format. It has no checksum: damage to a value, a position or a
// name that keeps the file valid goes undetected.
#include "foreign_model.h"

namespace deltawire::testing {
namespace {

// A handmade delta: "a" has 3 changes, "b" has 2.
struct TrlHand {
  bool v1 = false;
  std::string sparse = "True", version = "2", params = "2", changed = "5", total = "34";
  std::string encoding = "raw", format = "sparse_weight_patch";
  std::string listed = R"([\"a\", \"b\"])";
  std::string index_dtype = "I32", value_dtype = "BF16", more;
  std::vector<uint32_t> positions = {0, 7, 23, 2, 9};
  std::vector<uint16_t> values = {0x4000, 0x8000, 0x3f81, 0xc123, 0x7f80};
  std::string keys[4] = {"a.idx", "b.idx", "a.val", "b.val"};

  std::string text() const {
    std::string data(20, 0);
    std::memcpy(data.data(), positions.data(), 20);
    data.append(reinterpret_cast<const char*>(values.data()), 10);
    const auto field = [](const char* key, const std::string& value) {
      return std::string(",\"") + key + "\":\"" + value + "\"";
    };
    const auto tensor = [](const std::string& key, const std::string& dtype, int count, int begin,
                           int end) {
      return ",\"" + key + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + std::to_string(count) +
             "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
    };
    std::string json =
        R"({"__metadata__":{"format":")" + format + "\"" + field("version", "1") +
        field("sparse", sparse) + field("model_version", version) +
        field("num_changed_params", params) + field("total_changed_elements", changed) +
        field("total_elements", total) + field("sparsity", "0.5") +
        (v1 ? field("changed_params", listed) : field("encoding", encoding)) + "}" +
        tensor(keys[0], index_dtype, 3, 0, 12) + tensor(keys[1], index_dtype, 2, 12, 20) +
        tensor(keys[2], value_dtype, 3, 20, 26) + tensor(keys[3], value_dtype, 2, 26, 30) + more +
        "}";
    json.append(7 - (json.size() + 7) % 8, ' ');
    return frame(json, data);
  }
};

TrlHand trl_hand_v1() {
  TrlHand hand;
  hand.v1 = true;
  const char* keys[] = {"a.indices", "b.indices", "a.values", "b.values"};
  for (size_t i = 0; i < 4; ++i) hand.keys[i] = keys[i];
  return hand;
}

ForeignModel trl_hand_model() {
  ForeignModel model;
  model.add("a", DType::kBF16, {4, 6});
  model.add("b", DType::kBF16, {10});
  return model;
}

Status read_trl(const std::string& file, ForeignModel* model,
                const std::string& name = "deltas/step_000002.safetensors") {
  MemoryStore store;
  DW_RETURN_IF_ERROR(store.put(name, MemoryBody(file)));
  return read_version(*find_dialect("trl"), store, 2, model);
}

Status read_trl(const TrlHand& hand) {
  ForeignModel model = trl_hand_model();
  return read_trl(hand.text(), &model);
}

template <class... Phrases>
::testing::AssertionResult trl_corrupt(const TrlHand& hand, const Phrases&... phrases) {
  return is_failure(read_trl(hand), Code::kCorruption, "deltas/step_000002.safetensors",
                    phrases...);
}

TEST(TrlHostile, AcceptsTheUndamagedSamples) {
  ForeignModel expected = trl_hand_model();
  expected.set<uint16_t>("a", 0, 0x4000);
  expected.set<uint16_t>("a", 7, 0x8000);
  expected.set<uint16_t>("a", 23, 0x3f81);
  expected.set<uint16_t>("b", 2, 0xc123);
  expected.set<uint16_t>("b", 9, 0x7f80);
  TrlHand gaps;
  gaps.encoding = "gap_delta";
  gaps.index_dtype = "U32";
  gaps.positions = {0, 6, 15, 2, 6};
  for (const TrlHand& hand : {TrlHand(), trl_hand_v1(), gaps}) {
    ForeignModel model = trl_hand_model();
    must(read_trl(hand.text(), &model));
    EXPECT_EQ(model, expected);
  }
}

TEST(TrlHostile, RejectsInvalidMetadata) {
  const auto with = [](std::string TrlHand::*field, const char* value) {
    TrlHand hand;
    hand.*field = value;
    return hand;
  };
  EXPECT_TRUE(trl_corrupt(with(&TrlHand::format, "pt"), "\"format\"", "sparse_weight_patch", "pt"));
  EXPECT_TRUE(trl_corrupt(with(&TrlHand::sparse, "False"), "\"sparse\"", "expected True"));
  EXPECT_TRUE(trl_corrupt(with(&TrlHand::sparse, "true"), "True or False"));
  EXPECT_TRUE(trl_corrupt(with(&TrlHand::version, "3"), "\"model_version\": expected 2, got 3"));
  EXPECT_TRUE(trl_corrupt(with(&TrlHand::version, "-2"), "\"model_version\"", "a number"));
  EXPECT_TRUE(trl_corrupt(with(&TrlHand::changed, "6"), "total_changed_elements", "expected 5"));
  EXPECT_TRUE(trl_corrupt(with(&TrlHand::total, "4"), "total_changed_elements", "at most 4"));
  EXPECT_TRUE(trl_corrupt(with(&TrlHand::params, "1"), "num_changed_params", "at least 2"));
  EXPECT_TRUE(read_trl(with(&TrlHand::params, "3")).ok());  // v3 counts those it looked at
  EXPECT_FAILS(read_trl(with(&TrlHand::encoding, "nvcomp_cascaded")), kUnsupported,
               "deltas/step_000002", "nvcomp_cascaded", "instead", "gap_delta");
  EXPECT_FAILS(read_trl(with(&TrlHand::encoding, "zip")), kUnsupported, "\"zip\"");
  TrlHand v1 = trl_hand_v1();
  v1.params = "3";
  EXPECT_TRUE(trl_corrupt(v1, "\"num_changed_params\": expected 2, got 3"));
  for (const char* listed : {R"([\"a\"])", R"([\"a\", \"a\"])", R"([\"a\", \"c\"])", "{}", "[1]"}) {
    v1 = trl_hand_v1();
    v1.listed = listed;
    EXPECT_TRUE(trl_corrupt(v1, "changed_params")) << listed;
  }
}

TEST(TrlHostile, RejectsInvalidTensors) {
  const auto with_key = [](size_t i, const char* key) {
    TrlHand hand;
    hand.keys[i] = key;
    return hand;
  };
  EXPECT_TRUE(trl_corrupt(with_key(0, "a"), "tensor \"a\"", "ends neither in \".idx\""));
  EXPECT_TRUE(trl_corrupt(with_key(0, "a.indices"), "a.indices"));
  EXPECT_TRUE(trl_corrupt(with_key(0, "c.idx"), "tensor \"c\": it has no values"));
  EXPECT_TRUE(trl_corrupt(with_key(2, "c.val"), "tensor \"a\": it has no values"));
  EXPECT_TRUE(trl_corrupt(with_key(0, "a.val.idx"), "it has no values"));
  TrlHand more;
  more.more = R"(,"c.val":{"dtype":"BF16","shape":[0],"data_offsets":[30,30]})";
  EXPECT_TRUE(trl_corrupt(more, "tensor \"c\": it has no positions"));
  TrlHand dtype;
  dtype.index_dtype = "U32";
  EXPECT_TRUE(trl_corrupt(dtype, "a.idx", "expected I32", "got U32"));
  dtype.encoding = "gap_delta";
  dtype.index_dtype = "I32";
  EXPECT_TRUE(trl_corrupt(dtype, "expected U16 or U32"));
  // The same size, but another dtype than the checkpoint: TRL casts to bf16.
  dtype = {};
  dtype.value_dtype = "F16";
  EXPECT_FAILS(read_trl(dtype), kInvalidArgument, "tensor \"a\"",
               "values are F16, the checkpoint has BF16");
}

TEST(TrlHostile, RejectsInvalidPositions) {
  TrlHand hand;
  hand.positions = {0, 7, 7, 2, 9};
  EXPECT_TRUE(trl_corrupt(hand, "a.idx", "position of change 2"));
  hand.positions = {0, 7, 0x80000000, 2, 9};
  EXPECT_TRUE(trl_corrupt(hand, "a.idx", "position of change 2"));
  hand.positions = {0, 7, 24, 2, 9};  // found when the tensor's size is known
  EXPECT_TRUE(trl_corrupt(hand, "tensor \"a\"", "position of change 2", "below 24"));
}

TEST(TrlHostile, RejectsInvalidAnchors) {
  const auto anchor = [](const std::string& sparse, const std::string& total) {
    return frame(R"({"__metadata__":{"format":"sparse_weight_patch","version":"1","sparse":")" +
                     sparse + R"(","model_version":"2","num_changed_params":"1",)" +
                     R"("total_changed_elements":"10","total_elements":")" + total +
                     R"(","sparsity":"0.0","encoding":"nvcomp_cascaded"},)" +
                     R"("b":{"dtype":"BF16","shape":[10],"data_offsets":[0,20]}})",
                 std::string(20, 'x'));
  };
  const std::string name = "anchors/step_000002.safetensors";
  ForeignModel model = trl_hand_model();
  EXPECT_TRUE(read_trl(anchor("False", "10"), &model, name).ok());  // its encoding means nothing
  EXPECT_EQ(model.get<uint16_t>("b", 9), 0x7878);
  EXPECT_FAILS(read_trl(anchor("False", "11"), &model, name), kCorruption, "total_elements",
               "expected 10, got 11");
  EXPECT_FALSE(read_trl(anchor("True", "10"), &model, name).ok());
  model.tensors.at("b").shape = {5, 2};
  EXPECT_FAILS(read_trl(anchor("False", "10"), &model, name), kInvalidArgument, "tensor \"b\"",
               "BF16 [10]", "BF16 [5, 2]");
}

TEST(TrlHostile, RejectsEveryTruncation) {
  for (const std::string& file : {TrlHand().text(), trl_hand_v1().text()}) {
    for (size_t size = 0; size < file.size(); ++size) {
      ForeignModel model = trl_hand_model();
      EXPECT_EQ(read_trl(file.substr(0, size), &model).code(), Code::kCorruption) << size;
    }
  }
}

// Every flipped bit gives a named error, the same tensors, or damage that no reader of this format
// can detect: in a value, in a position that still lies between its neighbours, or in a dtype of
// the values (not here: no dtype is one flip from BF16).
TEST(TrlHostile, DetectsEveryFlippedBitThatItCan) {
  const std::string good = TrlHand().text();
  const size_t data = good.size() - 30;
  ForeignModel expected = trl_hand_model();
  ASSERT_TRUE(read_trl(good, &expected).ok());
  size_t in_values = 0, in_positions = 0;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string file = good;
    file[bit / 8] = char(file[bit / 8] ^ 1 << bit % 8);
    ForeignModel model = trl_hand_model();
    const Status status = read_trl(file, &model);
    if (!status.ok() || model == expected) continue;
    EXPECT_GE(bit / 8, data) << "in the header: " << file.substr(bit / 8 - 20, 40);
    (bit / 8 >= data + 20 ? in_values : in_positions) += 1;
  }
  EXPECT_EQ(in_values, 8 * 10U);  // all of them
  // 0 -> 1, 2, 4; 7 -> 6, 5, 3, 15; 23 -> 22, 21, 19; 2 -> 3, 0, 6; 9 -> 8.
  EXPECT_EQ(in_positions, 3 + 4 + 3 + 3 + 1U);
}

}  // namespace
}  // namespace deltawire::testing
