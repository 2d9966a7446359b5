#include "deltawire/checkpoint.h"

#include <sys/stat.h>

#include "tensor/defects.h"
#include "tensor/safetensors_writer.h"
#include "tensor/sharded_index.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

// A file of U8 tensors, one per name, each holding its own name.
std::string shard(const std::vector<std::string>& names, const Metadata& metadata = {}) {
  std::vector<TensorSpec> specs;
  std::string data;
  for (const auto& name : names) {
    specs.push_back({name, DType::kU8, {name.size()}});
    data += name;
  }
  return *serialise_safetensors_header(specs, metadata) + data;
}

TEST(Checkpoint, OpensOneFile) {
  TempFolder folder;
  const auto path = folder.put("any.name", shard({"w.2", "w.10", "b"}, {{"format", "pt"}}));
  const auto checkpoint = must(Checkpoint::open(path));
  EXPECT_EQ(checkpoint.path(), path);
  EXPECT_FALSE(checkpoint.has_index());
  EXPECT_EQ(checkpoint.data_bytes(), 8U);

  ASSERT_EQ(checkpoint.files().size(), 1U);
  const CheckpointFile& file = checkpoint.files()[0];
  EXPECT_EQ(file.name, "any.name");
  EXPECT_EQ(file.path, path);
  EXPECT_EQ(file.bytes.size(), fs::file_size(path));
  EXPECT_EQ(file.metadata, (Metadata{{"format", "pt"}}));
  EXPECT_EQ(file.tensors, (std::vector<size_t>{2, 1, 0}));

  ASSERT_EQ(checkpoint.tensors().size(), 3U);
  EXPECT_EQ(checkpoint.tensors()[0].view.name, "b");
  EXPECT_EQ(checkpoint.tensors()[1].view.name, "w.10");
  EXPECT_EQ(checkpoint.tensors()[2].view.name, "w.2");
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    EXPECT_EQ(checkpoint.find(tensor.view.name), &tensor);
    EXPECT_EQ(as_string(tensor.view.bytes), tensor.view.name);
    EXPECT_EQ(tensor.view.bytes.data(), file.bytes.data() + tensor.offset);
    EXPECT_GE(tensor.offset, file.header_bytes);
  }
  for (const auto name : {"", "a", "w", "w.1", "w.3", "z"}) {
    EXPECT_EQ(checkpoint.find(name), nullptr);
  }
}

TEST(Checkpoint, CopiesKeepTheMapping) {
  TempFolder folder;
  const auto path = folder.put("m.safetensors", shard({"w"}));
  std::optional<Checkpoint> copy;
  {
    const auto checkpoint = must(Checkpoint::open(path));
    copy = checkpoint;
  }
  fs::remove(path);
  EXPECT_EQ(as_string(copy->find("w")->view.bytes), "w");
}

TEST(Checkpoint, ReportsMissingFiles) {
  TempFolder folder;
  EXPECT_FAILS(Checkpoint::open(folder.path() / "no"), kNotFound, (folder.path() / "no").string());
  EXPECT_FAILS(Checkpoint::open(folder.path()), kNotFound, folder.path().string(),
               "no .safetensors file");
  EXPECT_FAILS(Checkpoint::open("/dev/null"), kInvalidArgument, "not a regular file");
  EXPECT_FAILS(Checkpoint::open(folder.put("file", "") / "below"), kNotFound);
}

TEST(Checkpoint, OpensAFolderWithOneFile) {
  TempFolder folder;
  folder.put("config.json", "{}");
  folder.put("model.safetensors", shard({"w"}));
  EXPECT_EQ(must(Checkpoint::open(folder.path())).files()[0].name, "model.safetensors");
  folder.put("adapter.safetensors", shard({"w"}));
  EXPECT_FAILS(Checkpoint::open(folder.path()), kInvalidArgument,
               "2 .safetensors files and no model.safetensors.index.json");
}

