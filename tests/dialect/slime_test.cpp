// The reader reads what the writer of slime's format writes.
#include "base/json.h"

#include "deltawire/digest.h"
#include "deltawire/store.h"
#include "dialect/frames/zstd_frame.h"
#include "foreign_model.h"

namespace deltawire::testing {
namespace {

struct SlimeForm {
  const char* encoding;
  const char* checksum;
};

class SlimeRoundTrip : public ::testing::TestWithParam<SlimeForm> {
 protected:
  const Dialect& dialect_ = *find_dialect("slime");
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  ForeignOptions options_{.encoding = GetParam().encoding, .checksum = GetParam().checksum};
  bool full_ = options_.encoding == "full";

  void SetUp() override {
    const auto kind = parse_checksum_kind(options_.checksum);
    if (kind && !check_available(*kind).ok())
      GTEST_SKIP() << "this build has no " << options_.checksum;
  }
};

TEST_P(SlimeRoundTrip, EveryDtypeAndDensity) {
  std::vector<TestTensor> held = one_of_each_dtype();
  uint64_t version = 1;
  for (const double density : {0.0, 0.001, 0.012, 0.3, 1.0}) {
    const std::vector<TestTensor> next = changed(held, density);
    Status status = write_foreign(dialect_, store_, version, held, next, options_, full_);
    ASSERT_TRUE(status.ok()) << status.to_string();
    status = read_version(dialect_, *store_, version, &held);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(held, next);
    ++version;
  }
  EXPECT_EQ(*dialect_.versions(*store_), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
}

TEST_P(SlimeRoundTrip, SplitsPartsBySize) {
  const std::vector<TestTensor> before = one_of_each_dtype(), after = changed(before, 0.05);
  options_.buffer_bytes = 300'000;
  ASSERT_TRUE(write_foreign(dialect_, store_, 3, before, after, options_, full_).ok());
  const auto opened = must(dialect_.open(*store_, 3));
  EXPECT_EQ(opened->info().num_files, 4U);  // the index, and 3 parts
  EXPECT_TRUE(store_->stat("weight_v000003/model-00002-of-00003.safetensors").ok());
  std::vector<TestTensor> held = before;
  ASSERT_TRUE(read_version(dialect_, *store_, 3, &held).ok());
  EXPECT_EQ(held, after);
}

TEST_P(SlimeRoundTrip, BytesDoNotDependOnThreads) {
  const std::vector<TestTensor> before = one_of_each_dtype(), after = changed(before, 0.02);
  ThreadPool pool(3);
  const auto other = std::make_shared<MemoryStore>();
  ASSERT_TRUE(write_foreign(dialect_, store_, 1, before, after, options_, full_).ok());
  ASSERT_TRUE(write_foreign(dialect_, other, 1, before, after, options_, full_, &pool).ok());
  const std::string part = "weight_v000001/model-00000-of-00001.safetensors";
  EXPECT_EQ(*store_->get(part, 1 << 30), *other->get(part, 1 << 30));
}

TEST_P(SlimeRoundTrip, NoChangesGiveAnIndexWithoutParts) {
  ASSERT_TRUE(write_foreign(dialect_, store_, 2, {}, {}, options_, full_).ok());
  const auto opened = must(dialect_.open(*store_, 2));
  EXPECT_TRUE(opened->info().tensors.empty());
  EXPECT_EQ(opened->info().num_files, 1U);
}

INSTANTIATE_TEST_SUITE_P(Forms, SlimeRoundTrip,
                         ::testing::Values(SlimeForm{"xor", ""}, SlimeForm{"xor", "adler32"},
                                           SlimeForm{"xor", "blake3"}, SlimeForm{"overwrite", ""},
                                           SlimeForm{"overwrite", "adler32"},
                                           SlimeForm{"full", ""}),
                         [](const auto& info) {
                           return std::string(info.param.encoding) + "_" + info.param.checksum;
                         });

TEST(SlimeFull, IsAnOrdinaryCheckpoint) {
  const Dialect& dialect = *find_dialect("slime");
  TempFolder folder;
  const std::shared_ptr<Store> store = *open_store(folder.path().string(), {});
  const auto tensors = one_of_each_dtype();
  ASSERT_TRUE(write_foreign(dialect, store, 4, {}, tensors, {}, true).ok());
  const auto index =
      parse_json(read_file(folder.path() / "weight_v000004/model.safetensors.index.json"));
  EXPECT_FALSE(index.at("metadata").contains("delta_encoding"));
  EXPECT_EQ(index.at("weight_map").size(), tensors.size());
  const auto opened = must(dialect.open(*store, 4));
  EXPECT_TRUE(opened->info().full);
  EXPECT_FALSE(opened->info().base.has_value());
  EXPECT_EQ(opened->info().encoding, "full");
  for (const ForeignTensor& tensor : opened->info().tensors) {
    const auto it = std::ranges::find(tensors, tensor.name, &TestTensor::name);
    EXPECT_EQ(tensor.dtype, it->dtype);
    EXPECT_EQ(tensor.shape, it->shape);
  }
}

// ---- Files written by slime's own code: read exactly, and written again identically.

constexpr const char* kPart = "weight_v000001/model-00000-of-00001.safetensors";
constexpr const char* kIndex = "weight_v000001/model.safetensors.index.json";

fs::path slime_data() { return fs::path(DELTAWIRE_TESTS_DIR) / "dialect/data/slime"; }

std::vector<TestTensor> slime_base() {
  const std::string file = read_file(slime_data() / "base.safetensors");
  const auto view = parse_safetensors(as_bytes(file));
  std::vector<TestTensor> tensors;
  for (const TensorView& tensor : view->tensors) {
    tensors.push_back(
        {tensor.name, tensor.dtype, tensor.shape, {tensor.bytes.begin(), tensor.bytes.end()}});
  }
  return tensors;
}

std::string frame_content(Bytes frame) {
  ZstdStream zstd;
  EXPECT_TRUE(zstd.begin(frame, uint64_t{1} << 20).ok());
  std::string content;
  while (true) {
    const Bytes piece = must(zstd.next());
    if (piece.empty()) return content;
    content.append(piece.begin(), piece.end());
  }
}

struct SlimeFixture {
  const char* folder;
  const char* encoding;
};

class SlimeFixtures : public ::testing::TestWithParam<SlimeFixture> {
 protected:
  fs::path folder() const { return slime_data() / GetParam().folder; }
  std::shared_ptr<Store> store() const { return *open_store(folder().string(), {}); }
};

TEST_P(SlimeFixtures, AreRecognised) {
  const auto dialect = must(recognise_dialect(*store()));
  ASSERT_NE(dialect, nullptr);
  EXPECT_EQ(dialect->name(), "slime");
  EXPECT_EQ(*dialect->versions(*store()), std::vector<uint64_t>{1});
}

TEST_P(SlimeFixtures, HaveTheExpectedInfo) {
  const auto version = must(find_dialect("slime")->open(*store(), 1));
  const ForeignInfo& info = version->info();
  EXPECT_EQ(info.version, 1U);
  EXPECT_EQ(info.base, 0U);
  EXPECT_FALSE(info.full);
  EXPECT_EQ(info.encoding, GetParam().encoding);
  EXPECT_EQ(info.checksum, "xxh3-128");
  EXPECT_EQ(info.num_files, 2U);
  EXPECT_EQ(info.file_bytes, fs::file_size(folder() / kPart) + fs::file_size(folder() / kIndex));
  EXPECT_EQ(info.tensors.size(), 7U);
  EXPECT_TRUE(std::ranges::is_sorted(info.tensors, {}, &ForeignTensor::name));
}

TEST_P(SlimeFixtures, GiveTheOriginalTensors) {
  std::vector<TestTensor> held = slime_base();
  must(read_version(*find_dialect("slime"), *store(), 1, &held));
  const auto expected = parse_json(read_file(slime_data() / "expected_v000001.json"));
  ASSERT_EQ(expected.size(), held.size());
  for (const TestTensor& tensor : held) {
    EXPECT_EQ(digest_of(DigestKind::kSha256, tensor.bytes).hex(), expected.at(tensor.name))
        << tensor.name;
  }
}

// slime writes the part's metadata in any order, and zstd versions give different frames. The rest
// is identical to the byte.
TEST_P(SlimeFixtures, AreWrittenIdentically) {
  const auto index = nlohmann::ordered_json::parse(read_file(folder() / kIndex));
  std::vector<TestTensor> before, after;
  const auto base = slime_base();
  for (const auto& [name, file] : index.at("weight_map").items()) {
    before.push_back(*std::ranges::find(base, name, &TestTensor::name));
  }
  after = before;
  ASSERT_TRUE(read_version(*find_dialect("slime"), *store(), 1, &after).ok());
  const auto ours = std::make_shared<MemoryStore>();
  must(write_foreign(*find_dialect("slime"), ours, 1, before, after,
                     {.encoding = GetParam().encoding, .checksum = ""}));
  EXPECT_EQ(*ours->get(kIndex, 1 << 20), read_file(folder() / kIndex));

  const std::string their_part = read_file(folder() / kPart), our_part = *ours->get(kPart, 1 << 20);
  auto theirs = *parse_safetensors(as_bytes(their_part));
  auto ours_view = *parse_safetensors(as_bytes(our_part));
  std::ranges::sort(theirs.metadata);
  EXPECT_EQ(ours_view.metadata, theirs.metadata);
  ASSERT_EQ(ours_view.tensors.size(), theirs.tensors.size());
  for (size_t i = 0; i < theirs.tensors.size(); ++i) {
    EXPECT_EQ(ours_view.tensors[i].name, theirs.tensors[i].name);
    EXPECT_EQ(frame_content(ours_view.tensors[i].bytes), frame_content(theirs.tensors[i].bytes))
        << theirs.tensors[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Gen3, SlimeFixtures,
                         ::testing::Values(SlimeFixture{"gen3_xor_xxh3-128", "xor"},
                                           SlimeFixture{"gen3_overwrite_xxh3-128", "overwrite"}),
                         [](const auto& info) { return std::string(info.param.encoding); });

// ---- Changes that slime's format cannot express are refused before writing; an incomplete version
// does not exist.

class SlimeWriterTest : public ::testing::Test {
 protected:
  Status create(const ForeignDraft& draft, const ForeignOptions& options = {}) {
    return dialect_.create(store_, draft, options).status();
  }
  bool is_empty() { return store_->list("", "", 10)->empty(); }

  const Dialect& dialect_ = *find_dialect("slime");
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  std::vector<TestTensor> before_ = {make_tensor("a", DType::kBF16, {300}, 1),
                                     make_tensor("b", DType::kF32, {20}, 2)};
  std::vector<TestTensor> after_ = changed(before_, 0.2);
  ForeignDraft draft_{
      .version = 2, .base = 1, .full = false, .tensors = {}, .removed = {}, .added = {}};
};

TEST_F(SlimeWriterTest, RefusesRemovedTensors) {
  draft_.removed = {"head"};
  EXPECT_FAILS(create(draft_), kUnsupported, "\"head\"", "removed", "full");
  EXPECT_TRUE(is_empty());
  draft_.full = true;
  EXPECT_TRUE(dialect_.create(store_, draft_, {}).ok());
}

TEST_F(SlimeWriterTest, RefusesNewTensorsAndShapeChanges) {
  draft_.added = {"head"};
  EXPECT_FAILS(create(draft_), kUnsupported, "\"head\"", "dtype or shape", "full");
  EXPECT_TRUE(is_empty());
}

TEST_F(SlimeWriterTest, RefusesPositionsOver4GiB) {
  draft_.tensors = {{"experts", DType::kBF16, {1ULL << 31}}};
  EXPECT_FAILS(create(draft_, {.encoding = "overwrite", .checksum = ""}), kUnsupported,
               "\"experts\"", "4294967296", "take `xor`");
  EXPECT_TRUE(is_empty());
  EXPECT_TRUE(dialect_.create(store_, draft_, {}).ok());
  draft_.tensors = {{"experts", DType::kU8, {(1ULL << 32) - 1}}};
  EXPECT_TRUE(dialect_.create(store_, draft_, {.encoding = "overwrite", .checksum = ""}).ok());
}

TEST_F(SlimeWriterTest, RefusesVersion0) {
  draft_.version = draft_.base = 0;
  draft_.full = true;
  EXPECT_FAILS(create(draft_), kUnsupported, "count from 1", "pull version 0");
}

TEST_F(SlimeWriterTest, RejectsBasesThatComeLater) {
  draft_.base = 2;
  EXPECT_FAILS(create(draft_), kInvalidArgument, "version 2", "base 2");
}

TEST_F(SlimeWriterTest, RejectsUnknownOptions) {
  EXPECT_FAILS(create(draft_, {.encoding = "tight", .checksum = ""}), kInvalidArgument,
               "xor or overwrite", "tight");
  EXPECT_FAILS(create(draft_, {.encoding = "", .checksum = "sum128"}), kInvalidArgument,
               "xxh3-128, blake3 or adler32", "sum128");
}

TEST_F(SlimeWriterTest, RejectsInvalidTensorNames) {
  draft_.tensors = {{"__metadata__", DType::kU8, {1}}};
  EXPECT_FAILS(create(draft_), kUnsupported, "__metadata__", "rename");
  draft_.tensors = {{"\xff", DType::kU8, {1}}};
  EXPECT_FAILS(create(draft_), kUnsupported, "rename");
  draft_.tensors = {{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}};
  EXPECT_FAILS(create(draft_), kInvalidArgument, "\"a\"", "twice");
}

TEST_F(SlimeWriterTest, RefusesExistingVersions) {
  ASSERT_TRUE(write_foreign(dialect_, store_, 2, before_, after_).ok());
  EXPECT_FAILS(create(draft_), kConflict, "weight_v000002", "already");
  std::vector<TestTensor> held = before_;
  EXPECT_TRUE(read_version(dialect_, *store_, 2, &held).ok());
}

TEST_F(SlimeWriterTest, NeedsAllTensorsInOrder) {
  for (const TestTensor& tensor : after_) draft_.tensors.push_back(spec_of(tensor));
  const auto writer = must(dialect_.create(store_, draft_, {}));
  EXPECT_FAILS(writer->add(draft_.tensors[1], before_[1].bytes, after_[1].bytes, nullptr),
               kInvalidArgument, "\"b\" is not the next", "\"a\"");
  EXPECT_FAILS(writer->add(draft_.tensors[0], {}, after_[0].bytes, nullptr), kInvalidArgument,
               "\"a\"", "600 bytes", "0 old");
  EXPECT_FAILS(writer->finish(), kInvalidArgument, "\"a\"", "not added");
}

TEST_F(SlimeWriterTest, RemovesItsFilesWhenAbandoned) {
  for (const TestTensor& tensor : after_) draft_.tensors.push_back(spec_of(tensor));
  {
    const auto writer = dialect_.create(store_, draft_, {.buffer_bytes = 1});
    ASSERT_TRUE((*writer)->add(draft_.tensors[0], before_[0].bytes, after_[0].bytes, nullptr).ok());
    EXPECT_FALSE(is_empty());
    EXPECT_TRUE(dialect_.versions(*store_)->empty());
  }
  EXPECT_TRUE(is_empty());
}

// A killed writer leaves parts of another split and no index.
TEST_F(SlimeWriterTest, CleansUpAfterAKilledWriter) {
  ASSERT_TRUE(store_->put("weight_v000002/model-00000-of-00007.safetensors", MemoryBody("x")).ok());
  must(store_->put("weight_v000002/model-00001-of-00007.safetensors.tmp", MemoryBody("x")));
  EXPECT_TRUE(dialect_.versions(*store_)->empty());
  EXPECT_FALSE(*dialect_.recognises(*store_));
  EXPECT_FAILS(dialect_.open(*store_, 2), kNotFound, "weight_v000002",
               "model.safetensors.index.json", "killed");
  ASSERT_TRUE(write_foreign(dialect_, store_, 2, before_, after_).ok());
  EXPECT_EQ(store_->list("weight_v000002/", "", 10)->size(), 2U);
  std::vector<TestTensor> held = before_;
  ASSERT_TRUE(read_version(dialect_, *store_, 2, &held).ok());
  EXPECT_EQ(held, after_);
}

// Two exports of one chain to the same place: neither removes files of the other.
TEST_F(SlimeWriterTest, KeepsTheVersionOfAConcurrentWriter) {
  ForeignOptions small{.buffer_bytes = 1};
  for (const TestTensor& tensor : after_) draft_.tensors.push_back(spec_of(tensor));
  const auto add_all = [&](ForeignWriter& writer) {
    for (size_t i = 0; i < draft_.tensors.size(); ++i) {
      ASSERT_TRUE(writer.add(draft_.tensors[i], before_[i].bytes, after_[i].bytes, nullptr).ok());
    }
  };
  const auto expect_whole = [&] {
    std::vector<TestTensor> held = before_;
    must(read_version(dialect_, *store_, 2, &held));
    EXPECT_EQ(held, after_);
  };
  auto first = dialect_.create(store_, draft_, small).value();
  add_all(*first);
  auto second = dialect_.create(store_, draft_, small).value();
  ASSERT_TRUE(first->finish().ok());
  expect_whole();
  add_all(*second);
  second.reset();
  expect_whole();
}

}  // namespace
}  // namespace deltawire::testing
