// Files beside the weights belong to a version: a replica at that version has exactly these.

#include "chain/chain.h"
#include "chain/fsck.h"
#include "chain/heartbeat.h"
#include "chain/named_objects.h"
#include "checkpoints.h"
#include "deltawire/maintain.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"
#include "store/directory_store.h"
#include "store/forwarding_store.h"
#include "support/published_model.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

using Files = std::map<std::string, std::string>;
using Paths = Publisher::Paths;

class SideFilesTest : public ::testing::Test {
 protected:
  TempFolder folder;
  Model model = Model::make();
  Files files = {{"config.json", "{\"a\": 1}"}, {"tokenizer.json", "[]"}};
  std::vector<Files> published;
  std::shared_ptr<Store> store = std::make_shared<DirectoryStore>(folder.path() / "store");

  fs::path ckpt() const { return folder.path() / "ckpt"; }
  void write() {
    fs::remove_all(ckpt());
    fs::create_directories(ckpt());
    write_checkpoint(ckpt() / "model.safetensors", model.tensors);
    for (const auto& [name, text] : files) folder.put("ckpt/" + name, text);
  }
  Result<PublishReport> try_publish() {
    write();
    return publish_folder();
  }
  Result<PublishReport> publish_folder() {
    DW_ASSIGN_OR_RETURN(Publisher publisher,
                        Publisher::open(store, {.anchors = Anchors{.by_bytes = false}}));
    return publisher.publish_checkpoint(ckpt());
  }
  PublishReport publish() {
    const auto report = try_publish();
    EXPECT_TRUE(report.ok()) << report.status().to_string();
    if (report.ok() && report->committed) published.push_back(files);
    return report.ok() ? *report : PublishReport{};
  }
  static Files beside(const fs::path& local) {
    Files found;
    for (const auto& item : fs::directory_iterator(local)) {
      const std::string name = item.path().filename().string();
      if (name[0] == '.' || name.ends_with(".safetensors")) continue;
      found[name] = read_file(item.path());
    }
    return found;
  }
  Result<PullReport> pull(const std::string& name, std::optional<uint64_t> version = {},
                          bool copy_on_write = false, bool repair = true) {
    ReplicaOptions options;
    if (copy_on_write) options.copy_on_write = CopyOnWrite{};
    options.repair = repair;
    DW_ASSIGN_OR_RETURN(Replica replica,
                        Replica::open(store, folder.path() / name, std::move(options)));
    return replica.pull(version);
  }
  fs::path local(const std::string& name) const { return folder.path() / name; }
  // In place and copy-on-write, from an older version and from nothing.
  void expect_at(uint64_t version) {
    static int fresh = 0;
    const std::string number = std::to_string(fresh++);
    for (const std::string& name : std::vector<std::string>{"old", "fresh" + number}) {
      auto report = pull(name, version);
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_EQ(beside(local(name)), published[version]) << name << " at " << version;
      report = pull(name + "-cow", version, true);
      ASSERT_TRUE(report.ok()) << report.status().to_string();
      EXPECT_EQ(beside(local(name + "-cow") / "current"), published[version]) << name;
      EXPECT_TRUE(is_identical(local(name), local(name + "-cow") / "current"));
    }
  }
  void expect_sound() {
    const auto report = must(check_chain(Chain::open(store, {}).value(), {true, 1, {}}));
    EXPECT_TRUE(report.clean()) << (report.problems.empty() ? report.warnings : report.problems)[0];
  }
  std::vector<std::string> objects(std::string_view prefix) {
    return testing::objects_of(*store, prefix);
  }
};

// ---- refusals of a publisher

TEST_F(SideFilesTest, RejectsNamesThatReplicasRefuseBeforeAnyPut) {
  for (const std::string name :
       {"current", "v0000000001", "CURRENT", "a\nb", "b\\c", "\xff\xfe.txt"}) {
    files = {{"config.json", "{}"}, {name, "x"}};
    const auto report = try_publish();
    EXPECT_FAILS(report, kInvalidArgument, "ckpt") << name;
    EXPECT_TRUE(objects("").empty()) << name;
  }
  files = {{"README.md", "a"}, {"readme.md", "b"}};
  EXPECT_FAILS(try_publish(), kInvalidArgument, "readme.md", "case");
  EXPECT_TRUE(objects("").empty());
}

