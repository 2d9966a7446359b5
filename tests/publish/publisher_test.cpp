// The trainer's side: the contents of a chain after every publish and every failure.
#include "deltawire/publisher.h"

#include <signal.h>

#include "base/process.h"
#include "chain/names.h"
#include "chain/plan.h"
#include "store/directory_store.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

class PublisherTest : public ::testing::Test {
 protected:
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  Model model = Model::make();

  Publisher open(PublishOptions options = {}) {
    options.schema_change = true;
    options.limits.threads = 2;
    return must(Publisher::open(store, options));
  }
  PublishReport publish(Publisher* publisher) {
    auto report = must(publisher->publish(model.views()));
    for (const std::string& warning : report.warnings) {
      EXPECT_TRUE(warning.starts_with("most weights changed")) << warning;
    }
    return report;
  }
  // A publisher that has published version 0.
  Publisher seeded(const PublishOptions& options = {}) {
    Publisher publisher = open(options);
    publish(&publisher);
    return publisher;
  }
  PublishReport step(Publisher* publisher) {
    model.step();
    return publish(publisher);
  }
  Manifest manifest(uint64_t version) {
    return Chain::open(store, {})->version(version).value().manifest;
  }
};

TEST_F(PublisherTest, PublishesASeedThenDeltas) {
  Publisher publisher = open();
  const PublishReport seed = publish(&publisher);
  EXPECT_EQ(seed.version, 0);
  EXPECT_TRUE(seed.full);
  EXPECT_EQ(seed.reason, "seed");
  EXPECT_TRUE(holds(store, 0, model));
  for (uint64_t version = 1; version <= 5; ++version) {
    const PublishReport report = step(&publisher);
    EXPECT_EQ(report.version, version);
    EXPECT_TRUE(report.committed);
    EXPECT_FALSE(report.full);
    EXPECT_EQ(report.run, seed.run);
    EXPECT_LT(report.bytes, seed.bytes / 4);
    EXPECT_GT(report.num_changed, 0);
    EXPECT_TRUE(holds(store, version, model));
  }
  EXPECT_EQ(head_of(store), 5);
  EXPECT_EQ(manifest(5).anchor, 0);
  EXPECT_EQ(manifest(5).chain_bytes - manifest(4).chain_bytes, manifest(5).part_bytes());
}

TEST_F(PublisherTest, ReportsPhases) {
  Publisher publisher = seeded();
  const PublishReport report = step(&publisher);
  std::vector<std::string> names;
  for (const Phase& phase : report.phases) {
    names.push_back(phase.name);
    EXPECT_LE(phase.begin, phase.end);
    EXPECT_LE(phase.end, report.seconds);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"diff+encode", "upload", "commit", "advance"}));
}

TEST_F(PublisherTest, UnchangedModelIsNotPublished) {
  Publisher publisher = seeded();
  const size_t before = objects_of(*store, "").size();
  const PublishReport report = publish(&publisher);
  EXPECT_FALSE(report.committed);
  EXPECT_EQ(report.version, 0);
  EXPECT_EQ(head_of(store), 0);
  EXPECT_EQ(objects_of(*store, "").size(), before);
}

TEST_F(PublisherTest, TensorsMarkedUnchangedAreNotCompared) {
  Publisher publisher = seeded();
  Model published = model;
  model.step();
  published.tensors[0] = model.tensors[0];
  auto tensors = model.views();
  for (size_t i = 1; i < tensors.size(); ++i) tensors[i].unchanged = true;
  const auto report = must(publisher.publish(tensors));
  EXPECT_EQ(report.num_changed_tensors, 1);
  EXPECT_EQ(report.num_elements, manifest(1).elements);
  EXPECT_TRUE(holds(store, 1, published));
  // A tensor that the last version lacks cannot be unchanged.
  model.tensors.push_back(make_tensor("zz.new", DType::kF32, {4}, 8));
  tensors = model.views();
  tensors.back().unchanged = true;
  ASSERT_TRUE(publisher.publish(tensors).ok());
  EXPECT_TRUE(holds(store, 2, model));
}

