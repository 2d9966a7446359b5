// A chain as programs see it, through public headers only.

#include "deltawire/chain.h"
#include "deltawire/keys.h"
#include "deltawire/maintain.h"
#include "deltawire/publisher.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr uint64_t kElements = 1000;
using Numbers = std::vector<uint64_t>;

class PublicChainTest : public ::testing::Test {
 protected:
  PublicChainTest() { std::ofstream(folder / "config.json") << "{}\n"; }

  // Publishes versions 0 ... num - 1; each changes one element of "w" and none of "still".
  Status publish(uint64_t num, const fs::path& sign_key = {}) {
    PublishOptions options{.anchors = Anchors{.by_bytes = false},
                           .keys = {.sign = sign_key},
                           .limits = {.threads = 1}};
    DW_ASSIGN_OR_RETURN(Publisher publisher, Publisher::open(store, options));
    std::vector<uint8_t> weights(kElements), still(kElements);
    const Publisher::Paths files{folder / "config.json"};
    for (uint64_t i = 0; i < num; ++i) {
      weights[i] = 1;
      std::vector<PublishTensor> tensors(2);
      tensors[0].view = {"w", DType::kU8, {kElements}, weights};
      tensors[1].view = {"still", DType::kU8, {kElements}, still};
      DW_RETURN_IF_ERROR(publisher.publish(tensors, files).status());
    }
    return {};
  }
  Chain chain(const Keys& keys = {}) const { return Chain::open(store, keys).value(); }
  WorkOptions work() const { return {.folder = folder / "work", .threads = 1}; }
  // Changes the last byte of an object and keeps its size.

  TempFolder temporary;
  const fs::path folder = temporary.path();
  std::shared_ptr<Store> store = open_store((temporary.path() / "store").string(), {}).value();
};

TEST_F(PublicChainTest, MissingRunIsNotFound) {
  EXPECT_EQ(Chain::open(store).status().code(), Code::kNotFound);
  EXPECT_EQ(Chain::open(store, {.trust = folder / "missing"}).status().code(), Code::kNotFound);
}

