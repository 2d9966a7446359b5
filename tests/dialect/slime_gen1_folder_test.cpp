// Which files make a version, and when it is complete.
#include "foreign_model.h"

namespace deltawire::testing {
namespace {

class SlimeGen1Folders : public ::testing::Test {
 protected:
  SlimeGen1Folders() {
    before_.add("a", DType::kBF16, {4});
    before_.add("b", DType::kBF16, {4});
    after_ = before_;
    after_.set<uint16_t>("a", 1, 0x4000);
    after_.set<uint16_t>("b", 2, 0x4100);
  }
  std::shared_ptr<Store> store() { return *open_store(folder_.path().string(), {}); }
  fs::path version(uint64_t number) const {
    return folder_.path() / ("weight_v00000" + std::to_string(number));
  }
  // Two files, as slime leaves them: without DONE.
  void put_version(uint64_t number) {
    ASSERT_TRUE(
        write_version(dialect_, store(), number, before_, after_, {.buffer_bytes = 1}).ok());
    fs::remove(version(number) / "DONE");
  }
  Status open_status(uint64_t number) { return dialect_.open(*store(), number).status(); }
  bool sealed(uint64_t number) { return (*dialect_.open(*store(), number))->info().sealed; }

  const Dialect& dialect_ = *find_dialect("slime-gen1");
  TempFolder folder_;
  ForeignModel before_, after_;
};

using Versions = std::vector<uint64_t>;

TEST_F(SlimeGen1Folders, AreListedInTheirOrder) {
  EXPECT_EQ(*dialect_.versions(*store()), Versions{});
  EXPECT_FALSE(*dialect_.recognises(*store()));
  put_version(2);
  put_version(1);
  fs::create_directory(folder_.path() / "weight_v12");       // not padded
  fs::create_directory(folder_.path() / "weight_v0000012");  // padded too far
  fs::create_directory(folder_.path() / "weight_v000000");   // they count from 1
  fs::create_directory(folder_.path() / "weight_v000003.old");
  EXPECT_EQ(*dialect_.versions(*store()), (Versions{1, 2}));
  EXPECT_TRUE(*dialect_.recognises(*store()));
  EXPECT_FAILS(open_status(3), kNotFound, "weight_v000003: no such version");
  EXPECT_EQ(open_status(0).code(), Code::kNotFound);
}

TEST_F(SlimeGen1Folders, EmptyOnesChangeNothing) {
  put_version(1);
  fs::create_directory(version(2));
  EXPECT_EQ(*dialect_.versions(*store()), (Versions{1, 2}));
  const auto opened = must(dialect_.open(*store(), 2));
  EXPECT_TRUE(opened->info().tensors.empty());
  EXPECT_FALSE(opened->info().sealed);  // files may still come
}

// An empty folder is a version of theirs; what a writer of ours takes back leaves none.
TEST_F(SlimeGen1Folders, EmptyOnesAreNotWrittenInto) {
  fs::create_directory(version(1));
  EXPECT_EQ(write_version(dialect_, store(), 1, before_, after_).code(), Code::kConflict);
  after_.set<uint16_t>("b", 0, 0x7fc0);
  EXPECT_EQ(write_version(dialect_, store(), 2, before_, after_, {.buffer_bytes = 1}).code(),
            Code::kUnsupported);
  EXPECT_FALSE(fs::exists(version(2)));
}

TEST_F(SlimeGen1Folders, AreSealedByDoneOrByTheNext) {
  put_version(1);
  EXPECT_FALSE(sealed(1));
  folder_.put("weight_v000001/DONE", "");
  EXPECT_TRUE(sealed(1));
  fs::remove(version(1) / "DONE");
  fs::create_directory(version(2));
  EXPECT_TRUE(sealed(1));
  EXPECT_FALSE(sealed(2));
}

TEST_F(SlimeGen1Folders, TemporaryFilesMeanThatSomeoneIsWriting) {
  put_version(1);
  folder_.put("weight_v000001/rank0001_flush000000.safetensors.tmp", "");
  EXPECT_EQ(*dialect_.versions(*store()), Versions{});
  EXPECT_FAILS(open_status(1), kUnavailable, "flush000000.safetensors.tmp", "being written");
  folder_.put("weight_v000001/DONE", "");  // left by an earlier attempt, then
  EXPECT_EQ(*dialect_.versions(*store()), Versions{1});
  EXPECT_TRUE(open_status(1).ok());
}

TEST_F(SlimeGen1Folders, FlushesOfARankHaveNoGaps) {
  put_version(1);
  fs::rename(version(1) / "rank0000_flush000001.safetensors",
             version(1) / "rank0000_flush000002.safetensors");
  EXPECT_EQ(*dialect_.versions(*store()), Versions{1});
  EXPECT_FAILS(open_status(1), kCorruption,
               "weight_v000001/rank0000_flush000001.safetensors is missing");
  fs::rename(version(1) / "rank0000_flush000002.safetensors",
             version(1) / "rank0003_flush000000.safetensors");  // ranks need not follow
  EXPECT_TRUE(open_status(1).ok());
  fs::rename(version(1) / "rank0003_flush000000.safetensors",
             version(1) / "rank0003_flush000001.safetensors");
  EXPECT_FAILS(open_status(1), kCorruption, "rank0003_flush000000.safetensors");
}

// The one loss that nothing shows: the last file of a rank. Digests of a chain begin after it.
TEST_F(SlimeGen1Folders, TheLastFlushMayBeMissingUnnoticed) {
  put_version(1);
  fs::remove(version(1) / "rank0000_flush000001.safetensors");
  EXPECT_TRUE(open_status(1).ok());
}

TEST_F(SlimeGen1Folders, OtherNamesAreRefused) {
  put_version(1);
  for (const char* name : {"model-00000-of-00001.safetensors", "rank0000_flush1.safetensors",
                           "rank00000_flush000000.safetensors", "rank0_flush000000.safetensors"}) {
    folder_.put(std::string("weight_v000001/") + name, "");
    EXPECT_FAILS(open_status(1), kCorruption, name, "not a name of slime's");
    fs::remove(version(1) / name);
  }
  folder_.put("weight_v000001/notes.txt", "");
  EXPECT_TRUE(open_status(1).ok());
}

TEST_F(SlimeGen1Folders, FilesOfAnotherVersionAreRefused) {
  put_version(1);
  fs::copy(version(1), version(2));
  EXPECT_FAILS(open_status(2), kCorruption, "rank0000_flush000000", "expected 2", "got 1");
}

TEST_F(SlimeGen1Folders, ATensorInTwoFilesIsRefused) {
  put_version(1);
  fs::copy(version(1) / "rank0000_flush000000.safetensors",
           version(1) / "rank0001_flush000000.safetensors");
  EXPECT_FAILS(open_status(1), kCorruption, "tensor \"a\" is in two files", "rank0000_flush000000",
               "rank0001_flush000000");
}

TEST_F(SlimeGen1Folders, EncodingsDoNotMix) {
  put_version(1);
  ForeignOptions options{.encoding = "deltas", .rank = 1, .world = 2};
  ForeignDraft draft{.version = 1};
  auto c = before_;
  c.add("c", DType::kBF16, {4});
  draft.tensors = {spec_of(c.tensors.at("c"))};
  auto d = c;
  d.set<uint16_t>("c", 0, 0x4000);
  const auto writer = dialect_.create(store(), draft, options).value();
  must(writer->add(draft.tensors[0], c.tensors.at("c").bytes, d.tensors.at("c").bytes, nullptr));
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_FAILS(open_status(1), kCorruption, "encoding");
}

TEST_F(SlimeGen1Folders, FilesThatChangeAreNoticed) {
  put_version(1);
  const auto opened = dialect_.open(*store(), 1).value();
  folder_.put("weight_v000001/rank0000_flush000000.safetensors", "other");
  EXPECT_EQ(opened->check_unchanged().code(), Code::kIo);
}

// ---- Files that slime's own code made, of three parameters of three dtypes. The checkpoint that
// they belong to is large; here they go onto another one, and nothing but their changes may show.

fs::path gen1_data(const std::string& encoding) {
  return fs::path(DELTAWIRE_TESTS_DIR) / "dialect/data/slime_gen1" / encoding;
}

ForeignModel gen1_fixture_base() {
  ForeignModel model;
  model.add("w.bf16", DType::kBF16, {300, 700});
  model.add("bias.f32", DType::kF32, {64});
  model.add("h.f16", DType::kF16, {40});
  model.add("untouched", DType::kBF16, {5});
  return model;
}

// As torch printed them.
ForeignModel gen1_fixture_after(ForeignModel model) {
  model.set<uint16_t>("w.bf16", 5, 0xbe94);
  model.set<uint16_t>("w.bf16", 6, 0x3fce);
  model.set<uint16_t>("w.bf16", 150000, 0xbec4);
  model.set<uint16_t>("w.bf16", 209999, 0x3ef5);
  const uint32_t bias[] = {0x3f66bd82, 0xbfb9c527, 0x3e939fa9, 0x3f650f34, 0x3fb693d6,
                           0x3f0f7792, 0xbffb9dd8, 0x3f1f72ad, 0xbe5e20fa, 0xbe2e4f36};
  for (size_t i = 0; i < 10; ++i) model.set<uint32_t>("bias.f32", 7 * i, bias[i]);
  model.set<uint16_t>("h.f16", 3, 0xb836);  // -0.52637
  return model;
}

class SlimeGen1Fixtures : public ::testing::TestWithParam<std::string> {};

TEST_P(SlimeGen1Fixtures, GiveTheValuesThatSlimeHad) {
  const auto store = *open_store(gen1_data(GetParam()).string(), {});
  const auto dialect = must(recognise_dialect(*store));
  ASSERT_EQ(dialect, find_dialect("slime-gen1"));
  EXPECT_EQ(*dialect->versions(*store), std::vector<uint64_t>{1});
  const auto version = must(dialect->open(*store, 1));
  const ForeignInfo& info = version->info();
  EXPECT_EQ(info.version, 1U);
  EXPECT_EQ(info.base, std::nullopt);
  EXPECT_FALSE(info.full);
  EXPECT_FALSE(info.sealed);  // no DONE, no later version
  EXPECT_EQ(info.encoding, GetParam());
  EXPECT_EQ(info.checksum, "xor");
  ASSERT_EQ(info.tensors.size(), 3U);
  EXPECT_EQ(info.tensors[0].name, "bias.f32");
  EXPECT_EQ(info.tensors[1].dtype, DType::kF16);
  EXPECT_EQ(info.tensors[2].shape, (Shape{300, 700}));
  ForeignModel model = gen1_fixture_base();
  must(apply_to(*version, &model));
  EXPECT_EQ(model, gen1_fixture_after(gen1_fixture_base()));
}

// The safetensors package puts metadata in any order; all else is as slime wrote it.
TEST_P(SlimeGen1Fixtures, AreWhatOurWriterMakes) {
  const std::string name = "weight_v000001/rank0000_flush000000.safetensors";
  const auto store = std::make_shared<MemoryStore>();
  const ForeignModel before = gen1_fixture_base(), after = gen1_fixture_after(before);
  ForeignDraft draft{.version = 1};
  for (const char* tensor : {"w.bf16", "bias.f32", "h.f16"}) {
    draft.tensors.push_back(spec_of(before.tensors.at(tensor)));
  }
  const auto writer =
      must(find_dialect("slime-gen1")->create(store, draft, {.encoding = GetParam()}));
  for (const TensorSpec& spec : draft.tensors) {
    must(writer->add(spec, before.tensors.at(spec.name).bytes, after.tensors.at(spec.name).bytes,
                     nullptr));
  }
  ASSERT_TRUE(writer->finish().ok());
  if (GetParam() == "deltas_zstd") {  // another zstd may give other bytes
    ForeignModel again = before;
    EXPECT_TRUE(read_version(*find_dialect("slime-gen1"), *store, 1, &again).ok());
    EXPECT_EQ(again, after);
    return;
  }
  const std::string ours = *store->get(name, 1 << 20);
  const std::string theirs = read_file(gen1_data(GetParam()) / name);
  ASSERT_EQ(ours.size(), theirs.size());
  auto our_view = *parse_safetensors(as_bytes(ours));
  auto their_view = *parse_safetensors(as_bytes(theirs));
  const uint64_t begin = our_view.data_offset;
  ASSERT_EQ(begin, their_view.data_offset);
  EXPECT_EQ(ours.substr(begin), theirs.substr(begin));
  const auto after_metadata = [](const std::string& file) {
    return file.substr(file.find("},\"__values__\""));
  };
  EXPECT_EQ(after_metadata(ours), after_metadata(theirs));
  std::ranges::sort(our_view.metadata);
  std::ranges::sort(their_view.metadata);
  EXPECT_EQ(our_view.metadata, their_view.metadata);
}

INSTANTIATE_TEST_SUITE_P(Encodings, SlimeGen1Fixtures,
                         ::testing::Values("indices", "deltas", "deltas_zstd"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace deltawire::testing