TEST_F(PublisherTest, HandlesAddedRemovedAndReshapedTensors) {
  Publisher publisher = seeded();
  const std::string schema = manifest(0).schema.name;
  model.tensors.push_back(make_tensor("new", DType::kBF16, {10, 3}, 8));
  model.tensors.push_back(make_tensor("new.empty", DType::kBF16, {0, 3}, 8));
  model.tensors.erase(model.tensors.begin() + 1);
  for (TestTensor& tensor : model.tensors) {
    if (tensor.name == "norm") tensor = make_tensor("norm", DType::kF32, {65}, 9);
  }
  const PublishReport report = publish(&publisher);
  EXPECT_FALSE(report.full);
  EXPECT_TRUE(holds(store, 1, model));
  EXPECT_NE(manifest(1).schema.name, schema);
  step(&publisher);
  EXPECT_TRUE(holds(store, 2, model));
  EXPECT_EQ(manifest(2).schema.name, manifest(1).schema.name);
  // Only a removal.
  model.tensors.pop_back();
  EXPECT_TRUE(publish(&publisher).committed);
  EXPECT_TRUE(holds(store, 3, model));
}

TEST_F(PublisherTest, RawDoesNotSayThatMostWeightsChanged) {
  Publisher publisher = seeded({.codec = "raw"});
  EXPECT_TRUE(step(&publisher).warnings.empty());
}

TEST_F(PublisherTest, DenseChangesArePublishedAsAFullVersion) {
  Publisher publisher = seeded();
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    TestTensor& tensor = model.tensors[i];
    std::mt19937_64 random(i + 77);
    for (uint8_t& byte : tensor.bytes) byte = uint8_t(random());
  }
  const PublishReport report = publish(&publisher);
  EXPECT_TRUE(report.full);
  EXPECT_TRUE(report.reason.starts_with("dense: ")) << report.reason;
  EXPECT_EQ(report.warnings.size(), 1);
  EXPECT_EQ(manifest(1).reason, report.reason);
  EXPECT_EQ(manifest(1).anchor, 1);
  EXPECT_TRUE(holds(store, 1, model));
  EXPECT_TRUE(objects_of(*store, kPartPrefix).empty()) << "the delta's parts are taken back";
  EXPECT_FALSE(step(&publisher).full);
  EXPECT_TRUE(holds(store, 2, model));
}

TEST_F(PublisherTest, OnlyAnchorsStoresEveryVersionWhole) {
  Publisher publisher = seeded({.anchors = OnlyAnchors{}});
  const PublishReport report = step(&publisher);
  EXPECT_TRUE(report.full);
  EXPECT_EQ(report.reason, "mode");
  EXPECT_TRUE(holds(store, 1, model));
  EXPECT_FALSE(publish(&publisher).committed);
  // Another publisher continues with deltas.
  Publisher other = open();
  EXPECT_FALSE(step(&other).full);
  EXPECT_TRUE(holds(store, 2, model));
}

TEST_F(PublisherTest, AnotherProcessContinuesFromTheChain) {
  {
    Publisher publisher = seeded();
    step(&publisher);
  }
  Publisher publisher = open();
  EXPECT_FALSE(publish(&publisher).committed);
  const PublishReport report = step(&publisher);
  EXPECT_EQ(report.version, 2);
  EXPECT_FALSE(report.full);
  EXPECT_TRUE(holds(store, 2, model));
}

TEST_F(PublisherTest, EncodesLargeTensorsInBoxes) {
  DW_LABEL(long);
  PublishOptions options;
  options.limits.memory_bytes = uint64_t{32} << 20;  // items of 2 MiB
  options.part_bytes = 20'000;
  Publisher publisher = open(options);
  model = Model::make(200);
  publish(&publisher);
  const PublishReport report = step(&publisher);
  EXPECT_GT(report.num_parts, 1);
  EXPECT_TRUE(holds(store, 1, model));
  EXPECT_TRUE(manifest(1).boxes.empty()) << "its digest is still that of the whole tensor";
  // A change in one box only, and then no change.
  model.tensors[0].bytes.back() ^= 1;
  EXPECT_EQ(publish(&publisher).num_changed, 1);
  EXPECT_TRUE(holds(store, 2, model));
  EXPECT_FALSE(publish(&publisher).committed);
}

TEST_F(PublisherTest, PublishesWithEveryCodec) {
  for (const char* codec : {"tight", "gaps", "adaptive", "raw"}) {
    store = std::make_shared<HookedStore>();
    Publisher publisher = seeded({.codec = codec});
    step(&publisher);
    EXPECT_TRUE(holds(store, 1, model)) << codec;
    EXPECT_EQ(manifest(1).codec, codec);
  }
}

// ---- anchors

