// The feed of a replica: what leads from version to version in an engine's arrays, whatever part of
// each tensor they hold.
#include "live/feed.h"

#include <numeric>

#include "deltawire/replica.h"
#include "live/map.h"
#include "replica/feed.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

class FeedTest : public ::testing::Test {
 protected:
  FeedTest() : chain_(std::in_place, std::make_shared<MemoryStore>("feed")) {
    tensors_ = {make_tensor("a", DType::kBF16, {30, 40}, 1),
                make_tensor("b", DType::kF32, {7, 9}, 2), make_tensor("c", DType::kU8, {5}, 3)};
    chain_->publish_full(tensors_);
  }

  void pull(std::optional<uint64_t> version = {}) {
    ReplicaOptions options{.limits = {.threads = 2}, .feed = true, .heartbeat = false};
    auto replica = must(Replica::open(chain_->store(), local(), options));
    must(replica.pull(version));
  }
  void step(double density, uint64_t seed) {
    for (TestTensor& tensor : tensors_) change(&tensor, density, seed + tensor.bytes.size());
    chain_->publish_delta(tensors_);
    pull();
  }
  std::vector<uint64_t> versions() const {
    std::vector<uint64_t> found;
    for (const FeedStep& step : read_feed(local()).value()) found.push_back(step.to.version);
    return found;
  }
  Identity id(uint64_t version) const {
    const Chain chain = Chain::open(chain_->store()).value();
    const auto record = chain.version(version);
    return record.ok() ? record->identity() : Identity{chain.run(), version, ""};
  }
  fs::path local() const { return folder_.path() / "local"; }
  fs::path feed(uint64_t version) const { return LocalLayout{local()}.feed_version(version); }

  // Every tensor in an array of its own, as it is.
  LiveMap whole() const {
    LiveMap map;
    for (const TestTensor& tensor : tensors_) {
      uint64_t elements = 1;
      for (const uint64_t n : tensor.shape) elements *= n;
      const uint32_t array = uint32_t(map.array_elements.size());
      map.tensors[tensor.name] = {
          tensor.dtype, tensor.shape, {{{elements}, 0, {1}, array, 0, {1}}}};
      map.array_elements.push_back(elements);
      map.array_widths.push_back(unsigned(tensor.bytes.size() / elements));
    }
    return map;
  }
  MappedChanges changes(const LiveMap& map, uint64_t from, uint64_t to) const {
    const auto path = must(steps_between(read_feed(local()).value(), id(from), id(to)));
    return must(map_feed(path, map, 2));
  }
  static void write(const ArrayChanges& changes, unsigned width, std::vector<uint8_t>* array) {
    for (size_t i = 0; i < changes.offsets.size(); ++i) {
      std::memcpy(array->data() + size_t(changes.offsets[i]) * width,
                  changes.values.data() + i * width, width);
    }
  }

  TempFolder folder_;
  std::optional<TestChain> chain_;
  std::vector<TestTensor> tensors_;
};

TEST_F(FeedTest, LeadsFromVersionToVersion) {
  pull();
  const std::vector<TestTensor> before = tensors_;
  step(0.1, 1);
  step(0.9, 2);  // dense: raw
  EXPECT_EQ(versions(), (std::vector<uint64_t>{0, 1, 2}));
  const LiveMap map = whole();
  const MappedChanges found = changes(map, 0, 2);
  EXPECT_EQ(found.changed_tensors, (std::vector<std::string>{"a", "b", "c"}));
  for (size_t i = 0; i < tensors_.size(); ++i) {
    std::vector<uint8_t> array = before[i].bytes;
    write(found.arrays[i], map.array_widths[i], &array);
    EXPECT_EQ(array, tensors_[i].bytes) << tensors_[i].name;
    EXPECT_TRUE(std::is_sorted(found.arrays[i].offsets.begin(), found.arrays[i].offsets.end()));
  }
}

TEST_F(FeedTest, GivesAWorkerItsPartAlone) {
  pull();
  const TestTensor before = tensors_[0];
  step(0.2, 1);
  // Columns 10 to 20 of rows 5 to 25, turned, from element 7 of an array on.
  LiveMap map{.array_elements = {7 + 200}, .array_widths = {2}};
  map.tensors["a"] = {DType::kBF16, {30, 40}, {{{20, 10}, 5 * 40 + 10, {40, 1}, 0, 7, {1, 20}}}};
  const ArrayChanges found = changes(map, 0, 1).arrays[0];
  ASSERT_FALSE(found.offsets.empty());
  std::vector<uint8_t> array(2 * 207, 0), expected(2 * 207, 0);
  const auto fill = [&](const TestTensor& from, std::vector<uint8_t>* to) {
    for (size_t row = 0; row < 20; ++row) {
      for (size_t column = 0; column < 10; ++column) {
        std::memcpy(to->data() + 2 * (7 + row + column * 20),
                    from.bytes.data() + 2 * ((5 + row) * 40 + 10 + column), 2);
      }
    }
  };
  fill(before, &array);
  fill(tensors_[0], &expected);
  write(found, 2, &array);
  EXPECT_EQ(array, expected);
}

