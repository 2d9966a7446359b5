// Files in slime's format that are damaged, hostile, or make slime's own code fail: the result is
// an error that names the place, or the right tensors.

#include "base/json.h"
#include "dialect/frames/frames.h"
#include "dialect/frames/zstd_frame.h"
#include "foreign_model.h"

namespace deltawire::testing {
namespace {

constexpr const char* kFolder = "weight_v000001/";
constexpr const char* kFile = "model-00000-of-00001.safetensors";

std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// Files of a version, built by hand.
class HandMade {
 public:
  nlohmann::ordered_json metadata = {{"version", "000001"},
                                     {"base_version", "000000"},
                                     {"delta_encoding", "xor"},
                                     {"compression_format", "zstd"},
                                     {"checksum_format", "xxh3-128"}};
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();

  void add(const std::string& file, const std::string& tensor, const std::string& payload,
           const std::string& digest) {
    Part& part = parts_[file];
    part.specs.push_back({tensor, DType::kU8, {payload.size()}});
    if (!digest.empty()) part.digests.push_back({tensor, digest});
    part.data += payload;
    weight_map[tensor] = file;
  }
  // Adds the change of one tensor as the writer encodes it.
  void add(const std::string& file, const TestTensor& before, const TestTensor& after) {
    const auto made = write_xor_frame(before.bytes, after.bytes, ChecksumKind::kXxh3_128, nullptr);
    add(file, after.name, text_of(made->frame), made->checksum.hex);
  }
  std::shared_ptr<MemoryStore> put() const {
    auto store = std::make_shared<MemoryStore>();
    for (const auto& [file, part] : parts_) {
      const auto header = serialise_safetensors_header(part.specs, part.digests);
      EXPECT_TRUE(store->put(kFolder + file, MemoryBody(*header + part.data)).ok());
    }
    const nlohmann::ordered_json index = {{"metadata", metadata}, {"weight_map", weight_map}};
    const std::string text = index.dump();
    EXPECT_TRUE(
        store->put(std::string(kFolder) + "model.safetensors.index.json", MemoryBody(text)).ok());
    return store;
  }

 private:
  struct Part {
    std::vector<TensorSpec> specs;
    Metadata digests;
    std::string data;
  };
  std::map<std::string, Part> parts_;
};

class SlimeHostile : public ::testing::Test {
 protected:
  // Opens and applies; after a failure the tensors are undefined, as callers patch copies.
  Status take(Store& store) { return read_version(dialect_, store, 1, &held_); }
  Status take(const HandMade& made) { return take(*made.put()); }
  HandMade good() const {
    HandMade made;
    for (size_t i = 0; i < before_.size(); ++i) made.add(kFile, before_[i], after_[i]);
    return made;
  }
  // Takes one tensor `a` with this payload and the right digest.
  Status take_payload(const std::string& payload, const char* encoding = "xor") {
    HandMade made;
    made.metadata["delta_encoding"] = encoding;
    made.add(kFile, "a", payload, checksum_of(ChecksumKind::kXxh3_128, after_[0].bytes).hex);
    return take(made);
  }

