// Merged deltas and anchors made from the chain alone lead to exactly the published versions.
// to, bit for bit.
#include "deltawire/maintain.h"

#include "chain/hop_records.h"
#include "chain/names.h"
#include "chain/plan.h"
#include "deltawire/delta.h"
#include "deltawire/replica.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

class CompactTest : public ::testing::Test {
 protected:
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  TempFolder folder;
  std::vector<Model> states;  // by version

  // Publishes versions up to `last`; `alter` may change the model beyond the usual step.
  void make_chain(uint64_t last, const std::string& codec,
                  const std::function<void(uint64_t, Model*)>& alter = {}) {
    PublishOptions options = testing::with_schema_change();
    options.codec = codec;
    options.limits.threads = 2;
    options.anchors = Anchors{.by_bytes = false};
    auto publisher = Publisher::open(store, options);
    Model model = Model::make();
    for (uint64_t version = 0; version <= last; ++version) {
      ASSERT_EQ(must(publisher->publish(model.views())).version, version);
      states.push_back(model);
      model.step();
      if (alter) alter(version + 1, &model);
    }
  }
  Result<CompactReport> compact(std::vector<uint64_t> spans, const std::string& codec = "auto") {
    CompactOptions options{.spans = std::move(spans),
                           .codec = codec,
                           .work = {.folder = folder.path() / "work", .threads = 2}};
    DW_ASSIGN_OR_RETURN(const Chain opened, Chain::open(store));
    return compact_chain(opened, options);
  }
  Chain chain() { return Chain::open(store, {}).value(); }
  // A replica at `from` reaches `to` in one hop and matches what was published.
  void expect_one_hop(uint64_t from, uint64_t to) {
    const Chain own = chain();
    const auto plan = must(plan_catch_up(own, Held{from, own.version(from)->digest}, to));
    ASSERT_EQ(plan.hops.size(), 1);
    EXPECT_EQ(plan.hops[0].kind, HopKind::kMerged);
    const auto local =
        folder.path() / ("replica-" + std::to_string(from) + "-" + std::to_string(to));
    fs::remove_all(local);
    auto replica =
        must(Replica::open(store, local, {.limits = {.threads = 1}, .heartbeat = false}));
    ASSERT_TRUE(replica.pull(from).ok());
    const auto report = must(replica.pull(to));
    EXPECT_EQ(report.num_hops, 1);
    testing::write_checkpoint(folder.path() / "expected.safetensors", states[to].tensors);
    const auto same =
        must(verify_checkpoints(folder.path() / "expected.safetensors", report.path, {}));
    EXPECT_TRUE(same.differences.empty());
  }
};

TEST_F(CompactTest, MergesSpansForReplicas) {
  make_chain(9, "auto");
  const auto report = must(compact({2, 4, 8}));
  std::vector<std::pair<uint64_t, uint64_t>> spans;
  for (const MergedDelta& merged : report.merged) {
    EXPECT_TRUE(merged.written) << merged.skipped;
    EXPECT_LT(merged.bytes, merged.separate_bytes);
    spans.emplace_back(merged.base, merged.version);
  }
  EXPECT_EQ(spans, (std::vector<std::pair<uint64_t, uint64_t>>{
                       {0, 2}, {2, 4}, {4, 6}, {6, 8}, {0, 4}, {4, 8}, {0, 8}}));
  expect_one_hop(0, 8);
  expect_one_hop(4, 8);
  expect_one_hop(2, 4);
  EXPECT_TRUE(holds(store, 9, states[9]));
  EXPECT_FALSE(fs::exists(folder.path() / "work") && !fs::is_empty(folder.path() / "work"));
  // Existing hops are not made again.
  const auto again = compact({2, 4, 8});
  EXPECT_TRUE(again->merged.empty());
  EXPECT_EQ(again->num_there, 7);
}

TEST_F(CompactTest, MergesEveryCodec) {
  for (const char* codec : {"gaps", "tight", "adaptive"}) {
    store = std::make_shared<HookedStore>();
    states.clear();
    make_chain(4, codec);
    const auto report = compact({4});
    ASSERT_TRUE(report.ok()) << codec << ": " << report.status().to_string();
    ASSERT_EQ(report->merged.size(), 1);
    EXPECT_TRUE(report->merged[0].written) << codec << ": " << report->merged[0].skipped;
    expect_one_hop(0, 4);
    fs::remove_all(folder.path() / "replica-0-4");
  }
}