TEST(Checkpoint, ErrorsNameTheFile) {
  TempFolder folder;
  const auto empty = folder.put("empty.safetensors", "");
  EXPECT_FAILS(Checkpoint::open(empty), kCorruption, empty.string(), defect::kTooShort);
  const auto dtype = folder.put("dtype.safetensors", frame(R"({"w":{"dtype":"F128"}})"));
  EXPECT_FAILS(Checkpoint::open(dtype), kUnsupported, dtype.string(), "tensor \"w\"",
               defect::kUnknownDType);
}

// A header length can look like the first bytes of a pickle or of a zip archive.
TEST(Checkpoint, RecognisesTorchFilesOnly) {
  TempFolder folder;
  using namespace std::string_literals;
  for (const std::string& text :
       {"PK\x03\x04\x00\x00\x08\x08 and so on"s, "\x80\x02\x8a\x0al\xfc\x9c and so on"s}) {
    EXPECT_FAILS(Checkpoint::open(folder.put("pytorch_model.bin", text)), kUnsupported,
                 "as torch.save writes it");
  }
  std::string header = "{}";
  header.resize(640, ' ');
  const std::string whole = "\x80\x02\x00\x00\x00\x00\x00\x00"s + header;
  EXPECT_TRUE(Checkpoint::open(folder.put("a.safetensors", whole)).ok());
  EXPECT_FAILS(Checkpoint::open(folder.put("b.safetensors", whole.substr(0, 500))), kCorruption);
}

TEST(Checkpoint, RejectsEveryTruncation) {
  TempFolder folder;
  const std::string whole = shard({"a", "bb"});
  const auto path = folder.put("m.safetensors", whole);
  for (size_t size = whole.size(); size-- > 0;) {
    fs::resize_file(path, size);
    EXPECT_FAILS(Checkpoint::open(path), kCorruption) << size;
  }
}

TEST(Checkpoint, OpensFilesOver4GiB) {
  TempFolder folder;
  const uint64_t num_elements = (1ULL << 32) + 3;
  std::string head = *serialise_safetensors_header(
      {{"big", DType::kBF16, {num_elements}}, {"tail", DType::kU8, {4}}});
  const auto path = folder.put("m.safetensors", head);
  const uint64_t tail = head.size() + num_elements * 2;
  fs::resize_file(path, tail);  // a hole: nothing is written for it
  std::ofstream(path, std::ios::binary | std::ios::app) << "tail";
  struct stat info;
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_LT(info.st_blocks * 512, 1 << 20);

  const auto checkpoint = must(Checkpoint::open(path));
  EXPECT_EQ(checkpoint.find("big")->view.bytes.size(), num_elements * 2);
  EXPECT_EQ(checkpoint.find("big")->view.bytes.back(), 0);
  EXPECT_EQ(checkpoint.find("tail")->offset, tail);
  EXPECT_EQ(as_string(checkpoint.find("tail")->view.bytes), "tail");
}

class ShardedCheckpoint : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.put("m-1.safetensors", shard({"a", "c"}));
    folder_.put("m-2.safetensors", shard({"b"}));
  }
  Result<Checkpoint> open(std::string_view weight_map) {
    folder_.put(kIndexFileName, "{\"weight_map\":" + std::string(weight_map) + "}\n");
    return Checkpoint::open(folder_.path());
  }
  template <class... Phrases>
  ::testing::AssertionResult corrupt(std::string_view weight_map, const Phrases&... phrases) {
    return is_failure(open(weight_map).status(), Code::kCorruption, phrases...);
  }
  TempFolder folder_;
};

constexpr std::string_view kGoodMap =
    R"({"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-1.safetensors"})";

TEST_F(ShardedCheckpoint, OpensAllShards) {
  folder_.put("unrelated.safetensors", "not one of ours");
  const auto checkpoint = must(open(kGoodMap));
  EXPECT_TRUE(checkpoint.has_index());
  ASSERT_EQ(checkpoint.files().size(), 2U);
  EXPECT_EQ(checkpoint.files()[0].name, "m-1.safetensors");
  EXPECT_EQ(checkpoint.files()[0].tensors, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(checkpoint.files()[1].tensors, (std::vector<size_t>{1}));
  EXPECT_EQ(checkpoint.find("b")->file, 1U);
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    EXPECT_EQ(as_string(tensor.view.bytes), tensor.view.name);
  }
}