TEST_F(PublicChainTest, ReadsVersions) {
  ASSERT_TRUE(publish(4).ok());
  const Chain own = chain();
  EXPECT_EQ(own.head().value(), 3U);
  EXPECT_EQ(own.versions().value(), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(own.newest_after(1)->version, 3U);
  const VersionRecord seed = own.version(0).value(), next = own.version(1).value();
  EXPECT_EQ(seed.manifest.kind, VersionKind::kFull);
  EXPECT_EQ(next.manifest.kind, VersionKind::kDelta);
  EXPECT_EQ(next.manifest.parent, seed.digest);
  EXPECT_EQ(next.manifest.run, own.run());
  EXPECT_EQ(next.manifest.changed, 1U);
  EXPECT_EQ(next.manifest.elements, 2 * kElements);
  ASSERT_EQ(next.manifest.files.size(), 1U);
  EXPECT_EQ(next.manifest.files[0].name, "config.json");
  EXPECT_EQ(store->get(object_of(next.manifest.files[0]), 100).value(), "{}\n");
  const Schema schema = own.schema(next.manifest).value();
  ASSERT_EQ(schema.tensors.size(), 2U);
  EXPECT_EQ(schema.tensors[1].name, "w");
  const std::vector<ChangeCounts> changes = own.changes(1).value();
  ASSERT_EQ(changes.size(), 1U) << "what did not change is left out";
  EXPECT_EQ(changes[0].tensor, "w");
  EXPECT_EQ(changes[0].num_changed, 1U);
  EXPECT_EQ(changes[0].num_elements, kElements);
  EXPECT_TRUE(own.changes(0)->empty()) << "stored whole";
  for (const Status& status : {own.version(9).status(), own.changes(9).status()}) {
    EXPECT_EQ(status.code(), Code::kNotFound);
  }
}

TEST_F(PublicChainTest, PlansUseMergedDeltasAndAnchors) {
  ASSERT_TRUE(publish(10).ok());
  const Chain own = chain();
  EXPECT_EQ(own.plan(1)->hops.size(), 8U);
  const CompactReport compacted = compact_chain(own, {.spans = {4}, .work = work()}).value();
  ASSERT_EQ(compacted.merged.size(), 2U);
  EXPECT_TRUE(compacted.merged[0].written) << compacted.merged[0].skipped;
  const Plan plan = own.plan(4, 9).value();
  ASSERT_EQ(plan.hops.size(), 2U);
  EXPECT_EQ(plan.hops[0].kind, HopKind::kMerged);
  EXPECT_EQ(plan.hops[0].version, 8U);
  EXPECT_EQ(plan.hops[1].kind, HopKind::kVersion);
  EXPECT_TRUE(own.plan(9)->hops.empty()) << "nothing to do";
  EXPECT_EQ(own.plan(9, 99).status().code(), Code::kNotFound);

  EXPECT_TRUE(make_anchor(own, 6, work())->written);
  EXPECT_FALSE(make_anchor(own, 6, work())->written);
  const std::vector<AddedHop> hops = own.added_hops(0, 7).value();
  ASSERT_EQ(hops.size(), 2U);
  EXPECT_EQ(hops[0].base, 0U);
  EXPECT_EQ(hops[1].version, 6U);
  EXPECT_EQ(hops[1].base, std::nullopt);
  EXPECT_GT(hops[1].bytes, 2 * kElements);
}

TEST_F(PublicChainTest, PinsVersionsAndCollectsGarbage) {
  ASSERT_TRUE(publish(10).ok());
  const Chain own = chain();
  ASSERT_TRUE(make_anchor(own, 8, work())->written);
  EXPECT_TRUE(own.pin(2).ok());
  EXPECT_EQ(own.pin(99).code(), Code::kNotFound);
  EXPECT_EQ(own.unpin(3).code(), Code::kNotFound);
  EXPECT_EQ(own.pins().value(), (Numbers{2}));
  const GcOptions options{.keep = 2, .grace_seconds = 0};
  GcOptions dry = options;
  dry.dry_run = true;
  EXPECT_EQ(own.collect_garbage(dry)->num_versions, 5U);
  EXPECT_EQ(own.versions()->size(), 10U) << "only said what it would do";
  EXPECT_EQ(own.collect_garbage(options)->num_versions, 5U);
  EXPECT_EQ(own.versions().value(), (Numbers{0, 1, 2, 8, 9}));
  EXPECT_TRUE(own.unpin(2).ok());
  EXPECT_EQ(own.collect_garbage(options)->num_versions, 3U);
  EXPECT_EQ(own.versions().value(), (Numbers{8, 9}));
  EXPECT_TRUE(fsck_chain(own, {.quick = false, .work = work()})->sound());
  EXPECT_EQ(own.collect_garbage({.keep = 0}).status().code(), Code::kInvalidArgument);
}

TEST_F(PublicChainTest, QuickFsckReadsRecordsOnly) {
  ASSERT_TRUE(publish(3).ok());
  const Chain own = chain();
  const FsckReport sound = fsck_chain(own).value();
  EXPECT_TRUE(sound.clean()) << sound.problems.size() << sound.warnings.size();
  EXPECT_EQ(sound.num_versions, 3U);
  EXPECT_EQ(sound.num_decoded, 3U);
  damage(*store, own.version(1)->manifest.parts[0].name);
  EXPECT_TRUE(fsck_chain(own, {.quick = true, .work = {}})->sound());
  const FsckReport damaged = fsck_chain(own).value();
  EXPECT_FALSE(damaged.sound());
  EXPECT_EQ(damaged.num_decoded, 1U) << "what rests on the damaged part cannot be decoded";
}

TEST_F(PublicChainTest, KeysControlReadingAndWriting) {
  for (const char* name : {"mine", "other"}) ASSERT_TRUE(make_key_files(folder / name).ok());
  EXPECT_EQ(make_key_files(folder / "mine").status().code(), Code::kConflict);
  ASSERT_TRUE(publish(3, folder / "mine").ok());
  EXPECT_TRUE(chain({.trust = folder / "mine.pub"}).version(1).ok());
  EXPECT_EQ(chain({.trust = folder / "other.pub"}).version(1).status().code(), Code::kCorruption);
  EXPECT_EQ(
      Chain::open(store, {.sign = folder / "other", .trust = folder / "mine.pub"}).status().code(),
      Code::kInvalidArgument);
  EXPECT_EQ(make_anchor(chain(), 2, work()).status().code(), Code::kInvalidArgument)
      << "an anchor of a signed version is signed";
  const Keys mine{.sign = folder / "mine", .trust = folder / "mine.pub"};
  EXPECT_TRUE(make_anchor(chain(mine), 2, work())->written);
  const GcOptions keep_one{.keep = 1};
  EXPECT_EQ(chain().collect_garbage(keep_one).status().code(), Code::kInvalidArgument);
  EXPECT_TRUE(chain({.trust = folder / "mine.pub"}).collect_garbage(keep_one).ok());
}

}  // namespace
}  // namespace deltawire::testing