// Tensors appear, disappear, reappear, change their dtype or shape, and change back.
void upheave(uint64_t version, Model* model) {
  auto& tensors = model->tensors;
  const auto named = [&](const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(),
                        [&](const auto& tensor) { return tensor.name == name; });
  };
  static const testing::TestTensor norm = Model::make().tensors[3];
  if (version == 1) tensors.push_back(make_tensor("late", DType::kBF16, {9, 5}, 1));
  if (version == 2) tensors.erase(named("layer.0.up"));
  if (version == 2) tensors.push_back(make_tensor("brief", DType::kBF16, {4}, 1));
  if (version == 3) tensors.erase(named("brief"));
  if (version == 3) tensors.push_back(make_tensor("layer.0.up", DType::kBF16, {10}, 7));
  if (version == 3) *named("norm") = make_tensor("norm", DType::kF32, {128}, 8);
  if (version == 4) *named("norm") = norm;
  if (version == 4) tensors.erase(named("scale"));
}

TEST_F(CompactTest, MergesAcrossAddedRemovedAndReshapedTensors) {
  for (const char* codec : {"auto", "gaps"}) {
    store = std::make_shared<HookedStore>();
    states.clear();
    make_chain(4, codec, upheave);
    const auto report = must(compact({4}));
    ASSERT_TRUE(report.merged[0].written) << report.merged[0].skipped;
    expect_one_hop(0, 4);
    fs::remove_all(folder.path() / "replica-0-4");
  }
}

TEST_F(CompactTest, RevertedChangesAreOmitted) {
  const Model first = Model::make();
  make_chain(4, "gaps", [&](uint64_t version, Model* model) {
    if (version == 4) model->tensors = first.tensors;
    if (version == 4) model->tensors[3].bytes[0] ^= 1;
  });
  const auto report = must(compact({4}));
  ASSERT_TRUE(report.merged[0].written);
  EXPECT_LT(report.merged[0].bytes, 1000);
  expect_one_hop(0, 4);
}

TEST_F(CompactTest, SkipsAMergedDeltaThatSavesNothing) {
  // Whole tensors instead of only the changed elements.
  make_chain(2, "tight");
  const size_t before = objects_of(*store, "").size();
  const auto report = must(compact({2}, "raw"));
  ASSERT_EQ(report.merged.size(), 1U);
  EXPECT_FALSE(report.merged[0].written);
  EXPECT_NE(report.merged[0].skipped, "");
  EXPECT_EQ(objects_of(*store, "").size(), before);
}

TEST_F(CompactTest, RejectsBadSpansAndChains) {
  EXPECT_FAILS(compact({4}), kNotFound, "holds no run");
  make_chain(1, "auto");
  EXPECT_FAILS(compact({1}), kInvalidArgument, "two versions or more");
  EXPECT_TRUE(compact({4})->merged.empty());
  EXPECT_FAILS(compact_chain(Chain::open(store).value(), {.upto = 7}), kNotFound, "version 7",
               "the head is 1");
}

TEST_F(CompactTest, AnyFailedPutLeavesTheChainUnchanged) {
  make_chain(4, "auto");
  const size_t before = objects_of(*store, "").size();
  for (int fail_at = 0;; ++fail_at) {
    ASSERT_LT(fail_at, 20);
    std::atomic<int> puts{0};
    store->before_put = [&](std::string_view) {
      return puts++ == fail_at ? io_error("no space") : Status();
    };
    const auto report = compact({4});
    store->before_put = nullptr;
    EXPECT_TRUE(holds(store, 4, states[4]));
    if (report.ok()) break;
    EXPECT_TRUE(objects_of(*store, kHopPrefix).empty());
    EXPECT_LE(objects_of(*store, "").size(), before + 1);
  }
  expect_one_hop(0, 4);
}

