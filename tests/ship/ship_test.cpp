// Versions over a carrier are those of a store: same run, manifests, digests, weights.
#include "ship/ship.h"

#include <cmath>

#include "base/file.h"
#include "chain/names.h"
#include "fleet.h"

namespace deltawire::testing {
namespace {

std::string warnings(const ShipReport& report) {
  std::string all;
  for (const std::string& warning : report.warnings) all += warning + "\n";
  return all;
}

TEST(Ship, EightReplicasHoldEveryVersionAndReadNothingOfItTwice) {
  Trainer trainer;
  std::deque<FollowingReplica> replicas;
  for (int i = 0; i < 8; ++i) {
    replicas.emplace_back(joining(trainer.shipper->address(), "replica-" + std::to_string(i)),
                          trainer.model);
  }
  ASSERT_TRUE(trainer.shipper->wait_for(8, kPatience).ok());
  for (uint64_t version = 0; version < 5; ++version) {
    const ShipReport report = trainer.step(version == 3 ? 1.0 : 0.02);  // dense ones are whole
    EXPECT_EQ(warnings(report), "");
    EXPECT_EQ(report.version, version);
    EXPECT_EQ(report.carrier, "tcp");
    EXPECT_EQ(report.epoch, 1);
    ASSERT_EQ(report.replicas.size(), 8);
    const Manifest manifest = Chain::open(trainer.inner)->version(version)->manifest;
    EXPECT_EQ(report.bytes, manifest.part_bytes());
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(report.replicas[i].version, version);
      EXPECT_TRUE(report.replicas[i].rank.has_value());
      ASSERT_TRUE(replicas[i].wait_for_version(version)) << replicas[i].error();
      EXPECT_TRUE(replicas[i].memory.is(trainer.model));
    }
  }
}

TEST(Ship, TheChainIsTheOneThatAFolderHolds) {
  const TempFolder folder;
  const auto disk = must(open_store((folder.path() / "chain").string(), {}));
  Trainer shipped(Trainer::quick(), {}, disk);
  FollowingReplica replica(joining(shipped.shipper->address()), shipped.model);
  ASSERT_TRUE(shipped.shipper->wait_for(1, kPatience).ok());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(warnings(shipped.step()), "");
  ASSERT_TRUE(replica.wait_for_version(3));
  const auto seen = must(join_ship(joining(shipped.shipper->address())));
  EXPECT_EQ(objects_of(*disk, "manifests/"), objects_of(*seen, "manifests/"));
  const Chain here = Chain::open(disk).value(), there = Chain::open(seen).value();
  EXPECT_EQ(here.run(), there.run());
  for (uint64_t version = 0; version < 4; ++version) {
    EXPECT_EQ(here.version(version)->digest, there.version(version)->digest);
  }
  Memory pulled(shipped.model);
  auto by_disk = must(TensorReplica::open(disk, pulled.tensors, {}));
  const auto report = must(by_disk.pull());
  EXPECT_EQ(report.version, 3);
  EXPECT_TRUE(pulled.is(shipped.model));
  EXPECT_TRUE(replica.memory.is(shipped.model));
  EXPECT_EQ(replica.pulls().back().run, report.run);
}

TEST(Ship, ALateJoinerReadsWhatItMissedAndIsInTheNextGroup) {
  Trainer trainer;
  FollowingReplica first(joining(trainer.shipper->address()), trainer.model);
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(warnings(trainer.step()), "");
  FollowingReplica second(joining(trainer.shipper->address()), trainer.model);
  ASSERT_TRUE(second.wait_for_version(2)) << second.error();
  const ShipReport report = trainer.step();
  EXPECT_EQ(warnings(report), "");
  EXPECT_EQ(report.epoch, 2);
  ASSERT_EQ(report.replicas.size(), 2);
  EXPECT_TRUE(report.replicas[1].rank.has_value());
  ASSERT_TRUE(second.wait_for_version(3));
  EXPECT_TRUE(second.memory.is(trainer.model));
}

TEST(Ship, OneThatMissedSeveralFindsThemMerged) {
  ShipOptions how = Trainer::quick();
  how.merge_after = 3;
  Trainer trainer(how, {.codec = "gaps"});
  JoinOptions same = joining(trainer.shipper->address(), "comes and goes");
  Memory kept(trainer.model);
  {
    FollowingReplica replica(same, trainer.model);
    ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
    trainer.step();
    ASSERT_TRUE(replica.wait_for_version(0));
    kept.become(trainer.model);
  }
  for (int i = 0; i < 3; ++i) trainer.step();
  // Made beside the publish: nobody waits for it.
  const Chain chain = Chain::open(trainer.inner).value();
  for (int i = 0; i < 600 && chain.added_hops(3, 3)->empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  const auto store = must(join_ship(same));
  auto replica = must(TensorReplica::open(store, kept.tensors, {}));
  const auto report = must(replica.pull());
  EXPECT_EQ(report.from, 0);
  EXPECT_EQ(report.version, 3);
  EXPECT_EQ(report.num_hops, 1);
  EXPECT_TRUE(kept.is(trainer.model));
}

TEST(Ship, WrongSecretsAreRefusedAndSaySo) {
  Trainer trainer;
  JoinOptions how = joining(trainer.shipper->address());
  how.secret = "another";
  const auto store = join_ship(how);
  EXPECT_FAILS(store, kInvalidArgument) << store.status().to_string();
  how.secret.clear();
  EXPECT_FALSE(join_ship(how).ok());
}

TEST(Ship, NothingButHeartbeatsIsWritten) {
  Trainer trainer;
  trainer.step();
  const auto store = must(join_ship(joining(trainer.shipper->address())));
  const auto before = objects_of(*trainer.inner, "");
  for (const char* name : {"manifests/0000000009.json", "run.json", "parts/x", "../up", "HEAD"}) {
    EXPECT_FALSE(store->put(name, MemoryBody(std::string_view("x"))).ok()) << name;
    EXPECT_FALSE(store->put_if_absent(name, MemoryBody(std::string_view("x"))).ok()) << name;
    EXPECT_FALSE(store->remove(name).ok()) << name;
  }
  EXPECT_EQ(objects_of(*trainer.inner, ""), before);
  EXPECT_FAILS(store->stat("nothing"), kNotFound);
  EXPECT_FAILS(store->get("run.json", 3), kCorruption);
}

TEST(Ship, CapsSmallerThanAPartChangeNothingButTheNumberOfBuckets) {
  ShipOptions how = Trainer::quick();
  how.least_buffer_bytes = 4096;
  Trainer trainer(how);
  std::deque<FollowingReplica> replicas;
  JoinOptions small = joining(trainer.shipper->address());
  small.buffer_bytes = 4096;
  replicas.emplace_back(small, trainer.model);
  JoinOptions in_scratch = joining(trainer.shipper->address());
  in_scratch.memory_bytes = 0;
  replicas.emplace_back(in_scratch, trainer.model);
  JoinOptions nowhere = joining(trainer.shipper->address());
  nowhere.memory_bytes = 0;
  nowhere.scratch = "/proc/nothing/can/be/put/here";  // as a full disk: it is read again
  replicas.emplace_back(nowhere, trainer.model);
  JoinOptions told_only = joining(trainer.shipper->address());
  told_only.pushed = false;
  replicas.emplace_back(told_only, trainer.model);
  ASSERT_TRUE(trainer.shipper->wait_for(4, kPatience).ok());
  for (uint64_t version = 0; version < 3; ++version) {
    EXPECT_EQ(warnings(trainer.step()), "");
    for (FollowingReplica& replica : replicas) {
      ASSERT_TRUE(replica.wait_for_version(version)) << replica.error();
      EXPECT_TRUE(replica.memory.is(trainer.model));
    }
  }
}

TEST(Ship, APublisherThatComesBackGoesOnWhereItsStoreIs) {
  const TempFolder folder;
  const auto disk = open_store((folder.path() / "chain").string(), {});
  std::optional<Trainer> trainer(std::in_place, Trainer::quick(), PublishOptions(), *disk);
  const std::string address = trainer->shipper->address();
  FollowingReplica replica(joining(address), trainer->model);
  ASSERT_TRUE(trainer->shipper->wait_for(1, kPatience).ok());
  trainer->step();
  trainer->step();
  ASSERT_TRUE(replica.wait_for_version(1));
  const Model model = trainer->model;
  trainer.reset();
  ShipOptions how = Trainer::quick();
  how.address = address;
  trainer.emplace(how, PublishOptions(), *disk);
  trainer->model = model;
  trainer->published = 2;
  ASSERT_TRUE(trainer->shipper->wait_for(1, kPatience).ok());
  const ShipReport report = trainer->step();
  EXPECT_EQ(warnings(report), "");
  ASSERT_TRUE(replica.wait_for_version(2));
  EXPECT_TRUE(replica.memory.is(trainer->model));
}

TEST(Ship, AnotherRunAtTheSameAddressIsRefused) {
  std::optional<Trainer> trainer(std::in_place);
  const std::string address = trainer->shipper->address();
  FollowingReplica replica(joining(address), trainer->model);
  ASSERT_TRUE(trainer->shipper->wait_for(1, kPatience).ok());
  trainer->step();
  trainer->step();
  ASSERT_TRUE(replica.wait_for_version(1));
  const Model held = trainer->model;
  trainer.reset();
  ShipOptions how = Trainer::quick();
  how.address = address;
  trainer.emplace(how);
  ASSERT_TRUE(trainer->shipper->wait_for(1, kPatience).ok());
  trainer->step();
  trainer->step();
  const ShipReport report = trainer->step();
  ASSERT_EQ(report.replicas.size(), 1);
  EXPECT_NE(report.replicas[0].error.find("run"), std::string::npos) << warnings(report);
  EXPECT_TRUE(replica.memory.is(held));
}

TEST(Ship, WithAStoreBehindAReplicaDoesWithoutThePublisher) {
  const TempFolder folder;
  const auto disk = open_store((folder.path() / "chain").string(), {});
  std::optional<Trainer> trainer(std::in_place, Trainer::quick(), PublishOptions(), *disk);
  JoinOptions how = joining(trainer->shipper->address());
  how.behind = *disk;
  how.timeout_seconds = 2;
  const auto store = must(join_ship(how));
  trainer->step();
  trainer->step();
  const Model model = trainer->model;
  trainer.reset();
  Memory memory(model);
  auto replica = must(TensorReplica::open(store, memory.tensors, {}));
  const auto report = must(replica.pull());
  EXPECT_EQ(report.version, 1);
  EXPECT_TRUE(memory.is(model));
}

TEST(Ship, WithAStoreBehindAReplicaStartsWhileThePublisherIsAwayAndJoinsItLater) {
  const TempFolder folder;
  const auto disk = open_store((folder.path() / "chain").string(), {});
  std::optional<Trainer> trainer(std::in_place, Trainer::quick(), PublishOptions(), *disk);
  const std::string address = trainer->shipper->address();
  trainer->step();
  const Model model = trainer->model;
  trainer.reset();
  JoinOptions how = joining(address);
  how.behind = *disk;
  how.timeout_seconds = 1;
  FollowingReplica replica(how, model);
  ASSERT_TRUE(replica.wait_for_version(0)) << "from behind";
  EXPECT_TRUE(replica.memory.is(model));
  ShipOptions again = Trainer::quick();
  again.address = address;
  const auto shipper = must(Shipper::listen(*disk, again));
  EXPECT_TRUE(shipper->wait_for(1, kPatience).ok());
}

TEST(Ship, WhatIsDamagedInTheStoreBehindComesFromThePublisher) {
  const auto behind = std::make_shared<MemoryStore>("behind");
  Trainer trainer;
  trainer.step();
  trainer.step();
  const auto objects = must(trainer.inner->list("", "", 1000));
  for (const ObjectInfo& info : objects) {
    std::string bytes = trainer.inner->get(info.name, uint64_t{1} << 30).value();
    if (attempt_folder(info.name)) bytes[bytes.size() / 2] ^= 1;
    ASSERT_TRUE(behind->put(info.name, MemoryBody(bytes)).ok());
  }
  JoinOptions how = joining(trainer.shipper->address());
  how.behind = behind;
  FollowingReplica replica(how, trainer.model);
  ASSERT_TRUE(replica.wait_for_version(1)) << replica.error();
  EXPECT_TRUE(replica.memory.is(trainer.model));
}

TEST(Ship, OptionsThatCannotBeAreRefusedForGood) {
  const auto refused = [](ShipOptions how) {
    return Shipper::listen(std::make_shared<MemoryStore>("m"), how).status().code() ==
           Code::kInvalidArgument;
  };
  for (const double seconds : {0.0, -1.0, double(NAN), double(INFINITY)}) {
    EXPECT_TRUE(refused({.timeout_seconds = seconds})) << seconds;
    EXPECT_TRUE(refused({.answer_seconds = seconds})) << seconds;
    JoinOptions how = joining("127.0.0.1:1");
    how.timeout_seconds = seconds;
    EXPECT_FAILS(join_ship(how), kInvalidArgument) << seconds;
  }
  EXPECT_TRUE(refused({.backend = "pigeons"}));
}

TEST(Ship, TheFirstLineOfAFileIsTheSecret) {
  const TempFolder folder;
  const auto path = folder.path() / "secret";
  const auto read = [&](std::string_view text) {
    EXPECT_TRUE(write_text_file(path, text).ok());
    return read_ship_secret(path);
  };
  for (const char* text : {"of two words", "of two words\n", "of two words\r\n# a note\n"}) {
    EXPECT_EQ(must(read(text)), "of two words");
  }
  EXPECT_FAILS(read("\nsecond"), kInvalidArgument);
}

TEST(Ship, SignedChainsAreTrustedOrRefused) {
  const TempFolder folder;
  const auto key = folder.path() / "key", other = folder.path() / "other";
  ASSERT_TRUE(make_key_files(key).ok());
  ASSERT_TRUE(make_key_files(other).ok());
  PublishOptions publish;
  publish.keys.sign = key;
  Trainer trainer(Trainer::quick(), publish);
  FollowingReplica trusting(joining(trainer.shipper->address()), trainer.model,
                            {.trust = key.string() + ".pub"});
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  EXPECT_EQ(warnings(trainer.step()), "");
  EXPECT_EQ(warnings(trainer.step()), "");
  ASSERT_TRUE(trusting.wait_for_version(1));
  Memory memory(trainer.model);
  const auto store = join_ship(joining(trainer.shipper->address()));
  TensorReplicaOptions wary;
  wary.accept.trust = other.string() + ".pub";
  auto replica = TensorReplica::open(*store, memory.tensors, wary);
  EXPECT_FALSE(replica.ok() && replica->pull().ok());
}

TEST(Ship, WhatIsNotKeptIsCollectedAndReplicasStillFollow) {
  ShipOptions how = Trainer::quick();
  how.keep_versions = 3;
  how.keep_grace_seconds = 0;
  Trainer trainer(how, {.anchors = Anchors{.every = 4}});
  FollowingReplica replica(joining(trainer.shipper->address()), trainer.model);
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  for (uint64_t version = 0; version < 30; ++version) {
    EXPECT_EQ(warnings(trainer.step()), "");
    ASSERT_TRUE(replica.wait_for_version(version));
  }
  EXPECT_TRUE(replica.memory.is(trainer.model));
  EXPECT_LT(objects_of(*trainer.inner, kManifestPrefix).size(), 20);
}

}  // namespace
}  // namespace deltawire::testing