TEST_F(SideFilesTest, RejectsAFileOverTheLimitByName) {
  write();
  folder.put("ckpt/huge.txt", "x");
  fs::resize_file(ckpt() / "huge.txt", (uint64_t{1} << 30) + 1);  // a hole
  EXPECT_FAILS(publish_folder(), kInvalidArgument, "huge.txt", "1073741824");
  EXPECT_TRUE(objects("").empty());
}

TEST_F(SideFilesTest, FilesFromATrainerFollowTheSameRules) {
  auto publisher = must(Publisher::open(store));
  for (const char* name : {"model.safetensors", "current", ".env"}) {
    EXPECT_FAILS(publisher.publish(model.views(), Paths{folder.put(name, "x")}), kInvalidArgument,
                 name);
  }
  const fs::path config = folder.put("config.json", "x");
  EXPECT_FAILS(publisher.publish(model.views(), Paths{config, config}), kInvalidArgument,
               "config.json");
  EXPECT_FAILS(publisher.publish(model.views(), Paths{folder.path()}), kInvalidArgument,
               "not a regular file");
  EXPECT_FALSE(publisher.publish(model.views(), Paths{folder.path() / "none"}).ok());
  EXPECT_TRUE(objects("").empty());
}

TEST_F(SideFilesTest, UnpublishedFilesAreReportedOnce) {
  write();
  fs::create_directories(ckpt() / "logs");
  for (const char* name : {".hidden", "optimizer.pt"}) folder.put(std::string("ckpt/") + name, "x");
  auto publisher = must(Publisher::open(store));
  EXPECT_EQ(publisher.publish_checkpoint(ckpt())->note,
            "left out: .hidden, logs/, optimizer.pt: folders, hidden files and weights in other "
            "formats are not published");
  folder.put("ckpt/config.json", "2");
  EXPECT_EQ(publisher.publish_checkpoint(ckpt())->note, "");
  EXPECT_EQ(publisher.publish_checkpoint(ckpt())->note, "");
  folder.put("ckpt/config.json", "3");
  folder.put("ckpt/.more", "x");
  EXPECT_NE(publisher.publish_checkpoint(ckpt())->note, "");
}

// ---- replicas

TEST_F(SideFilesTest, EveryReplicaHasTheVersionsFiles) {
  EXPECT_EQ(publish().version, 0U);
  model.step();
  files["config.json"] = "{\"a\": 2}";  // changed
  publish();
  model.step();
  files["chat template – ünï.jinja"] = "new";  // names that no object can have
  files["語彙.txt"] = "語";
  publish();
  model.step();
  files.erase("tokenizer.json");
  publish();
  for (const uint64_t version : {0, 1, 2, 3}) expect_at(version);
  // Over several versions at once, and back by number.
  ASSERT_TRUE(pull("hops", 0).ok());
  ASSERT_TRUE(pull("hops").ok());
  EXPECT_EQ(beside(local("hops")), published[3]);
  ASSERT_TRUE(pull("hops", 1).ok());
  EXPECT_EQ(beside(local("hops")), published[1]);
  expect_sound();
  // Contents are stored once for all versions.
  EXPECT_EQ(objects("files/").size(), 5U);
  // A full version is a folder that engines load directly.
  must(make_anchor(Chain::open(store).value(), 3, {}));
  expect_sound();
  expect_at(3);
}

TEST_F(SideFilesTest, ChangeOfFilesAloneIsAVersion) {
  publish();
  EXPECT_FALSE(publish().committed);
  files["config.json"] = "{\"a\": 2}";
  const PublishReport changed = publish();
  EXPECT_TRUE(changed.committed);
  EXPECT_FALSE(changed.full);
  EXPECT_EQ(changed.version, 1U);
  EXPECT_EQ(changed.num_parts, 0U);
  files.erase("tokenizer.json");
  EXPECT_EQ(publish().version, 2U);
  files.clear();
  EXPECT_EQ(publish().version, 3U);
  EXPECT_FALSE(publish().committed);
  files["b.txt"] = "{\"a\": 2}";
  EXPECT_EQ(publish().version, 4U);
  for (const uint64_t version : {0, 1, 2, 3, 4}) expect_at(version);
  expect_sound();
  must(compact_chain(Chain::open(store).value(), {.spans = {2}}));
  expect_sound();
}