TEST_F(PublisherTest, WritesAnAnchorEveryNVersions) {
  PublishOptions options{.anchors = Anchors{.every = 3, .by_bytes = false}};
  std::optional<Publisher> publisher = open(options);
  std::vector<bool> anchored;
  for (uint64_t version = 0; version <= 7; ++version) {
    if (version == 5) publisher = open(options);  // what counts is in the chain
    anchored.push_back(publish(&*publisher).anchored);
    model.step();
  }
  EXPECT_EQ(anchored, (std::vector<bool>{false, false, false, true, false, false, true, false}));
  EXPECT_EQ(manifest(3).anchor, 0);
  EXPECT_EQ(manifest(4).anchor, 3);
  EXPECT_EQ(manifest(7).anchor, 6);
  EXPECT_GT(manifest(7).anchor_bytes, 0);
  EXPECT_EQ(objects_of(*store, kHopPrefix).size(), 2);
}

TEST_F(PublisherTest, WritesAnAnchorWhenDeltasOutgrowTheLast) {
  Publisher publisher = open();
  uint64_t whole = publish(&publisher).bytes, since = 0, anchors = 0;
  for (int i = 0; i < 40; ++i) {
    model.step(0.1);
    const PublishReport report = publish(&publisher);
    since += report.bytes;
    EXPECT_EQ(report.anchored, since > whole);
    if (!report.anchored) continue;
    ++anchors;
    since = 0;
    // A late joiner starts there and needs no earlier versions.
    const auto chain = Chain::open(store, {});
    const auto plan = must(plan_catch_up(*chain, {}, report.version));
    EXPECT_EQ(plan.hops.size(), 1);
    EXPECT_TRUE(holds(store, report.version, model));
  }
  EXPECT_GT(anchors, 1);
}

TEST_F(PublisherTest, FailedAnchorIsAWarningAndIsRetried) {
  Publisher publisher = seeded({.anchors = Anchors{.every = 1}});
  model.step();
  store->before_put = [](std::string_view name) {
    return name.starts_with(kFullPrefix) ? io_error("disk full") : Status();
  };
  const auto report = must(publisher.publish(model.views()));
  EXPECT_FALSE(report.anchored);
  ASSERT_EQ(report.warnings.size(), 1);
  EXPECT_TRUE(contains(report.warnings[0], "disk full"));
  EXPECT_TRUE(holds(store, 1, model));
  store->before_put = nullptr;
  EXPECT_TRUE(step(&publisher).anchored);
}

// ---- failures

// Fails the n-th put of the second publish, for every n.
TEST_F(PublisherTest, AnyFailedPutLeavesTheChainUnchanged) {
  for (int fail_at = 0;; ++fail_at) {
    ASSERT_LT(fail_at, 100);
    store = std::make_shared<HookedStore>();
    model = Model::make();
    Publisher publisher = seeded({.part_bytes = 200});
    const std::vector<std::string> before = objects_of(*store, "");
    Model first = model;
    model.step();
    std::atomic<int> puts{0};
    store->before_put = [&](std::string_view name) {
      return puts++ == fail_at ? io_error("put of " + std::string(name)) : Status();
    };
    const auto report = publisher.publish(model.views());
    store->before_put = nullptr;
    if (report.ok()) break;  // past the last put that matters
    EXPECT_FAILS(report, kIo, "put of ");
    EXPECT_EQ(head_of(store), 0);
    EXPECT_TRUE(holds(store, 0, first));
    EXPECT_EQ(step(&publisher).version, 1);
    EXPECT_TRUE(holds(store, 1, model));
  }
}

TEST_F(PublisherTest, RecognisesACommitWithALostAnswer) {
  Publisher publisher = seeded();
  model.step();
  store->after_put = [](std::string_view name) {
    return name.starts_with(kManifestPrefix) ? unavailable("timed out") : Status();
  };
  const PublishReport report = publish(&publisher);
  EXPECT_EQ(report.version, 1);
  store->after_put = nullptr;
  EXPECT_EQ(step(&publisher).version, 2);
  EXPECT_TRUE(holds(store, 1 + 1, model));
}

TEST_F(PublisherTest, UnknownCommitIsCheckedByTheNextPublish) {
  for (const bool appears : {false, true}) {
    store = std::make_shared<HookedStore>();
    Publisher publisher = seeded();
    model.step();
    const Model second = model;
    const auto lose = [](std::string_view name) {
      return name.starts_with(kManifestPrefix) ? unavailable("no answer") : Status();
    };
    (appears ? store->after_put : store->before_put) = lose;
    // The put has no answer, nor has the check whether it worked.
    bool asked = false;
    store->before_get = [&](std::string_view name) {
      if (name != manifest_name(1) || !asked) {
        asked = asked || name == manifest_name(1);  // check_free asks before the work
        return Status();
      }
      return unavailable("no answer");
    };
    EXPECT_FAILS(publisher.publish(model.views()), kUnavailable, "may or may not");
    store->before_put = store->after_put = store->before_get = nullptr;
    EXPECT_EQ(head_of(store), appears ? 1 : 0);
    const PublishReport next = step(&publisher);
    EXPECT_EQ(next.version, appears ? 2 : 1);
    EXPECT_TRUE(holds(store, next.version, model));
    if (appears) {
      EXPECT_TRUE(holds(store, 1, second));
    }
  }
}

