// Which files make a version, and when it is complete.

#include "sparse_model.h"

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
  EXPECT_FAILS(open_status(3), Code::kNotFound, "weight_v000003: no such version");
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
  EXPECT_FAILS(open_status(1), Code::kUnavailable, "flush000000.safetensors.tmp", "being written");
  folder_.put("weight_v000001/DONE", "");  // left by an earlier attempt, then
  EXPECT_EQ(*dialect_.versions(*store()), Versions{1});
  EXPECT_TRUE(open_status(1).ok());
}

TEST_F(SlimeGen1Folders, FlushesOfARankHaveNoGaps) {
  put_version(1);
  fs::rename(version(1) / "rank0000_flush000001.safetensors",
             version(1) / "rank0000_flush000002.safetensors");
  EXPECT_EQ(*dialect_.versions(*store()), Versions{1});
  EXPECT_FAILS(open_status(1), Code::kCorruption,
               "weight_v000001/rank0000_flush000001.safetensors is missing");
  fs::rename(version(1) / "rank0000_flush000002.safetensors",
             version(1) / "rank0003_flush000000.safetensors");  // ranks need not follow
  EXPECT_TRUE(open_status(1).ok());
  fs::rename(version(1) / "rank0003_flush000000.safetensors",
             version(1) / "rank0003_flush000001.safetensors");
  EXPECT_FAILS(open_status(1), Code::kCorruption, "rank0003_flush000000.safetensors");
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
    EXPECT_FAILS(open_status(1), Code::kCorruption, name, "not a name of slime's");
    fs::remove(version(1) / name);
  }
  folder_.put("weight_v000001/notes.txt", "");
  EXPECT_TRUE(open_status(1).ok());
}

TEST_F(SlimeGen1Folders, FilesOfAnotherVersionAreRefused) {
  put_version(1);
  fs::copy(version(1), version(2));
  EXPECT_FAILS(open_status(2), Code::kCorruption, "rank0000_flush000000", "expected 2", "got 1");
}

TEST_F(SlimeGen1Folders, ATensorInTwoFilesIsRefused) {
  put_version(1);
  fs::copy(version(1) / "rank0000_flush000000.safetensors",
           version(1) / "rank0001_flush000000.safetensors");
  EXPECT_FAILS(open_status(1), Code::kCorruption, "tensor \"a\" is in two files",
               "rank0000_flush000000", "rank0001_flush000000");
}

TEST_F(SlimeGen1Folders, EncodingsDoNotMix) {
  put_version(1);
  ForeignOptions options{.encoding = "deltas", .rank = 1, .world = 2};
  ForeignDraft draft;
  draft.version = 1;
  auto c = before_;
  c.add("c", DType::kBF16, {4});
  draft.tensors = {c.tensors.at("c").spec};
  auto d = c;
  d.set<uint16_t>("c", 0, 0x4000);
  const auto writer = dialect_.create(store(), draft, options).value();
  must(writer->add(draft.tensors[0], c.tensors.at("c").bytes, d.tensors.at("c").bytes, nullptr));
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_FAILS(open_status(1), Code::kCorruption, "encoding");
}

TEST_F(SlimeGen1Folders, FilesThatChangeAreNoticed) {
  put_version(1);
  const auto opened = dialect_.open(*store(), 1).value();
  folder_.put("weight_v000001/rank0000_flush000000.safetensors", "other");
  EXPECT_EQ(opened->check_unchanged().code(), Code::kIo);
}

}  // namespace
}  // namespace deltawire::testing
