// What our writer of slime's first generation makes, our reader reads; what it cannot say it
// refuses before anything is left behind.
#include "dialect/slime_gen1/gen1_params.h"
#include "foreign_model.h"

namespace deltawire::testing {
namespace {

const Dialect& gen1_dialect() { return *find_dialect("slime-gen1"); }

ForeignModel gen1_mixed() {
  ForeignModel model;
  model.add("a.bf16", DType::kBF16, {40, 30}, 1);
  model.add("b.f32", DType::kF32, {77}, 2);
  model.add("c.f16", DType::kF16, {9, 9}, 3);
  model.add("d.f8", DType::kF8_E4M3, {100}, 4);
  model.add("e.f8", DType::kF8_E5M2, {50}, 5);
  model.add("f.i64", DType::kI64, {20}, 6);
  model.add("g.bool", DType::kBool, {10}, 7);
  model.add("h.u8", DType::kU8, {33}, 8);
  model.add("i.f64", DType::kF64, {12}, 9);
  model.add("j.scalar", DType::kBF16, {}, 10);
  model.add("k.empty", DType::kBF16, {0, 4}, 11);
  model.add("l.big", DType::kBF16, {200000}, 12);
  return model;
}

ForeignModel gen1_changed(ForeignModel model) {
  model.set<uint16_t>("a.bf16", 0, 0x8000);     // -0
  model.set<uint16_t>("a.bf16", 1, 0x7f80);     // infinity
  model.set<uint16_t>("a.bf16", 1199, 0x8001);  // a subnormal
  model.set<uint32_t>("b.f32", 5, 0x80000000);
  model.set<uint32_t>("b.f32", 6, 0x00000001);
  model.set<uint32_t>("b.f32", 76, 0xff800000);
  model.set<uint16_t>("c.f16", 80, 0xfbff);
  model.set<uint8_t>("d.f8", 99, 0x80);
  model.set<uint8_t>("e.f8", 3, 0x7c);
  model.set<uint64_t>("f.i64", 7, 0x7fffffffffffffff);
  model.set<uint8_t>("g.bool", 2, 1);
  model.set<uint8_t>("h.u8", 32, 255);
  model.set<uint64_t>("i.f64", 11, 0x8000000000000000);
  model.set<uint16_t>("j.scalar", 0, 0x4242);
  model.set<uint16_t>("l.big", 1, 0x4141);
  model.set<uint16_t>("l.big", 199999, 0x4343);
  return model;
}

class SlimeGen1Writer : public ::testing::TestWithParam<std::string> {
 protected:
  SlimeGen1Writer() { options_.encoding = GetParam(); }
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  ForeignOptions options_;

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    EXPECT_TRUE(list_all(*store_, "", "", [&](const ObjectInfo& info) {
                  names.push_back(info.name);
                  return true;
                }).ok());
    return names;
  }
};

TEST_P(SlimeGen1Writer, AllDTypesComeBack) {
  const ForeignModel before = gen1_mixed(), after = gen1_changed(before);
  must(write_version(gen1_dialect(), store_, 7, before, after, options_));
  EXPECT_EQ(*gen1_dialect().versions(*store_), std::vector<uint64_t>{7});
  ForeignModel again = before;
  const auto version = must(gen1_dialect().open(*store_, 7));
  EXPECT_TRUE(version->info().sealed);
  EXPECT_EQ(version->info().encoding, GetParam());
  EXPECT_EQ(version->info().tensors.size(), 11U);  // all but the empty one
  must(apply_to(*version, &again));
  EXPECT_EQ(again, after);
}

// 8-bit floats and integers are never stored as something else.
TEST_P(SlimeGen1Writer, DTypesThatDoNotMixGetFilesOfTheirOwn) {
  const ForeignModel before = gen1_mixed(), after = gen1_changed(before);
  ASSERT_TRUE(write_version(gen1_dialect(), store_, 1, before, after, options_).ok());
  const std::vector<std::string> expected = {
      "weight_v000001/DONE",
      "weight_v000001/rank0000_flush000000.safetensors",  // bf16, f32, f16 as f32
      "weight_v000001/rank0000_flush000001.safetensors",  // E4M3
      "weight_v000001/rank0000_flush000002.safetensors",  // E5M2
      "weight_v000001/rank0000_flush000003.safetensors",  // i64
      "weight_v000001/rank0000_flush000004.safetensors",  // bool
      "weight_v000001/rank0000_flush000005.safetensors",  // u8
      "weight_v000001/rank0000_flush000006.safetensors",  // f64 and bf16 as f64
  };
  EXPECT_EQ(names(), expected);
}

TEST_P(SlimeGen1Writer, BuffersAreCutBySize) {
  const ForeignModel before = gen1_mixed(), after = gen1_changed(before);
  options_.buffer_bytes = 1;
  ASSERT_TRUE(write_version(gen1_dialect(), store_, 1, before, after, options_).ok());
  EXPECT_EQ(names().size(), 1 + 11U);  // DONE and one for each tensor
  ForeignModel again = before;
  EXPECT_TRUE(read_version(gen1_dialect(), *store_, 1, &again).ok());
  EXPECT_EQ(again, after);
}

TEST_P(SlimeGen1Writer, RanksWriteOneVersionTogether) {
  const ForeignModel before = gen1_mixed(), after = gen1_changed(before);
  options_.world = 3;
  std::vector<std::unique_ptr<ForeignWriter>> writers;
  for (const unsigned rank : {0U, 1U, 2U}) {
    ForeignDraft draft{.version = 1};
    unsigned i = 0;
    for (const auto& [name, tensor] : before.tensors) {
      if (i++ % 3 == rank) draft.tensors.push_back(spec_of(tensor));
    }
    options_.rank = rank;
    auto writer = must(gen1_dialect().create(store_, draft, options_));
    for (const TensorSpec& spec : draft.tensors) {
      must(writer->add(spec, before.tensors.at(spec.name).bytes, after.tensors.at(spec.name).bytes,
                       nullptr));
    }
    writers.push_back(std::move(writer));
  }
  ASSERT_TRUE(writers[2]->finish().ok());
  EXPECT_TRUE(gen1_dialect().versions(*store_)->empty());  // the others are still at it
  EXPECT_EQ(gen1_dialect().open(*store_, 1).status().code(), Code::kUnavailable);
  ASSERT_TRUE(writers[1]->finish().ok());
  ASSERT_TRUE(writers[0]->finish().ok());
  EXPECT_EQ(*gen1_dialect().versions(*store_), std::vector<uint64_t>{1});
  ForeignModel again = before;
  must(read_version(gen1_dialect(), *store_, 1, &again));
  EXPECT_EQ(again, after);
}

TEST_P(SlimeGen1Writer, NoChangeIsAnEmptyFolder) {
  const ForeignModel model = gen1_mixed();
  ASSERT_TRUE(write_version(gen1_dialect(), store_, 4, model, model, options_).ok());
  EXPECT_EQ(names(), std::vector<std::string>{"weight_v000004/DONE"});
  const auto version = must(gen1_dialect().open(*store_, 4));
  EXPECT_TRUE(version->info().tensors.empty());
  EXPECT_TRUE(version->info().sealed);
}

INSTANTIATE_TEST_SUITE_P(Encodings, SlimeGen1Writer,
                         ::testing::Values("indices", "deltas", "deltas_zstd"),
                         [](const auto& info) { return info.param; });

// A gap that needs more than 16 bits makes all gaps of its parameter wide, and no other's.
TEST(SlimeGen1WriterGaps, WidthIsThatOfTheParameter) {
  for (const uint64_t gap : {65535U, 65536U}) {
    ForeignModel before;
    before.add("narrow", DType::kBF16, {10});
    before.add("wide", DType::kBF16, {100000});
    ForeignModel after = before;
    after.set<uint16_t>("narrow", 3, 0x4141);
    after.set<uint16_t>("wide", gap, 0x4141);
    after.set<uint16_t>("wide", gap + 1, 0x4141);
    const auto store = std::make_shared<MemoryStore>();
    ASSERT_TRUE(
        write_version(gen1_dialect(), store, 1, before, after, {.encoding = "deltas"}).ok());
    const std::string file =
        *store->get("weight_v000001/rank0000_flush000000.safetensors", 1 << 20);
    const auto view = parse_safetensors(as_bytes(file));
    const auto params = must(gen1::parse_params(*find_metadata(view->metadata, "params")));
    EXPECT_EQ(params[0].pos_width, 2U);
    EXPECT_EQ(params[1].pos_width, gap == 65535 ? 2U : 4U);
    ForeignModel again = before;
    ASSERT_TRUE(read_version(gen1_dialect(), *store, 1, &again).ok());
    EXPECT_EQ(again, after);
  }
}

class SlimeGen1Refusals : public ::testing::Test {
 protected:
  SlimeGen1Refusals() {
    before_.add("w", DType::kBF16, {8});
    after_ = before_;
  }
  Status write(const ForeignOptions& options = {}, bool full = false) {
    return write_version(gen1_dialect(), store_, 1, before_, after_, options, full);
  }
  bool store_is_empty() { return store_->list("", "", 10)->empty(); }
  std::shared_ptr<MemoryStore> store_ = std::make_shared<MemoryStore>();
  ForeignModel before_, after_;
};

TEST_F(SlimeGen1Refusals, NaN) {
  after_.set<uint16_t>("w", 3, 0x4000);
  after_.set<uint16_t>("w", 5, 0xffc1);
  for (const char* encoding : {"indices", "deltas", "deltas_zstd"}) {
    EXPECT_FAILS(write({.encoding = encoding}), kUnsupported, "tensor \"w\"",
                 "element 5 became NaN", "way out: deltawire export slime");
    EXPECT_TRUE(store_is_empty());
  }
}

// Only new values count: what is NaN already need not be sent.
TEST_F(SlimeGen1Refusals, NotNaNThatWasThereBefore) {
  before_.set<uint16_t>("w", 5, 0xffc1);
  after_ = before_;
  after_.set<uint16_t>("w", 3, 0x4000);
  EXPECT_TRUE(write().ok());
}

TEST_F(SlimeGen1Refusals, TensorsThatComeAndGo) {
  after_.add("new", DType::kBF16, {2});
  EXPECT_FAILS(write(), kUnsupported, "\"new\" is new", "export slime");
  after_ = before_;
  before_.add("old", DType::kBF16, {2});
  EXPECT_FAILS(write(), kUnsupported, "\"old\" was removed", "export slime");
  before_ = after_;
  after_.tensors.at("w").dtype = DType::kF16;
  EXPECT_FAILS(write(), kUnsupported, "\"w\" is new, or of another dtype");
  EXPECT_TRUE(store_is_empty());
}

TEST_F(SlimeGen1Refusals, WholeVersions) {
  EXPECT_FAILS(write({}, true), kUnsupported, "version 1 whole", "export slime");
}

TEST_F(SlimeGen1Refusals, DTypesAndSizes) {
  ForeignDraft draft{.version = 1};
  const auto refuse = [&](DType dtype, Shape shape) {
    draft.tensors = {{"t", dtype, std::move(shape)}};
    return gen1_dialect().create(store_, draft, {}).status();
  };
  EXPECT_FAILS(refuse(DType::kF4, {8}), kUnsupported, "\"t\" of F4");
  EXPECT_FAILS(refuse(DType::kC64, {8}), kUnsupported, "no dtype for C64");
  EXPECT_FAILS(refuse(DType::kBF16, {3, 1 << 30}), kUnsupported,
               "3221225472 elements, positions are int32", "export slime");
  EXPECT_TRUE(refuse(DType::kBF16, {2, 1 << 30}).ok());
  draft.version = 3;
  draft.base = 1;
  EXPECT_FAILS(refuse(DType::kBF16, {1}), kUnsupported,
               "version 3 goes onto version 1, which is not the one before it");
}

TEST_F(SlimeGen1Refusals, Options) {
  ForeignOptions options{.encoding = "xor"};
  EXPECT_FAILS(write(options), kInvalidArgument, "\"xor\"", "deltas_zstd");
  options = {};
  options.checksum = "xxh3-128";
  EXPECT_FAILS(write(options), kInvalidArgument, "\"xxh3-128\"");
  options = {};
  options.buffer_bytes = 0;
  EXPECT_FAILS(write(options), kInvalidArgument, "buffer size");
}

TEST_F(SlimeGen1Refusals, AVersionThatIsThere) {
  after_.set<uint16_t>("w", 3, 0x4000);
  ASSERT_TRUE(write().ok());
  EXPECT_FAILS(write(), kConflict, "version 1 is there");
  // Of someone who makes no DONE.
  ASSERT_TRUE(store_->remove("weight_v000001/DONE").ok());
  EXPECT_EQ(write().code(), Code::kConflict);
}

// A killed process leaves its note; whoever writes the version again clears its files away.
TEST_F(SlimeGen1Refusals, NotWhatAKilledWriterLeft) {
  after_.set<uint16_t>("w", 3, 0x4000);
  const std::string folder = "weight_v000001/";
  for (const char* name :
       {"rank0000.tmp", "rank0000_flush000000.safetensors", "rank0000_flush000001.safetensors"}) {
    ASSERT_TRUE(store_->put(folder + name, MemoryBody("left")).ok());
  }
  EXPECT_TRUE(gen1_dialect().versions(*store_)->empty());
  must(write());
  EXPECT_EQ(store_->list("", "", 10)->size(), 2U);
  ForeignModel again = before_;
  EXPECT_TRUE(read_version(gen1_dialect(), *store_, 1, &again).ok());
  EXPECT_EQ(again, after_);
}

// Both export one chain to one place. Neither takes away what the other has written.
TEST_F(SlimeGen1Refusals, NothingOfATwinThatFinishesFirst) {
  const ForeignModel before = gen1_mixed(), after = gen1_changed(before);
  ForeignDraft draft{.version = 1};
  ForeignOptions options;
  options.buffer_bytes = 1;  // a file each
  for (const auto& [name, tensor] : before.tensors) draft.tensors.push_back(spec_of(tensor));
  const auto add_all = [&](ForeignWriter& writer) {
    for (const TensorSpec& spec : draft.tensors) {
      const Bytes old = before.tensors.at(spec.name).bytes, now = after.tensors.at(spec.name).bytes;
      ASSERT_TRUE(writer.add(spec, old, now, nullptr).ok());
    }
  };
  auto first = gen1_dialect().create(store_, draft, options).value();
  add_all(*first);
  auto second = gen1_dialect().create(store_, draft, options).value();
  ASSERT_TRUE(first->finish().ok());
  ForeignModel again = before;
  EXPECT_TRUE(read_version(gen1_dialect(), *store_, 1, &again).ok());
  EXPECT_EQ(again, after);
  add_all(*second);
  second.reset();
  again = before;
  EXPECT_TRUE(read_version(gen1_dialect(), *store_, 1, &again).ok());
  EXPECT_EQ(again, after);
}

TEST_F(SlimeGen1Refusals, OtherTensorsThanTheDraftHas) {
  ForeignDraft draft{.version = 1, .tensors = {spec_of(before_.tensors.at("w"))}};
  auto writer = gen1_dialect().create(store_, draft, {}).value();
  EXPECT_FAILS(writer->finish(), kInvalidArgument, "\"w\"", "did not come");
  const Bytes bytes = before_.tensors.at("w").bytes;
  EXPECT_FALSE(writer->add({"v", DType::kBF16, {8}}, bytes, bytes, nullptr).ok());
  EXPECT_FALSE(writer->add(draft.tensors[0], bytes.subspan(1), bytes, nullptr).ok());
  writer.reset();
  EXPECT_TRUE(store_is_empty());
}

}  // namespace
}  // namespace deltawire::testing