TEST_F(PublisherTest, WithoutConditionalPutNeedsSingleWriter) {
  store->can.put_if_absent = false;
  EXPECT_FAILS(Publisher::open(store), kUnsupported, "single_writer");
  Publisher publisher = seeded({.single_writer = true});
  step(&publisher);
  EXPECT_TRUE(holds(store, 1, model));
}

TEST_F(PublisherTest, RejectsBadTensorsByName) {
  Publisher publisher = open();
  const auto refused = [&](const std::vector<PublishTensor>& tensors, const char* phrase) {
    EXPECT_FAILS(publisher.publish(tensors), kInvalidArgument, phrase);
    EXPECT_EQ(head_of(store), std::nullopt);
  };
  refused({}, "no tensors");
  auto views = model.views();
  views[2].view.bytes = views[2].view.bytes.first(10);
  refused(views, "\"layer.1.up\": expected 12800 bytes, got 10");
  views = model.views();
  views.push_back(views[3]);
  refused(views, "\"norm\": all of it and all of it overlap");
  views = model.views();
  views[1].box = {{0, 0}, {32, 100}};
  views[1].view.bytes = views[1].view.bytes.first(6400);
  refused(views, "\"layer.0.up\": its boxes cover 3200 of 6400 elements");
  views[1].box = {{40, 0}, {32, 100}};
  refused(views, "leaves dimension 0");
  views = model.views();
  views[0].view.name = "__metadata__";
  refused(views, "not the name of a tensor");
}

TEST_F(PublisherTest, RejectsBadOptions) {
  const auto refused = [&](const std::function<void(PublishOptions*)>& spoil, const char* phrase) {
    PublishOptions options;
    spoil(&options);
    EXPECT_FAILS(Publisher::open(store, options), kInvalidArgument, phrase);
  };
  refused([](PublishOptions* o) { o->codec = "zip"; }, "\"zip\" is not known");
  refused([](PublishOptions* o) { o->part_bytes = 0; }, "a part must have a size");
  refused([](PublishOptions* o) { o->limits.memory_bytes = 1 << 20; }, "32 MiB");
  refused([](PublishOptions* o) { o->ranks.rank = 2, o->ranks.world = 2; }, "rank 2 of 2");
  refused([](PublishOptions* o) { o->ranks.world = 2; }, "ranks need an all_gather");
}

// Combinations that the types allow.
TEST_F(PublisherTest, RejectsContradictoryOptions) {
  const TempFolder folder;
  PublishOptions options{.snapshot = SnapshotInFolder{}};
  EXPECT_FAILS(Publisher::open(store, options), kInvalidArgument,
               "the snapshot's folder has no name");
  options.snapshot = SnapshotInFolder{folder.path()};
  options.ranks.world = 2;
  EXPECT_FAILS(Publisher::open(store, options), kInvalidArgument, "ranks",
               "in memory, not in a folder");
  options = {};
  options.snapshot = SnapshotInMemory{.pinned = true};
  options.anchors = OnlyAnchors{};
  EXPECT_FAILS(Publisher::open(store, options), kInvalidArgument, "every version is stored whole",
               "no snapshot");
  options.anchors = Anchors{.every = 5};
  EXPECT_TRUE(Publisher::open(store, options).ok());
}

TEST_F(PublisherTest, CancellationLeavesNothing) {
  PublishOptions options;
  bool stop = false;
  options.progress = [&](uint64_t, uint64_t) { return !stop; };
  Publisher publisher = seeded(options);
  const std::vector<std::string> before = objects_of(*store, "");
  model.step();
  stop = true;
  EXPECT_FAILS(publisher.publish(model.views()), kCancelled);
  EXPECT_EQ(objects_of(*store, ""), before);
  stop = false;
  EXPECT_EQ(publish(&publisher).version, 1);
  EXPECT_TRUE(holds(store, 1, model));
}

// ---- the hook

