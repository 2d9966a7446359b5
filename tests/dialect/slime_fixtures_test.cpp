// Files that slime's own code made: read exactly, and written again as it wrote them.

#include "base/json.h"
#include "deltawire/digest.h"
#include "deltawire/store.h"
#include "dialect/frames/zstd_frame.h"
#include "foreign_model.h"

namespace deltawire::testing {
namespace {

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
  std::string content(*zstd_content_size(frame), '\0');
  EXPECT_TRUE(ZstdDecompressor()
                  .decompress(frame, {reinterpret_cast<uint8_t*>(content.data()), content.size()})
                  .ok());
  return content;
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

TEST_P(SlimeFixtures, SayWhatTheyAre) {
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

TEST_P(SlimeFixtures, GiveTheTensorsThatSlimeHad) {
  std::vector<TestTensor> held = slime_base();
  must(apply_foreign(*find_dialect("slime"), *store(), 1, &held));
  const auto expected = parse_json(read_file(slime_data() / "expected_v000001.json"));
  ASSERT_EQ(expected.size(), held.size());
  for (const TestTensor& tensor : held) {
    EXPECT_EQ(digest_of(DigestKind::kSha256, tensor.bytes).hex(), expected.at(tensor.name))
        << tensor.name;
  }
}

// The part's metadata comes in any order in theirs, and frames may differ with zstd's version. All
// else is the same to the byte.
TEST_P(SlimeFixtures, AreWrittenAgainAsTheyWere) {
  const auto index = nlohmann::ordered_json::parse(read_file(folder() / kIndex));
  std::vector<TestTensor> before, after;
  const auto base = slime_base();
  for (const auto& [name, file] : index.at("weight_map").items()) {
    before.push_back(*std::ranges::find(base, name, &TestTensor::name));
  }
  after = before;
  ASSERT_TRUE(apply_foreign(*find_dialect("slime"), *store(), 1, &after).ok());
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

}  // namespace
}  // namespace deltawire::testing
