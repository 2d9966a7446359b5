// Files that slime's own code made, of three parameters of three dtypes. The checkpoint that they
// belong to is large; here they go onto another one, and nothing but their changes may show.

#include "sparse_model.h"

namespace deltawire::testing {
namespace {

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
  ForeignDraft draft;
  draft.version = 1;
  for (const char* tensor : {"w.bf16", "bias.f32", "h.f16"}) {
    draft.tensors.push_back(before.tensors.at(tensor).spec);
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