TEST_F(SideFilesTest, TrainerWithoutFilesKeepsThem) {
  const auto at = [&](uint64_t version) {
    Files found;
    const VersionRecord record = Chain::open(store, {})->version(version).value();
    for (const SideFile& file : record.manifest.files) {
      found[file.name] = store->get(side_object(file).name, 1000).value();
    }
    return found;
  };
  auto publisher = must(Publisher::open(store, {.anchors = Anchors{.every = 2}}));
  const auto publish = [&](const std::optional<Paths>& extra) {
    model.step();
    const auto report = must(publisher.publish(model.views(), extra));
    EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
  };
  const fs::path config = folder.put("config.json", "1"), other = folder.put("b.txt", "2");
  publish(Paths{config, other});
  publish({});
  publish({});  // stored whole too, with files that only the chain still has
  EXPECT_EQ(at(2), (Files{{"b.txt", "2"}, {"config.json", "1"}}));
  publish(Paths{config});
  EXPECT_EQ(at(3), (Files{{"config.json", "1"}}));
  publish(Paths{});
  EXPECT_EQ(at(4), Files{});
  publish({});
  EXPECT_EQ(at(5), Files{});
  ASSERT_TRUE(publisher.capture(model.views(), Paths{config}).ok());
  folder.put("config.json", "changed since");
  ASSERT_TRUE(publisher.finish().ok());
  EXPECT_EQ(at(6), (Files{{"config.json", "1"}}));
  expect_sound();
}

TEST_F(SideFilesTest, PublishingASingleFileKeepsSideFiles) {
  publish();
  model.step();
  write();
  auto publisher =
      must(Publisher::open(store, {.snapshot = SnapshotInFolder{folder.path() / "snapshot"}}));
  must(publisher.publish_checkpoint(ckpt() / "model.safetensors"));
  published.push_back(files);
  expect_at(1);
}

// ---- unknown files, and edits

TEST_F(SideFilesTest, KeepsUnknownFiles) {
  publish();
  ASSERT_TRUE(pull("local").ok());
  folder.put("local/notes.txt", "mine");
  model.step();
  files.erase("tokenizer.json");
  publish();
  EXPECT_TRUE(must(pull("local")).set_aside.empty());
  Files expected = files;
  expected["notes.txt"] = "mine";
  EXPECT_EQ(beside(local("local")), expected);
}

TEST_F(SideFilesTest, SetsConflictingFilesAside) {
  publish();
  ASSERT_TRUE(pull("local").ok());
  folder.put("local/notes.txt", "mine");
  folder.put("local/tokenizer.json", "edited");
  model.step();
  files["notes.txt"] = "theirs";
  files.erase("tokenizer.json");
  publish();
  const auto report = must(pull("local"));
  EXPECT_EQ(beside(local("local")), files);
  ASSERT_EQ(report.set_aside.size(), 2U);
  EXPECT_EQ(read_file(local("local") / ".deltawire/aside/1/notes.txt"), "mine");
  EXPECT_EQ(read_file(local("local") / ".deltawire/aside/1/tokenizer.json"), "edited");
  // Once more: files set aside earlier are not overwritten.
  folder.put("local/notes.txt", "edited");
  ASSERT_TRUE(pull("local").ok());
  EXPECT_EQ(read_file(local("local") / ".deltawire/aside/1/notes.txt"), "mine");
  EXPECT_EQ(read_file(local("local") / ".deltawire/aside/2/notes.txt"), "edited");
}

TEST_F(SideFilesTest, RepairsEditsAtTheSameVersion) {
  publish();
  for (const bool apart : {false, true}) {
    const std::string name = apart ? "cow" : "place";
    const fs::path at = apart ? local(name) / "current" : local(name);
    ASSERT_TRUE(pull(name, {}, apart).ok());
    std::ofstream(at / "config.json") << "edited";
    fs::remove(at / "tokenizer.json");
    EXPECT_FAILS(pull(name, {}, apart, false), kBaseMismatch, "config.json");
    const auto report = must(pull(name, {}, apart));
    EXPECT_TRUE(report.repaired);
    EXPECT_EQ(beside(at), files);
    EXPECT_EQ(read_file(local(name) / ".deltawire/aside/1/config.json"), "edited");
    EXPECT_FALSE(pull(name, {}, apart)->changed);
    // Touched, but unchanged: nothing to do.
    fs::last_write_time(at / "config.json", fs::file_time_type::clock::now());
    EXPECT_FALSE(pull(name, {}, apart)->changed);
  }
}