  const Dialect& dialect_ = *find_dialect("slime");
  const std::vector<TestTensor> before_ = {make_tensor("a", DType::kBF16, {30}, 1),
                                           make_tensor("b", DType::kU8, {7}, 2)};
  const std::vector<TestTensor> after_ = changed(before_, 0.3);
  std::vector<TestTensor> held_ = before_;
};

TEST_F(SlimeHostile, AcceptsTheUndamagedSample) {
  must(take(good()));
  EXPECT_EQ(held_, after_);
}

TEST_F(SlimeHostile, ReadsFilesOfThreeRanks) {
  const auto before = one_of_each_dtype(), after = changed(before, 0.1);
  HandMade made;
  for (size_t i = 0; i < before.size(); ++i) {
    made.add("model-0000" + std::to_string(i % 3) + "-of-00003.safetensors", before[i], after[i]);
  }
  held_ = before;
  must(take(made));
  EXPECT_EQ(held_, after);
}

TEST_F(SlimeHostile, RejectsIndexesThatContradictTheFiles) {
  struct Case {
    std::function<void(HandMade*)> spoil;
    std::vector<std::string> phrases;
  };
  const std::string other = "model-00001-of-00002.safetensors", digest(32, '0');
  const Case cases[] = {
      {[&](HandMade* made) { made->weight_map["c"] = other; }, {other, "missing", "\"c\""}},
      {[](HandMade* made) { made->weight_map["c"] = kFile; }, {kFile, "\"c\"", "not in the file"}},
      {[](HandMade* made) { made->weight_map.erase("b"); }, {kFile, "\"b\"", "not in the index"}},
      // Under xor, slime's own reader applies both, which cancel each other.
      {[&](HandMade* made) { made->add(other, before_[0], after_[0]); }, {"\"a\"", "in two files"}},
      {[&](HandMade* made) {
         made->add(other, before_[0], after_[0]);
         made->weight_map["a"] = kFile;  // whatever the index says
       },
       {"\"a\"", "model-00001-of-00002"}},
      {[&](HandMade* made) {
         made->add("zzz.safetensors", "c", "payload", digest);
         made->weight_map.erase("c");
       },
       {"zzz.safetensors", "\"c\"", "not in the index"}},
      // Without delta metadata it would be a full checkpoint, but its tensors are payloads.
      {[](HandMade* made) { made->metadata = nlohmann::ordered_json::object(); },
       {"\"a\"", "as in a delta"}},
      {[](HandMade* made) { made->add(kFile, "c", "payload", ""); }, {kFile, "\"c\"", "no digest"}},
  };
  for (const Case& one : cases) {
    HandMade made = good();
    one.spoil(&made);
    const Status status = take(made);
    for (const std::string& phrase : one.phrases) EXPECT_FAILS(status, kCorruption, phrase);
  }
}

TEST_F(SlimeHostile, RejectsFilesOutsideTheFolder) {
  for (const char* file : {"../model.safetensors", "/etc/model.safetensors", "a\\b.safetensors",
                           "..", "sub/model.safetensors", ""}) {
    HandMade made = good();
    made.weight_map["a"] = file;
    EXPECT_FAILS(take(made), kCorruption, "\"a\"", "not the name of a file") << file;
  }
}

TEST_F(SlimeHostile, VersionWithoutIndexDoesNotExist) {
  const auto store = good().put();
  ASSERT_TRUE(store->remove(std::string(kFolder) + "model.safetensors.index.json").ok());
  EXPECT_TRUE(dialect_.versions(*store)->empty());
  EXPECT_FALSE(*dialect_.recognises(*store));
  EXPECT_FAILS(take(*store), kNotFound, "weight_v000001", "no model.safetensors.index.json");
}

TEST_F(SlimeHostile, IgnoresFoldersThatAreNotVersions) {
  MemoryStore store;
  for (const char* folder :
       {"weight_v1", "weight_v0000001", "weight_v00001x", "weight_v", "x/weight_v000001"}) {
    const std::string name = std::string(folder) + "/model.safetensors.index.json";
    ASSERT_TRUE(store.put(name, MemoryBody("{}")).ok());
  }
  EXPECT_TRUE(dialect_.versions(store)->empty());
  for (const char* version : {"1000000", "000002"}) {
    const std::string name = std::string("weight_v") + version + "/model.safetensors.index.json";
    ASSERT_TRUE(store.put(name, MemoryBody("{}")).ok());
  }
  EXPECT_EQ(*dialect_.versions(store), (std::vector<uint64_t>{2, 1000000}));
}

TEST_F(SlimeHostile, RejectsInvalidIndexMetadata) {
  struct Case {
    const char* key;
    nlohmann::ordered_json value;
    Code code;
    const char* says;
  };
  const Case cases[] = {
      {"version", "000002", Code::kCorruption, "its index says 2"},
      {"version", "one", Code::kCorruption, "expected a number"},
      {"base_version", "000001", Code::kCorruption, "its base is version 1"},
      {"base_version", nullptr, Code::kCorruption, "base_version"},
      {"delta_encoding", "xor2", Code::kUnsupported, "xor2"},
      {"delta_encoding", 1, Code::kCorruption, "expected a string"},
      {"delta_encoding", nlohmann::ordered_json::array(), Code::kCorruption, "expected a string"},
      {"delta_encoding", nlohmann::ordered_json::object(), Code::kCorruption, "expected a string"},
      {"compression_format", "lz4", Code::kUnsupported, "lz4"},
      {"checksum_format", "sum128", Code::kUnsupported, "sum128"},
      {"checksum_format", "md5", Code::kUnsupported, "md5"},
      {"checksum_format", "blake3", Code::kCorruption, "64 hex digits"},
  };
  for (const Case& one : cases) {
    HandMade made = good();
    made.metadata[one.key] = one.value;
    EXPECT_TRUE(is_failure(take(made), one.code, one.says)) << one.key << " " << one.value;
  }
  for (const char* key :
       {"version", "base_version", "delta_encoding", "compression_format", "checksum_format"}) {
    HandMade made = good();
    made.metadata.erase(key);
    EXPECT_FAILS(take(made), kCorruption, "has no", key);
  }
}

TEST_F(SlimeHostile, RejectsAWrongBase) {
  held_[1].bytes[3] ^= 1;
  EXPECT_FAILS(take(good()), kCorruption, kFile, "\"b\"", "xxh3-128 expected", "version 0");
}

TEST_F(SlimeHostile, RejectsASecondApply) {
  ASSERT_TRUE(take(good()).ok());
  EXPECT_FAILS(take(good()), kCorruption, "\"a\"", "xxh3-128 expected");
}

TEST_F(SlimeHostile, RejectsAnotherDtypeOrShape) {
  held_[0] = make_tensor("a", DType::kBF16, {31}, 1);
  EXPECT_FAILS(take(good()), kCorruption, "\"a\"", "zstd content size", "62", "60");
  const auto store = std::make_shared<MemoryStore>();
  ASSERT_TRUE(write_foreign(dialect_, store, 1, {}, after_, {}, true).ok());
  held_[0] = make_tensor("a", DType::kF16, {30}, 1);  // the same size
  EXPECT_FAILS(take(*store), kInvalidArgument, "\"a\"", "F16 [30]", "BF16 [30]");
  held_[0] = make_tensor("a", DType::kBF16, {5, 6}, 1);
  EXPECT_FAILS(take(*store), kInvalidArgument, "\"a\"", "[5, 6]", "[30]");
}

// ---- payloads ----

std::string rle_block(size_t size, bool last) {
  const auto header = uint32_t(size << 3 | 1 << 1 | (last ? 1 : 0));
  return {char(header), char(header >> 8), char(header >> 16), '\0'};
}

// A frame without a content size, with a window of 2^(10 + log).
std::string unsized_frame(unsigned log, const std::string& blocks) {
  return std::string("\x28\xb5\x2f\xfd\x00", 5) + char(log << 3) + blocks;
}

std::string list_frame(uint32_t count, const std::vector<uint32_t>& positions,
                       const std::string& values) {
  std::vector<uint8_t> content(4 + 4 * positions.size()), frame;
  store_le(content.data(), count);
  for (size_t i = 0; i < positions.size(); ++i) store_le(&content[4 + 4 * i], positions[i]);
  content.insert(content.end(), values.begin(), values.end());
  EXPECT_TRUE(append_zstd_frame(content, &frame).ok());
  return text_of(frame);
}

TEST_F(SlimeHostile, FramesWithoutContentSizeWorkForXorOnly) {
  std::string change(60, '\0');
  for (size_t i = 0; i < 60; ++i) change[i] = char(before_[0].bytes[i] ^ after_[0].bytes[i]);
  const uint32_t raw = 60 << 3 | 1;
  const std::string block{char(raw), char(raw >> 8), '\0'};
  must(take_payload(unsized_frame(7, block + change)));
  EXPECT_EQ(held_[0].bytes, after_[0].bytes);
  EXPECT_FAILS(take_payload(unsized_frame(7, rle_block(10, true)), "overwrite"), kCorruption,
               "zstd content size", "none");
}

TEST_F(SlimeHostile, RejectsZipBombs) {
  std::string gigabytes;
  for (int i = 0; i < 8192; ++i) gigabytes += rle_block(131072, false);
  gigabytes += rle_block(1, true);
  EXPECT_FAILS(take_payload(unsized_frame(7, gigabytes)), kCorruption, "\"a\"", "more");
  std::string stated("\x28\xb5\x2f\xfd\xc0\x38", 6);
  stated += std::string("\x00\x00\x00\x00\x00\x01\x00\x00", 8);  // 1 TiB
  for (const char* encoding : {"xor", "overwrite"}) {
    EXPECT_FAILS(take_payload(stated + gigabytes, encoding), kCorruption, "\"a\"",
                 "zstd content size", "1099511627776");
  }
  EXPECT_FAILS(take_payload(unsized_frame(21, rle_block(60, true))), kCorruption, "zstd window",
               "2147483648");
}

TEST_F(SlimeHostile, RejectsFramesOfAnotherSize) {
  EXPECT_FAILS(take_payload(unsized_frame(7, rle_block(59, true))), kCorruption,
               "zstd content size", "60", "59");
  EXPECT_FAILS(take_payload(unsized_frame(7, rle_block(61, true))), kCorruption, "more");
  EXPECT_FAILS(take_payload(unsized_frame(7, rle_block(60, true)) + "x"), kCorruption,
               "bytes after the zstd frame");
  EXPECT_FAILS(take_payload(unsized_frame(7, rle_block(30, false))), kCorruption, "cut short");
  EXPECT_FAILS(take_payload(""), kCorruption, "magic number");
  EXPECT_FAILS(take_payload(std::string("\x28\xb5\x2f\xfd\x21\x09\x3c", 7) + rle_block(60, true)),
               kCorruption, "zstd dictionary", "9");
  EXPECT_FAILS(take_payload(std::string("\x50\x2a\x4d\x18\x00\x00\x00\x00", 8)), kCorruption,
               "magic number");
}

TEST_F(SlimeHostile, RejectsInvalidOverwriteLists) {
  const auto take_list = [&](uint32_t count, const std::vector<uint32_t>& positions,
                             const std::string& values) {
    return take_payload(list_frame(count, positions, values), "overwrite");
  };
  EXPECT_FAILS(take_list(2, {5, 5}, "xy"), kCorruption, "change 1", "6 to below 60", "got 5");
  EXPECT_FAILS(take_list(2, {5, 4}, "xy"), kCorruption, "change 1", "got 4");
  EXPECT_FAILS(take_list(1, {60}, "x"), kCorruption, "change 0", "got 60");
  EXPECT_FAILS(take_list(1, {0xffffffff}, "x"), kCorruption, "got 4294967295");
  EXPECT_FAILS(take_list(3, {1, 2}, "xy"), kCorruption, "change count", "expected 2, got 3");
  EXPECT_FAILS(take_list(0xffffffff, {1}, "x"), kCorruption, "change count");
  EXPECT_FAILS(take_list(1, {1}, "xy"), kCorruption, "4 + 5 for each");
  EXPECT_FAILS(take_list(61, std::vector<uint32_t>(61), std::string(61, 'x')), kCorruption,
               "at most 304");
}

// ---- damage ----

class SlimeDamage : public SlimeHostile, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(write_foreign(dialect_, store_, 1, before_, after_,
                              {.encoding = GetParam(), .checksum = ""})
                    .ok());
  }
  // The result is an error that names the version, or the right tensors.
  void expect_harmless(const std::string& name, const std::string& damaged) {
    ASSERT_TRUE(store_->put(name, MemoryBody(damaged)).ok());
    held_ = before_;
    const Status status = take(*store_);
    if (status.ok()) {
      EXPECT_EQ(held_, after_);
    } else {
      EXPECT_TRUE(contains(status.message(), "weight_v000001")) << status.to_string();
    }
  }
  std::vector<std::string> names() const {
    return {std::string(kFolder) + kFile, std::string(kFolder) + "model.safetensors.index.json"};
  }

  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
};

TEST_P(SlimeDamage, RejectsEveryTruncation) {
  for (const std::string& name : names()) {
    const std::string whole = *store_->get(name, 1 << 20);
    for (size_t size = 0; size < whole.size(); ++size) {
      ASSERT_TRUE(store_->put(name, MemoryBody(whole.substr(0, size))).ok());
      held_ = before_;
      EXPECT_FALSE(take(*store_).ok()) << name << " " << size;
    }
    ASSERT_TRUE(store_->put(name, MemoryBody(whole)).ok());
  }
}

TEST_P(SlimeDamage, EveryFlippedBitIsDetectedOrHarmless) {
  for (const std::string& name : names()) {
    const std::string whole = *store_->get(name, 1 << 20);
    for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
      std::string damaged = whole;
      damaged[bit / 8] = char(damaged[bit / 8] ^ (1 << bit % 8));
      expect_harmless(name, damaged);
    }
    ASSERT_TRUE(store_->put(name, MemoryBody(whole)).ok());
  }
}

INSTANTIATE_TEST_SUITE_P(Encodings, SlimeDamage, ::testing::Values("xor", "overwrite"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace deltawire::testing