TEST_F(ShardedCheckpoint, ReadsItsOwnIndex) {
  ASSERT_TRUE(
      write_index(folder_.path(),
                  {{"a", "m-1.safetensors"}, {"b", "m-2.safetensors"}, {"c", "m-1.safetensors"}}, 3)
          .ok());
  EXPECT_TRUE(Checkpoint::open(folder_.path()).ok());
}

TEST_F(ShardedCheckpoint, FollowsLinksOfTheHubCache) {
  TempFolder elsewhere;
  fs::rename(folder_.path() / "m-2.safetensors", elsewhere.path() / "blob");
  fs::create_symlink(elsewhere.path() / "blob", folder_.path() / "m-2.safetensors");
  EXPECT_EQ(must(open(kGoodMap)).files()[1].name, "m-2.safetensors");
}

TEST_F(ShardedCheckpoint, ReportsAMissingShard) {
  fs::remove(folder_.path() / "m-2.safetensors");
  EXPECT_FAILS(open(kGoodMap), kNotFound, (folder_.path() / "m-2.safetensors").string(),
               defect::kShardMissing);
}

TEST_F(ShardedCheckpoint, FifoInPlaceOfAShardDoesNotHang) {
  fs::remove(folder_.path() / "m-2.safetensors");
  ASSERT_EQ(::mkfifo((folder_.path() / "m-2.safetensors").c_str(), 0600), 0);
  EXPECT_FAILS(open(kGoodMap), kInvalidArgument, "not a regular file");
}

TEST_F(ShardedCheckpoint, ReportsABrokenShard) {
  const auto path = folder_.put("m-2.safetensors", "broken");
  EXPECT_TRUE(corrupt(kGoodMap, path.string(), defect::kTooShort));
}

TEST_F(ShardedCheckpoint, RejectsAnIndexThatContradictsTheShards) {
  EXPECT_TRUE(corrupt(
      R"({"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-1.safetensors","d":"m-2.safetensors"})",
      std::string(kIndexFileName), "tensor \"d\"", defect::kTensorMissing, "found nowhere"));
  EXPECT_TRUE(corrupt(
      R"({"a":"m-1.safetensors","aa":"m-1.safetensors","b":"m-2.safetensors","c":"m-1.safetensors"})",
      "tensor \"aa\"", defect::kTensorMissing));
  EXPECT_TRUE(corrupt(R"({"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-2.safetensors"})",
                      "tensor \"c\"", defect::kTensorMissing,
                      R"(expected in "m-2.safetensors", found in "m-1.safetensors")"));
  EXPECT_TRUE(corrupt(R"({"a":"m-1.safetensors","b":"m-2.safetensors"})",
                      R"(tensor "c" of "m-1.safetensors")", defect::kTensorUnmapped));
  EXPECT_TRUE(corrupt(R"({"b":"m-2.safetensors","c":"m-1.safetensors"})",
                      R"(tensor "a" of "m-1.safetensors")", defect::kTensorUnmapped));
}

TEST_F(ShardedCheckpoint, RejectsATensorInTwoShards) {
  folder_.put("m-2.safetensors", shard({"a", "b"}));
  EXPECT_TRUE(corrupt(kGoodMap, "tensor \"a\"", defect::kTensorTwice, "m-1.safetensors",
                      "m-2.safetensors"));
}

TEST_F(ShardedCheckpoint, RejectsABadIndex) {
  EXPECT_TRUE(
      corrupt(R"({"a":"../m-1.safetensors"})", std::string(kIndexFileName), defect::kNotAFileName));
  EXPECT_TRUE(corrupt("1", std::string(kIndexFileName), defect::kWrongType));
  folder_.put(kIndexFileName, "");
  EXPECT_FAILS(Checkpoint::open(folder_.path()), kCorruption, defect::kNotObject);
}