TEST_F(FeedTest, DigestsAreTheVersions) {
  pull();
  step(0.1, 1);
  const auto steps = read_feed(local()).value();
  Schema schema;
  for (const TestTensor& tensor : tensors_) {
    schema.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  }
  const auto digests = must(feed_digests(steps[1], schema));
  EXPECT_EQ(digests.at("a"), digest_of(DigestKind::kSum128, tensors_[0].bytes));
  schema.tensors[0].shape = {40, 30};
  EXPECT_EQ(feed_digests(steps[1], schema).status().code(), Code::kBaseMismatch);
}

TEST_F(FeedTest, VersionsThatCameWholeHaveNoWayFromBefore) {
  pull();
  step(0.1, 1);
  tensors_.push_back(make_tensor("new", DType::kBF16, {4}, 9));
  chain_->publish_full(tensors_);
  pull();
  const auto steps = read_feed(local()).value();
  EXPECT_FALSE(steps.back().from);
  EXPECT_FAILS(steps_between(steps, id(0), id(2)), kNotFound, to_string(id(2)) + " is not a delta");
  EXPECT_TRUE(steps_between(steps, id(0), id(1)).ok());
  EXPECT_TRUE(steps_between(steps, id(2), id(2))->empty());
  EXPECT_EQ(steps_between(steps, id(0), id(9)).status().code(), Code::kNotFound);
}

TEST_F(FeedTest, GoesBackToo) {
  pull();
  const std::vector<TestTensor> old = tensors_;
  step(0.1, 1);
  const std::vector<TestTensor> now = tensors_;
  pull(0);
  const auto steps = read_feed(local()).value();
  // Back is a whole version here; what matters is that the step to 0 is not taken for one from
  // before.
  EXPECT_TRUE(!steps[0].from || *steps[0].from == id(1));
}

TEST_F(FeedTest, DamagedPartsAreFound) {
  pull();
  step(0.2, 1);
  const LiveMap map = whole();
  const auto path = steps_between(read_feed(local()).value(), id(0), id(1)).value();
  const fs::path part = feed(1) / path[0].parts[0];
  const std::string good = read_file(part);
  for (const size_t at : {size_t{20}, good.size() / 2, good.size() - 1}) {
    std::string bad = good;
    bad[at] = char(bad[at] ^ 1);
    fs::remove(part);
    std::ofstream(part, std::ios::binary) << bad;
    EXPECT_EQ(map_feed(path, map, 1).status().code(), Code::kCorruption) << at;
  }
  for (const size_t size : {size_t{0}, size_t{7}, good.size() - 1}) {
    fs::remove(part);
    std::ofstream(part, std::ios::binary) << good.substr(0, size);
    EXPECT_EQ(map_feed(path, map, 1).status().code(), Code::kCorruption) << size;
  }
  fs::remove(part);
  EXPECT_EQ(map_feed(path, map, 1).status().code(), Code::kNotFound);
  fs::remove(feed(1) / "record.json");
  EXPECT_EQ(versions(), (std::vector<uint64_t>{0}));
}

TEST_F(FeedTest, OtherFormsAreRefused) {
  pull();
  step(0.2, 1);
  const auto path = steps_between(read_feed(local()).value(), id(0), id(1)).value();
  LiveMap map = whole();
  map.tensors["a"].shape = {40, 30};
  EXPECT_EQ(map_feed(path, map, 1).status().code(), Code::kBaseMismatch);
  map = whole();
  map.array_widths[0] = 4;
  EXPECT_EQ(map_feed(path, map, 1).status().code(), Code::kInvalidArgument);
  map = whole();
  map.array_elements[0] -= 1;
  EXPECT_EQ(map_feed(path, map, 1).status().code(), Code::kInvalidArgument);
}

// Another run at the same place, with the same numbers: nothing of it leads on from this one's
// weights.
TEST_F(FeedTest, DoesNotLeadFromOneRunToAnother) {
  pull();
  step(0.1, 1);
  const Identity old = id(0), old_head = id(1);
  fs::remove_all(local());
  chain_.emplace(std::make_shared<MemoryStore>("feed"));
  chain_->publish_full(tensors_);
  pull();
  step(0.1, 2);
  const auto steps = read_feed(local()).value();
  EXPECT_TRUE(steps_between(steps, id(0), id(1)).ok());
  EXPECT_EQ(steps_between(steps, old, id(1)).status().code(), Code::kNotFound);
  EXPECT_EQ(steps_between(steps, id(0), old_head).status().code(), Code::kNotFound);
  Identity reused = id(0);
  reused.manifest = old.manifest;
  EXPECT_EQ(steps_between(steps, reused, id(1)).status().code(), Code::kNotFound);
}