TEST_F(SideFilesTest, DetectsAnEditBetweenPatchAndSettle) {
  publish();
  auto replica = must(Replica::open(store, local("local"), {}));
  ASSERT_TRUE(replica.prepare().ok());
  ASSERT_TRUE(replica.commit().ok());
  folder.put("local/config.json", "edited");
  ASSERT_TRUE(replica.settle().ok());
  ASSERT_TRUE(replica.pull().ok());
  EXPECT_EQ(beside(local("local")), files);
}

TEST_F(SideFilesTest, RecoversADamagedStateWithItsFiles) {
  publish();
  files["config.json"] = "2";
  publish();
  ASSERT_TRUE(pull("local").ok());
  folder.put("local/.deltawire/state.json", "{");
  files.erase("tokenizer.json");
  model.step();
  publish();
  const auto report = must(pull("local"));
  EXPECT_EQ(beside(local("local")), files);
  EXPECT_TRUE(report.set_aside.empty());
}

// ---- damaged objects

TEST_F(SideFilesTest, DamagedFileObjectIsNamedAndNothingChanges) {
  publish();
  ASSERT_TRUE(pull("local").ok());
  const Files before = files;
  model.step();
  files["config.json"] = "{\"a\": 2}";
  publish();
  std::string object;
  for (const std::string& name : objects("files/")) {
    if (name.starts_with("files/0000000001")) object = name;
  }
  ASSERT_TRUE(store->put(object, MemoryBody("{\"a\": 3}")).ok());
  EXPECT_FAILS(pull("local"), kCorruption, object);
  EXPECT_EQ(beside(local("local")), before);
  const auto damaged = check_chain(Chain::open(store, {}).value(), {true, 1, {}});
  ASSERT_EQ(damaged->problems.size(), 1U);
  EXPECT_TRUE(contains(damaged->problems[0], object));
  ASSERT_TRUE(store->remove(object).ok());
  EXPECT_FAILS(pull("local"), kNotFound, object);
  EXPECT_EQ(check_chain(Chain::open(store, {}).value(), {false, 1, {}})->problems.size(), 1U);
}

// ---- retention

TEST_F(SideFilesTest, GcKeepsNamedFilesAndCollectsTheRest) {
  files = {{"config.json", "0"}, {"stays.txt", "s"}};
  publish();
  for (int step = 1; step < 6; ++step) {
    files["config.json"] = std::to_string(step);
    if (step == 3) files["middle.txt"] = "m";
    if (step == 5) files.erase("middle.txt");
    model.step();
    publish();
  }
  ASSERT_TRUE(make_anchor(Chain::open(store).value(), 4, {}).ok());
  EXPECT_EQ(objects("files/").size(), 8U);  // six configurations, stays, middle
  ASSERT_TRUE(store->put("files/0000000002-dead/orphan", MemoryBody("x")).ok());
  ASSERT_TRUE(store->put("files/0000000009-live/begun", MemoryBody("x")).ok());
  struct LaterStore final : ForwardingStore {
    using ForwardingStore::ForwardingStore;
    Result<int64_t> clock() override { return now; }
    int64_t now = 0;
  };
  const auto later = std::make_shared<LaterStore>(store);
  const Chain chain = Chain::open(later, {}).value();
  const int64_t now = unix_seconds() + 10;
  const auto collect = [&](uint64_t keep, int64_t at) {
    later->now = at;
    must(chain.collect_garbage({keep, 5}));
  };
  collect(2, now);  // keeps 4 and 5
  EXPECT_EQ(objects("files/").size(), 10U);
  collect(2, now + 6);
  // The last two configurations, stays, middle (of version 4), and a publish in progress above the
  // head.
  EXPECT_EQ(objects("files/").size(), 5U);
  for (const uint64_t version : {4, 5}) expect_at(version);
  ASSERT_TRUE(make_anchor(Chain::open(store).value(), 5, {}).ok());
  collect(1, now + 12);
  collect(1, now + 18);
  EXPECT_EQ(objects("files/").size(), 3U);
  expect_at(5);
  // A collected file comes back as a new object.
  files["middle.txt"] = "m";
  publish();
  expect_at(6);
  collect(2, now + 24);
  collect(2, now + 30);
  expect_at(6);
}

}  // namespace
}  // namespace deltawire::testing