TEST_F(ShardedCheckpoint, RejectsAnIndexOverTheLimit) {
  const auto path = folder_.put(kIndexFileName, "{}");
  fs::resize_file(path, kMaxIndexBytes + 1);
  EXPECT_FAILS(Checkpoint::open(folder_.path()), kCorruption, path.string(), "over the limit");
}

TEST_F(ShardedCheckpoint, EmptyMapIsAnEmptyCheckpoint) {
  const auto checkpoint = must(open("{}"));
  EXPECT_TRUE(checkpoint.tensors().empty());
  EXPECT_TRUE(checkpoint.files().empty());
}

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

TEST(ShardedIndex, IgnoresWrongTotalSizes) {
  for (const auto metadata : {"{}", "{\"total_size\":-1}", "{\"total_size\":\"x\"}", "null", "7",
                              "[]", "{\"total_size\":99999999999999999999999}"}) {
    const auto entries =
        parse_index(std::string("{\"metadata\":") + metadata + ",\"weight_map\":{\"a\":\"f\"}}");
    EXPECT_TRUE(entries.ok()) << metadata;
  }
}

TEST(ShardedIndex, RejectsFilesThatAreNotIndexes) {
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

TEST(ShardedIndex, RejectsDuplicateKeys) {
  EXPECT_TRUE(corrupt(R"({"weight_map":{"w":"a","w":"a"}})", defect::kDuplicateKey, "\"w\""));
  EXPECT_TRUE(corrupt(R"({"weight_map":{},"weight_map":{}})", defect::kDuplicateKey));
  EXPECT_TRUE(corrupt(R"({"metadata":{},"metadata":{},"weight_map":{}})", defect::kDuplicateKey,
                      "\"metadata\""));
}

TEST(ShardedIndex, RejectsNamesOutsideTheFolder) {
  for (const auto name : {"", ".", "..", "/etc/passwd", "../x.safetensors", "a/b", "a/../b",
                          "..\\\\x", "\\u002fetc", "a\\u0000.safetensors"}) {
    EXPECT_TRUE(corrupt(std::string("{\"weight_map\":{\"w\":\"") + name + "\"}}",
                        defect::kNotAFileName, "tensor \"w\""))
        << name;
  }
  EXPECT_TRUE(parse_index(R"({"weight_map":{"w":"..a b.safetensors"}})").ok());
}

TEST(ShardedIndex, SerialisesToExactBytes) {
  const auto text =
      must(serialise_index({{"b", "2.safetensors"}, {"caf\xC3\xA9", "1.safetensors"}}, 42));
  EXPECT_EQ(text,
            "{\n  \"metadata\": {\n    \"total_size\": 42\n  },\n  \"weight_map\": {\n"
            "    \"b\": \"2.safetensors\",\n    \"caf\\u00e9\": \"1.safetensors\"\n  }\n}\n");
  EXPECT_EQ(*serialise_index({}, 0),
            "{\n  \"metadata\": {\n    \"total_size\": 0\n  },\n  \"weight_map\": {}\n}\n");
}

TEST(ShardedIndex, SerialiseRejectsInvalidNames) {
  for (const std::vector<IndexEntry>& entries : {std::vector<IndexEntry>{{"w", "a"}, {"w", "b"}},
                                                 {{"w", "../a"}},
                                                 {{"\xFF", "a"}},
                                                 {{"w", "\xFF"}},
                                                 {{"w", ""}}}) {
    EXPECT_FAILS(serialise_index(entries, 0), kInvalidArgument, "tensor");
  }
}

TEST(ShardedIndex, WritesItsFile) {
  TempFolder folder;
  ASSERT_TRUE(write_index(folder.path(), {{"w", "a"}}, 1).ok());
  EXPECT_EQ(read_file(folder.path() / kIndexFileName), *serialise_index({{"w", "a"}}, 1));
  EXPECT_FAILS(write_index(folder.path() / "no", {}, 0), kNotFound, "no");
}

}  // namespace
}  // namespace deltawire::testing