TEST_F(FeedTest, TheSlowestWorkerIsOneOfAnotherRun) {
  pull();
  step(0.1, 1);
  EXPECT_EQ(slowest_feed_worker(local(), id(1)), std::nullopt);
  auto behind = FeedWorker::join(local(), "behind", id(0));
  auto there = FeedWorker::join(local(), "there", id(1));
  ASSERT_TRUE(behind.ok() && there.ok());
  EXPECT_EQ(slowest_feed_worker(local(), id(1)), id(0));
  const Identity stranger{std::string(32, 'f'), 9, std::string(64, 'f')};
  const auto other = must(FeedWorker::join(local(), "other", stranger));
  EXPECT_EQ(slowest_feed_worker(local(), id(1)), stranger);
}

TEST_F(FeedTest, IsKeptForThoseWhoLive) {
  pull();
  const LocalLayout layout{local()};
  {
    auto slow = must(FeedWorker::join(local(), "slow", id(0)));
    for (uint64_t seed = 1; seed < 8; ++seed) step(0.01, seed);
    EXPECT_EQ(versions().size(), 8U);
    EXPECT_EQ(FeedWorker::join(local(), "slow", id(0)).status().code(), Code::kConflict);
    EXPECT_EQ(FeedWorker::join(local(), "../x", id(0)).status().code(), Code::kInvalidArgument);
    prune_feed(layout, id(7), {.keep_always = 2, .keep_at_most = 5});
    EXPECT_EQ(versions(), (std::vector<uint64_t>{3, 4, 5, 6, 7})) << "not for ever";
    ASSERT_TRUE(slow.took(id(6)).ok());
    prune_feed(layout, id(7), {.keep_always = 1});
    EXPECT_EQ(versions(), (std::vector<uint64_t>{6, 7}));
  }
  fs::create_directories(feed(99).string() + ".new");  // who died while it linked
  std::ofstream(layout.feed_workers() / "dead") << "0";
  prune_feed(layout, id(7), {.keep_always = 4, .max_bytes = 0});
  EXPECT_EQ(versions(), (std::vector<uint64_t>{7}));
  EXPECT_FALSE(fs::exists(feed(99).string() + ".new"));
  EXPECT_TRUE(fs::is_empty(layout.feed_workers()));
}

TEST_F(FeedTest, AReplicaWithoutOneHasNone) {
  EXPECT_EQ(read_feed(local()).status().code(), Code::kNotFound);
}

TEST(FeedWindow, FindsElementsLikeTheDefinition) {
  const std::vector<Window> windows = {{{30}, 5, {1}, 0, 2, {1}},
                                       {{4, 6}, 3, {10, 1}, 0, 0, {6, 1}},
                                       {{4, 6}, 3, {10, 1}, 0, 0, {1, 4}},
                                       {{3, 2, 5}, 0, {20, 10, 2}, 0, 1, {10, 5, 1}},
                                       {{}, 17, {}, 0, 9, {}},
                                       {{2, 1, 3}, 1, {40, 7, 3}, 0, 0, {3, 99, 1}},
                                       {{4, 5}, 0, {5, 1}, 0, 0, {5, 1}}};  // one dimension, really
  for (const Window& window : windows) {
    ASSERT_EQ(window_defect(window, 100, 100), "");
    std::map<uint64_t, uint64_t> expected;
    std::vector<uint64_t> at(window.extent.size(), 0);
    for (bool more = true; more;) {
      uint64_t from = window.first, to = window.array_first;
      for (size_t d = 0; d < at.size(); ++d) {
        from += at[d] * window.strides[d];
        to += at[d] * window.array_strides[d];
      }
      expected[from] = to;
      size_t d = at.size();
      while (d > 0 && ++at[d - 1] == window.extent[d - 1]) at[--d] = 0;
      more = d > 0;
    }
    const WindowPlan plan(window);
    EXPECT_EQ(plan.first(), expected.begin()->first);
    EXPECT_EQ(plan.end(), expected.rbegin()->first + 1);
    for (uint64_t position = plan.first(); position < plan.end(); ++position) {
      uint64_t offset = 0;
      const bool found = plan.find(position, &offset);
      ASSERT_EQ(found, expected.contains(position)) << position;
      if (found) {
        EXPECT_EQ(offset, expected[position]);
      }
    }
  }
}

}  // namespace
}  // namespace deltawire::testing
