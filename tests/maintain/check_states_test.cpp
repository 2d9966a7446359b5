// Versions with intact objects and consistent records whose contents are nevertheless wrong.

#include "chain/fsck.h"
#include "codec/codec.h"
#include "format/delta_part.h"
#include "format/layout.h"
#include "maintain/walk_parts.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

class CheckStatesTest : public ::testing::Test {
 protected:
  std::shared_ptr<Store> store = std::make_shared<MemoryStore>();
  TestChain chain{store};
  TempFolder folder;
  std::vector<TestTensor> tensors = {make_tensor("a", DType::kBF16, {64, 32}, 1),
                                     make_tensor("b", DType::kF32, {40}, 2)};

  void step() {
    for (TestTensor& tensor : tensors) change(&tensor, 0.1, ++seed_);
  }
  // Publishes a version whose part leads to another state than recorded.
  void publish_poisoned() {
    const std::vector<TestTensor> before = tensors;
    step();
    std::vector<EntryRecord> records;
    std::string payloads;
    for (size_t i = 0; i < tensors.size(); ++i) {
      TestTensor wrong = tensors[i];
      wrong.bytes[9] ^= 4;
      const Codec& codec = *find_codec(CodecId::kTight);
      const auto encoded =
          must(codec.encode(layout_of(wrong.dtype), before[i].bytes, wrong.bytes, nullptr));
      DeltaEntry entry;
      entry.tensor = wrong.name;
      entry.dtype = wrong.dtype;
      entry.shape = wrong.shape;
      entry.codec = codec.id();
      entry.num_changed = encoded.num_changed;
      entry.old_digest = digest_of(DigestKind::kSum128, before[i].bytes);
      entry.new_digest = digest_of(DigestKind::kSum128, tensors[i].bytes);
      records.push_back(
          {entry, encoded.payload.size(), digest_of(DigestKind::kXxh3_128, encoded.payload)});
      payloads.append(encoded.payload.begin(), encoded.payload.end());
    }
    DeltaInfo info{.base = chain.records[chain.head()].manifest.state};
    const auto header = must(serialise_part_header(info, records));
    chain.publish_parts(tensors, {folder.put("part", header + payloads)}, {});
  }
  std::vector<std::string> problems(const WorkOptions& options = {}) {
    const auto quick = check_chain(chain.chain, {});
    EXPECT_TRUE(quick.ok() && quick->problems.empty()) << quick->problems[0];
    const auto checked = must(check_states(chain.chain, options));
    num_versions_ = checked.num_versions;
    num_hops_ = checked.num_hops;
    return checked.problems;
  }
  uint64_t seed_ = 0, num_versions_ = 0, num_hops_ = 0;
};

TEST_F(CheckStatesTest, SoundChainWithHopsHasNoProblems) {
  chain.publish_full(tensors, 2);
  for (int i = 0; i < 4; ++i) {
    step();
    if (i == 2) tensors.push_back(make_tensor("c", DType::kU8, {17}, 9));
    chain.publish_delta(tensors);
  }
  tensors.erase(tensors.begin());
  step();
  chain.publish_delta(tensors);
  chain.add_anchor(3);
  chain.add_merged(1, 4);
  chain.add_merged(2, 5);
  EXPECT_TRUE(problems().empty());
  EXPECT_EQ(num_versions_, 6U);
  EXPECT_EQ(num_hops_, 3U);
  const TempFolder work;
  EXPECT_TRUE(problems({.folder = work.path()}).empty());
  EXPECT_EQ(work.num_files(), 0U);
}

TEST_F(CheckStatesTest, DetectsAPoisonedDelta) {
  chain.publish_full(tensors);
  step();
  chain.publish_delta(tensors);
  publish_poisoned();
  step();
  chain.publish_delta(tensors);
  step();
  chain.publish_full(tensors);
  step();
  chain.publish_delta(tensors);
  const auto found = problems();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(contains(found[0], "version 2"));
  EXPECT_TRUE(contains(found[0], "tensor \"a\""));
  EXPECT_TRUE(contains(found[1], "versions 2 to 3 could not be decoded"));
  EXPECT_EQ(num_versions_, 4U);
}

TEST_F(CheckStatesTest, DetectsAnAnchorOfOtherWeights) {
  chain.publish_full(tensors);
  step();
  chain.publish_delta(tensors);
  const std::vector<TestTensor> right = tensors;
  tensors[1].bytes[3] ^= 1;
  testing::write_checkpoint(chain.checkpoint(1) / "model.safetensors", tensors);
  chain.add_anchor(1);
  const auto found = problems();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(contains(found[0], "anchor of version 1"));
  EXPECT_TRUE(contains(found[0], "tensor \"b\""));
}

TEST_F(CheckStatesTest, DetectsAFullVersionOfOtherWeights) {
  std::vector<TestTensor> other = tensors;
  other[0].bytes[3] ^= 1;
  testing::write_checkpoint(folder.path() / "other.safetensors", other);
  chain.tamper = [&](Manifest* manifest) {
    for (PartRef& part : manifest->parts) {
      if (!part.name.ends_with(".safetensors")) continue;
      part = chain.put(folder.path() / "other.safetensors", part.name);
    }
  };
  chain.publish_full(tensors);
  const auto found = problems();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(contains(found[0], "version 0"));
  EXPECT_TRUE(contains(found[0], "tensor \"a\""));
}

TEST_F(CheckStatesTest, MergedDeltaBypassesAPoisonedDelta) {
  chain.publish_full(tensors);
  publish_poisoned();
  step();
  chain.publish_delta(tensors);
  chain.add_merged(0, 2);
  const auto found = problems();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(contains(found[0], "version 1"));
  EXPECT_TRUE(contains(found[1], "version 1 could not be decoded"));
  EXPECT_EQ(num_versions_, 2U);
}

}  // namespace
}  // namespace deltawire::testing