TEST_F(PublisherTest, HookRunsBetweenPartsAndCommit) {
  TempFolder folder;
  PublishOptions options{
      .hook_before_commit = {.command =
                                 "echo $DELTAWIRE_VERSION $DELTAWIRE_STORE $DELTAWIRE_RUN >> " +
                                 (folder.path() / "log").string()}};
  Publisher publisher = open(options);
  const std::string run = publish(&publisher).run;
  store->before_put = [&](std::string_view name) {
    // Parts are put before the hook, the manifest after it.
    const bool hooked = read_file(folder.path() / "log").find("\n1 ") != std::string::npos;
    EXPECT_FALSE(name.starts_with(kPartPrefix) && hooked);
    EXPECT_FALSE(name.starts_with(kManifestPrefix) && !hooked);
    return Status();
  };
  step(&publisher);
  EXPECT_EQ(read_file(folder.path() / "log"), "0 memory: " + run + "\n1 memory: " + run + "\n");
}

TEST_F(PublisherTest, FailedOrHangingHookAbortsThePublish) {
  seeded();
  const std::vector<std::string> before = objects_of(*store, "");
  model.step();
  PublishOptions options{.hook_before_commit = {.command = "exit 3"}};
  EXPECT_FAILS(open(options).publish(model.views()), kCancelled,
               "hook before the commit of version 1", "3");
  options.hook_before_commit.command = "sleep 60";
  options.hook_before_commit.timeout_seconds = 0.1;
  EXPECT_FAILS(open(options).publish(model.views()), kUnavailable,
               "hook before the commit of version 1");
  EXPECT_EQ(objects_of(*store, ""), before);
  Publisher publisher = open();
  EXPECT_EQ(publish(&publisher).version, 1);
}

TEST_F(PublisherTest, CancellationEndsTheHookWithoutACommit) {
  seeded();
  const std::vector<std::string> before = objects_of(*store, "");
  model.step();
  TempFolder folder;
  const auto started = folder.path() / "started";
  PublishOptions options;
  options.progress = [&](uint64_t, uint64_t) { return !fs::exists(started); };
  // A hook that keeps running, and one that ends at that moment.
  for (const std::string then : {"; sleep 600", ""}) {
    fs::remove(started);
    options.hook_before_commit.command = "touch " + started.string() + then;
    EXPECT_FAILS(open(options).publish(model.views()), kCancelled,
                 "hook before the commit of version 1", "on request", "nothing was committed");
    EXPECT_EQ(objects_of(*store, ""), before);
  }
  Publisher publisher = open();
  EXPECT_EQ(publish(&publisher).version, 1);
}

// Some trainers ignore SIGCHLD: the kernel then discards a child's exit status.
TEST_F(PublisherTest, HookStatusIsReadWhenSigchldIsIgnored) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  PublishOptions options{.hook_before_commit = {.command = "exit 3"}};
  EXPECT_FAILS(open(options).publish(model.views()), kCancelled,
               "hook before the commit of version 0", "status 3");
  options.hook_before_commit.command = "exit 0";
  Publisher publisher = open(options);
  EXPECT_EQ(publish(&publisher).version, 0);
  ::signal(SIGCHLD, before);
}

// ---- checkpoints on disk

TEST_F(PublisherTest, StoresCheckpointFilesUnchanged) {
  TempFolder folder;
  const auto root = folder.path() / "store";
  const std::shared_ptr<Store> directory = std::make_shared<DirectoryStore>(root);
  testing::write_sharded(folder.path() / "a", model.tensors, 2);
  const Model first = model;
  model.step();
  testing::write_sharded(folder.path() / "b", model.tensors, 3);
  auto publisher = must(Publisher::open(directory, {.plain_files = true}));
  ASSERT_TRUE(publisher.publish_checkpoint(folder.path() / "a").ok());
  EXPECT_FALSE(must(publisher.publish_checkpoint(folder.path() / "b")).full);
  EXPECT_TRUE(holds(directory, 0, first));
  EXPECT_TRUE(holds(directory, 1, model));
  size_t files = 0;
  for (const auto& item : fs::directory_iterator(fs::directory_iterator(root / "full")->path())) {
    EXPECT_EQ(read_file(item.path()), read_file(folder.path() / "a" / item.path().filename()));
    ++files;
  }
  EXPECT_EQ(files, 4);  // two shards, index, config
  EXPECT_FAILS(publisher.publish_checkpoint(folder.path() / "missing"), kNotFound, "missing");
}

}  // namespace
}  // namespace deltawire::testing