TEST_F(CompactTest, WritesAnAnchorForAnOlderVersion) {
  make_chain(3, "auto");
  WorkOptions work;
  work.folder = folder.path() / "work";
  const auto report = must(make_anchor(Chain::open(store).value(), 2, work));
  EXPECT_TRUE(report.written);
  EXPECT_EQ(report.version, 2);
  const auto plan = must(plan_catch_up(chain(), {}, 2));
  ASSERT_EQ(plan.hops.size(), 1);
  EXPECT_EQ(plan.hops[0].kind, HopKind::kAnchor);
  EXPECT_TRUE(holds(store, 2, states[2]));
  EXPECT_FALSE(make_anchor(Chain::open(store).value(), 2, work)->written);
  EXPECT_FALSE(make_anchor(Chain::open(store).value(), 0, work)->written) << "the seed is one";
  EXPECT_EQ(make_anchor(Chain::open(store).value(), {}, work)->version, 3);
  EXPECT_FAILS(make_anchor(Chain::open(store).value(), 9, work), kNotFound);
}

// ---- hop records without their parts

// Damage to the parts of a hop record.
enum class Damage : uint8_t { kGone, kCutOff, kFlipped };

Status damage_part(Store& store, const PartRef& part, Damage damage) {
  if (damage == Damage::kGone) return store.remove(part.name);
  DW_ASSIGN_OR_RETURN(std::string bytes, store.get(part.name, part.size_bytes));
  if (damage == Damage::kCutOff) bytes.resize(bytes.size() / 2);
  if (damage == Damage::kFlipped) bytes.back() = char(bytes.back() ^ 1);
  return store.put(part.name, MemoryBody(bytes));
}

TEST_F(CompactTest, RewritesAMergedDeltaWithoutItsParts) {
  for (const char* codec : {"auto", "gaps"}) {
    for (const Damage damage : {Damage::kGone, Damage::kCutOff}) {
      if ((codec[0] == 'a') == (damage == Damage::kGone)) continue;
      store = std::make_shared<HookedStore>();
      states.clear();
      make_chain(4, codec);
      ASSERT_TRUE(compact({2, 4}).ok());
      for (const HopName& name : list_hops(chain(), 0, 4, SIZE_MAX).value()) {
        ASSERT_TRUE(damage_part(*store, read_hop(chain(), name).value().parts[0], damage).ok());
      }
      const auto report = must(compact({2, 4}));
      EXPECT_EQ(report.num_there, 0U);
      ASSERT_EQ(report.merged.size(), 3U);
      for (const MergedDelta& merged : report.merged) EXPECT_TRUE(merged.written) << merged.skipped;
      expect_one_hop(0, 2);
      expect_one_hop(0, 4);
      EXPECT_EQ(compact({2, 4})->num_there, 3U);
    }
  }
}

TEST_F(CompactTest, RewritesADamagedAnchor) {
  WorkOptions options{.folder = folder.path() / "work", .threads = 2};
  for (const Damage damage : {Damage::kGone, Damage::kCutOff, Damage::kFlipped}) {
    store = std::make_shared<HookedStore>();
    states.clear();
    make_chain(3, "auto");
    ASSERT_TRUE(make_anchor(Chain::open(store).value(), 3, options)->written);
    EXPECT_FALSE(make_anchor(Chain::open(store).value(), 3, options)->written);
    const auto hops = list_hops(chain(), 3, 3, SIZE_MAX).value();
    ASSERT_EQ(hops.size(), 1U);
    ASSERT_TRUE(damage_part(*store, read_hop(chain(), hops[0]).value().parts[0], damage).ok());
    const auto report = must(make_anchor(Chain::open(store).value(), 3, options));
    EXPECT_TRUE(report.written) << int(damage);
    EXPECT_EQ(list_hops(chain(), 3, 3, SIZE_MAX)->size(), 1U);
    EXPECT_FALSE(make_anchor(Chain::open(store).value(), 3, options)->written);
    EXPECT_TRUE(holds(store, 3, states[3]));
  }
}

// The seed cannot be rebuilt from the chain: an error, and no object is removed.
TEST_F(CompactTest, FailsForAnUnreachableVersionWithoutLosses) {
  make_chain(2, "auto");
  const Manifest seed = chain().version(0).value().manifest;
  ASSERT_TRUE(damage_part(*store, seed.parts[0], Damage::kCutOff).ok());
  WorkOptions options{.folder = folder.path() / "work", .threads = 2};
  const std::vector<std::string> before = objects_of(*store, "");
  EXPECT_FALSE(make_anchor(Chain::open(store).value(), 0, options).ok());
  EXPECT_FALSE(make_anchor(Chain::open(store).value(), 2, options).ok());
  EXPECT_EQ(objects_of(*store, ""), before);
}

}  // namespace
}  // namespace deltawire::testing
