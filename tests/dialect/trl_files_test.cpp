// TRL's files: anchors and deltas of v1 and v3, read and written.
#include <sys/wait.h>
#include <unistd.h>

#include "dialect/trl/trl_format.h"
#include "foreign_model.h"

namespace deltawire::testing {
namespace {

const Dialect& trl_files() { return *find_dialect("trl"); }

ForeignModel trl_model() {
  ForeignModel model;
  model.add("a", DType::kBF16, {30, 20}, 1);
  model.add("b.idx", DType::kBF16, {100000}, 2);  // names that end as TRL's own
  model.add("c.val", DType::kF32, {40}, 3);
  model.add("d.f8", DType::kF8_E4M3, {12}, 4);
  model.add("e.scalar", DType::kBF16, {}, 5);
  model.add("f.empty", DType::kBF16, {0}, 6);
  return model;
}

ForeignModel trl_changed(ForeignModel model) {
  model.set<uint16_t>("a", 0, 0x8000);    // -0
  model.set<uint16_t>("a", 599, 0xffc7);  // NaN with a payload
  model.set<uint16_t>("b.idx", 65536, 0x7f81);
  model.set<uint16_t>("b.idx", 99999, 0x0001);
  model.set<uint32_t>("c.val", 39, 0x7f800001);
  model.set<uint8_t>("d.f8", 3, 0x7f);
  model.set<uint16_t>("e.scalar", 0, 0x4242);
  return model;
}

class TrlFiles : public ::testing::TestWithParam<std::string> {
 protected:
  TrlFiles() { options_.encoding = GetParam(); }
  std::string get(const std::string& name) { return *store_->get(name, 1 << 24); }
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  ForeignOptions options_;
};

TEST_P(TrlFiles, DeltasRoundTrip) {
  const ForeignModel before = trl_model(), after = trl_changed(before);
  must(write_version(trl_files(), store_, 2, before, after, options_));
  EXPECT_EQ(*recognise_dialect(*store_), &trl_files());
  EXPECT_EQ(*trl_files().versions(*store_), std::vector<uint64_t>{2});
  const auto version = must(trl_files().open(*store_, 2));
  const ForeignInfo& info = version->info();
  EXPECT_EQ(info.encoding, GetParam());
  EXPECT_FALSE(info.full);
  EXPECT_EQ(info.base, std::nullopt);
  EXPECT_EQ(info.checksum, "");
  EXPECT_EQ(info.tensors.size(), 5U);
  EXPECT_EQ(info.tensors[0].shape, std::nullopt);
  ForeignModel again = before;
  must(apply_to(*version, &again));
  EXPECT_EQ(again, after);
}

TEST_P(TrlFiles, AnchorsRoundTrip) {
  const ForeignModel before = trl_model(), after = trl_changed(before);
  must(write_version(trl_files(), store_, 10, before, after, options_, true));
  const auto version = must(trl_files().open(*store_, 10));
  EXPECT_TRUE(version->info().full);
  EXPECT_EQ(version->info().encoding, "full");
  ASSERT_EQ(version->info().tensors.size(), after.tensors.size());
  ForeignModel again = before;
  for (auto& [name, tensor] : again.tensors) std::ranges::fill(tensor.bytes, 0xee);
  EXPECT_TRUE(apply_to(*version, &again).ok());
  EXPECT_EQ(again, after);
}

TEST_P(TrlFiles, WritesAnchorsToFolders) {
  const TempFolder folder;
  const auto store = std::shared_ptr<Store>(*open_store(folder.path().string(), {}));
  const ForeignModel model = trl_model();
  ASSERT_TRUE(write_version(trl_files(), store, 1, model, model, options_, true).ok());
  EXPECT_TRUE(fs::is_regular_file(folder.path() / "anchors/step_000001.safetensors"));
  EXPECT_EQ(folder.num_files(), 1U);
  ForeignModel again = model;
  EXPECT_TRUE(read_version(trl_files(), *store, 1, &again).ok());
}

TEST_P(TrlFiles, NoChangesGiveAFileWithoutTensors) {
  const ForeignModel model = trl_model();
  ASSERT_TRUE(write_version(trl_files(), store_, 3, model, model, options_).ok());
  EXPECT_TRUE(must(trl_files().open(*store_, 3))->info().tensors.empty());
}

INSTANTIATE_TEST_SUITE_P(Encodings, TrlFiles, ::testing::Values("v1", "raw", "gap_delta"),
                         [](const auto& info) { return info.param; });

class TrlBytes : public ::testing::Test {
 protected:
  TrlBytes() {
    before_.add("m.w", DType::kBF16, {4, 5});
    before_.add("m.v", DType::kBF16, {80000});
    after_ = before_;
    after_.set<uint16_t>("m.w", 3, 0x4000);
    after_.set<uint16_t>("m.w", 9, 0x4001);
    after_.set<uint16_t>("m.v", 70000, 0x4002);
  }
  std::string written(const std::string& encoding) {
    const auto store = std::make_shared<MemoryStore>();
    ForeignDraft draft{
        .version = 4,
        .base = 3,
        .tensors = {spec_of(before_.tensors.at("m.w")), spec_of(before_.tensors.at("m.v"))},
        .model_elements = 6292480};
    const auto writer = trl_files().create(store, draft, {.encoding = encoding}).value();
    for (const TensorSpec& spec : draft.tensors) {
      EXPECT_TRUE(writer
                      ->add(spec, before_.tensors.at(spec.name).bytes,
                            after_.tensors.at(spec.name).bytes, nullptr)
                      .ok());
    }
    EXPECT_TRUE(writer->finish().ok());
    return *store->get("deltas/step_000004.safetensors", 1 << 20);
  }
  ForeignModel before_, after_;
};

TEST_F(TrlBytes, WritesV1) {
  const std::string header =
      R"({"__metadata__":{"format":"sparse_weight_patch","version":"1","sparse":"True",)"
      R"("model_version":"4","num_changed_params":"2","total_changed_elements":"3",)"
      R"("total_elements":"6292480","sparsity":"0.9999995232404394",)"
      R"("changed_params":"[\"m.w\", \"m.v\"]"},)"
      R"("m.v.indices":{"dtype":"I32","shape":[1],"data_offsets":[0,4]},)"
      R"("m.w.indices":{"dtype":"I32","shape":[2],"data_offsets":[4,12]},)"
      R"("m.v.values":{"dtype":"BF16","shape":[1],"data_offsets":[12,14]},)"
      R"("m.w.values":{"dtype":"BF16","shape":[2],"data_offsets":[14,18]}})";
  const std::string data(
      "\x70\x11\x01\x00\x03\x00\x00\x00\x09\x00\x00\x00"
      "\x02\x40\x00\x40\x01\x40",
      18);
  const std::string file = written("v1");
  EXPECT_EQ(file.substr(8, header.size()), header);
  EXPECT_EQ(file.substr(file.size() - 18), data);
}

TEST_F(TrlBytes, WritesGapDelta) {
  const std::string file = written("gap_delta");
  EXPECT_TRUE(contains(file, R"("sparsity":"0.9999995232404394","encoding":"gap_delta"},)"
                             R"("m.v.idx":{"dtype":"U32","shape":[1],"data_offsets":[0,4]},)"
                             R"("m.v.val":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]},)"
                             R"("m.w.idx":{"dtype":"U16","shape":[2],"data_offsets":[6,10]},)"
                             R"("m.w.val":{"dtype":"BF16","shape":[2],"data_offsets":[10,14]}})"));
  EXPECT_EQ(file.substr(file.size() - 8), std::string("\x03\x00\x05\x00\x00\x40\x01\x40", 8));
  EXPECT_FALSE(contains(file, "changed_params\":\"["));
}

TEST_F(TrlBytes, WritesRaw) {
  const std::string file = written("raw");
  EXPECT_TRUE(contains(file, R"("encoding":"raw"},"m.v.idx":{"dtype":"I32")"));
}

TEST(TrlNumbers, FormatsFloatsLikePython) {
  EXPECT_EQ(trl::python_float(0.0), "0.0");
  EXPECT_EQ(trl::python_float(1.0), "1.0");
  EXPECT_EQ(trl::python_float(0.0001), "0.0001");
  EXPECT_EQ(trl::python_float(1e-5), "1e-05");
  EXPECT_EQ(trl::python_float(1.5e-10), "1.5e-10");
  EXPECT_EQ(trl::python_float(1.0 - 239145.0 / 6292480.0), "0.9619951116253052");
}

class TrlVersions : public ::testing::Test {
 protected:
  TrlVersions() {
    before_.add("w", DType::kBF16, {8});
    after_ = before_;
    after_.set<uint16_t>("w", 3, 0x4000);
  }
  Status write(uint64_t version, bool full, const ForeignOptions& options = {}) {
    return write_version(trl_files(), store_, version, before_, after_, options, full);
  }
  bool wants_whole(uint64_t version, uint64_t every = 10) {
    return *trl_files().wants_whole(*store_, version, {.anchor_every = every});
  }
  bool opens_whole(uint64_t version) {
    return trl_files().open(*store_, version).value()->info().full;
  }
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  ForeignModel before_, after_;
};

TEST_F(TrlVersions, AnchorsAreTheFirstAndEveryTenth) {
  EXPECT_TRUE(wants_whole(1));
  EXPECT_TRUE(wants_whole(7));  // nothing is there to go on from
  ASSERT_TRUE(write(1, true).ok());
  EXPECT_TRUE(wants_whole(1));
  EXPECT_FALSE(wants_whole(2));
  EXPECT_TRUE(wants_whole(10));
  EXPECT_TRUE(wants_whole(20));
  EXPECT_FALSE(wants_whole(25));
  EXPECT_TRUE(wants_whole(25, 5));
  EXPECT_FALSE(wants_whole(20, 0));
}

TEST_F(TrlVersions, PrefersADeltaWhenItsBaseExists) {
  ASSERT_TRUE(write(10, true).ok());
  EXPECT_TRUE(opens_whole(10));
  const std::shared_ptr<MemoryStore> other = std::exchange(store_, std::make_shared<MemoryStore>());
  ASSERT_TRUE(write(10, false).ok());
  EXPECT_FALSE(opens_whole(10));
  const std::string name = "anchors/step_000010.safetensors";
  ASSERT_TRUE(store_->put(name, MemoryBody(*other->get(name, 1 << 20))).ok());
  EXPECT_TRUE(opens_whole(10));
  ASSERT_TRUE(write(9, false).ok());
  EXPECT_FALSE(opens_whole(10));
  EXPECT_EQ(*trl_files().versions(*store_), (std::vector<uint64_t>{9, 10}));
}

TEST_F(TrlVersions, RefusesExistingVersions) {
  ASSERT_TRUE(write(1, true).ok());
  EXPECT_FAILS(write(1, false), kConflict, "anchors/step_000001", "is there");
  ASSERT_TRUE(write(2, false).ok());
  EXPECT_FAILS(write(2, true), kConflict, "deltas/step_000002");
  EXPECT_FAILS(trl_files().open(*store_, 3), kNotFound, "no version 3");
}

TEST_F(TrlVersions, RefusesChangesADeltaCannotExpress) {
  after_.add("new", DType::kBF16, {2});
  EXPECT_FAILS(write(2, false), kUnsupported, "\"new\" is new",
               "instead: export an anchor (a whole version)");
  EXPECT_TRUE(write(2, true).ok());
  std::swap(before_, after_);
  EXPECT_FAILS(write(3, false), kUnsupported, "\"new\" was removed");
  ForeignDraft draft{.version = 3, .base = 2, .tensors = {{"t", DType::kBF16, {3, 1 << 30}}}};
  EXPECT_FAILS(trl_files().create(store_, draft, {}), kUnsupported, "positions are int32");
  draft.tensors = {{"t", DType::kF4, {4}}};
  EXPECT_FAILS(trl_files().create(store_, draft, {}), kUnsupported, "F4");
}

TEST_F(TrlVersions, RejectsUnknownOptions) {
  ForeignOptions options{.encoding = "nvcomp_cascaded"};
  EXPECT_FAILS(write(1, false, options), kInvalidArgument, "nvcomp_cascaded");
  options = {};
  options.checksum = "xor";
  EXPECT_FAILS(write(1, false, options), kInvalidArgument, "trl has none");
}

// An unfinished anchor leaves no file.
TEST_F(TrlVersions, RemovesUnfinishedAnchors) {
  const TempFolder folder;
  const auto store = std::shared_ptr<Store>(*open_store(folder.path().string(), {}));
  ForeignDraft draft{.version = 1, .full = true, .tensors = {spec_of(before_.tensors.at("w"))}};
  auto writer = trl_files().create(store, draft, {}).value();
  EXPECT_FAILS(writer->finish(), kInvalidArgument, "was not added");
  writer.reset();
  EXPECT_TRUE(trl_files().versions(*store)->empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() / "anchors"), {}), 0);
}

// A killed writer leaves a file as large as the model.
TEST_F(TrlVersions, RemovesAnchorsOfKilledWriters) {
  const TempFolder folder;
  const auto store = std::shared_ptr<Store>(*open_store(folder.path().string(), {}));
  ForeignDraft draft{.version = 1, .full = true};
  const auto& tensor = before_.tensors.at("w");
  draft.tensors = {spec_of(tensor)};
  const pid_t child = ::fork();
  if (child == 0) {
    const auto writer = trl_files().create(store, draft, {});
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const auto count = [&] {
    return std::distance(fs::directory_iterator(folder.path() / "anchors"), {});
  };
  EXPECT_EQ(count(), 1);
  const auto writer = trl_files().create(store, draft, {}).value();
  ASSERT_TRUE(writer->add(spec_of(tensor), {}, tensor.bytes, nullptr).ok());
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_EQ(count(), 1);
  EXPECT_EQ(trl_files().versions(*store).value(), std::vector<uint64_t>{1});
}

}  // namespace
}  // namespace deltawire::testing
