// Detects which checkpoints of a folder are complete and new.
#include "publish/folder_watch.h"

#include "checkpoints.h"

namespace deltawire::testing {
namespace {

class FolderWatchTest : public ::testing::Test {
 protected:
  TempFolder folder, elsewhere;
  const std::vector<testing::TestTensor> tensors = {make_tensor("a", DType::kBF16, {8, 8}, 1),
                                                    make_tensor("b", DType::kBF16, {8}, 2)};

  fs::path at(const std::string& name) const { return folder.path() / name; }
  FolderWatch open() { return FolderWatch::open(folder.path(), 0).value(); }
  std::vector<std::string> ready(FolderWatch* watch) {
    std::vector<std::string> names;
    const auto found = must(watch->ready());
    for (const fs::path& path : found) names.push_back(path.filename().string());
    return names;
  }
  // Sets the file time explicitly, so that the order does not depend on the clock's resolution.
  void write(const std::string& name, int second) {
    write_checkpoint(at(name), tensors);
    fs::last_write_time(at(name),
                        fs::file_time_type::clock::now() - std::chrono::seconds(1000 - second));
  }
  using Names = std::vector<std::string>;
};

TEST_F(FolderWatchTest, ListsFilesAndFoldersByTimeWritten) {
  write("z.safetensors", 1);
  write("a.safetensors", 2);
  write_sharded(at("step-3"), tensors, 2);
  folder.put("notes.txt", "not a checkpoint");
  folder.put(".hidden.safetensors", "x");
  fs::create_directory(at("empty"));
  auto watch = open();
  EXPECT_EQ(ready(&watch), (Names{"z.safetensors", "a.safetensors", "step-3"}));
}

TEST_F(FolderWatchTest, WaitsForIncompleteCheckpoints) {
  write_sharded(at("step-1"), tensors, 2);
  fs::rename(at("step-1/a-00002.safetensors"), elsewhere.path() / "shard");
  auto watch = open();
  EXPECT_TRUE(ready(&watch).empty()) << "the index names a shard that is missing";
  const std::string whole = testing::read_file(elsewhere.path() / "shard");
  std::ofstream(at("step-1/a-00002.safetensors"), std::ios::binary)
      .write(whole.data(), ptrdiff_t(whole.size() - 5));
  EXPECT_TRUE(ready(&watch).empty()) << "a shard that is cut short";
  std::ofstream(at("step-1/a-00002.safetensors"), std::ios::binary) << whole;
  EXPECT_EQ(ready(&watch), (Names{"step-1"}));
}

TEST_F(FolderWatchTest, ReportsSkippedCheckpointsOnceWithAReason) {
  const auto skipped = [](FolderWatch* watch) {
    std::map<std::string, std::string> reasons;
    for (const auto& [path, reason] : watch->newly_skipped()) {
      EXPECT_TRUE(reasons.emplace(path.filename().string(), reason).second) << path;
    }
    return reasons;
  };
  write("good.safetensors", 1);
  const std::string whole = testing::read_file(at("good.safetensors"));
  folder.put("half.safetensors", whole.substr(0, whole.size() - 5));
  folder.put("notes.txt", "not a checkpoint");
  folder.put(".hidden", "x");
  fs::create_directory(at("begun"));
  folder.put("begun/config.json", "{}");
  auto watch = open();
  EXPECT_EQ(ready(&watch), (Names{"good.safetensors"}));
  const auto first = skipped(&watch);
  EXPECT_EQ(first.size(), 3);
  EXPECT_TRUE(contains(first.at("half.safetensors"), "data"));
  EXPECT_TRUE(contains(first.at("begun"), "no .safetensors file"));
  EXPECT_TRUE(contains(first.at("notes.txt"), "neither a .safetensors file"));
  ready(&watch);
  EXPECT_TRUE(skipped(&watch).empty());
  // A new reason is reported; a checkpoint that is now complete is published.
  folder.put("half.safetensors", whole.substr(0, 20));
  folder.put("begun/model.safetensors", whole);
  EXPECT_EQ(ready(&watch).size(), 2);
  const auto second = skipped(&watch);
  EXPECT_EQ(second.size(), 1);
  EXPECT_NE(second.at("half.safetensors"), first.at("half.safetensors"));
}

TEST_F(FolderWatchTest, WaitsForCheckpointsThatStillChange) {
  write("a.safetensors", 1);
  auto watch = FolderWatch::open(folder.path(), 3600).value();
  EXPECT_TRUE(ready(&watch).empty());
  EXPECT_TRUE(watch.expects_more());
  watch.wait(0);
  EXPECT_TRUE(ready(&watch).empty());
}

TEST_F(FolderWatchTest, RemembersPublishedCheckpointsUntilTheyChange) {
  write("a.safetensors", 1);
  write("b.safetensors", 2);
  const fs::path memory = elsewhere.path() / "watched.json";
  {
    auto watch = open();
    ASSERT_TRUE(watch.remember_in(memory).ok());
    EXPECT_EQ(ready(&watch), (Names{"a.safetensors", "b.safetensors"}));
    ASSERT_TRUE(watch.remember(at("a.safetensors")).ok());
    EXPECT_EQ(ready(&watch), (Names{"b.safetensors"}));
    ASSERT_TRUE(watch.remember(at("b.safetensors")).ok());
  }
  auto watch = open();
  ASSERT_TRUE(watch.remember_in(memory).ok());
  EXPECT_TRUE(ready(&watch).empty());
  EXPECT_FALSE(watch.expects_more());
  write("a.safetensors", 3);
  EXPECT_EQ(ready(&watch), (Names{"a.safetensors"}));
}

TEST_F(FolderWatchTest, RewrittenCheckpointIsNew) {
  write("a.safetensors", 1);
  auto watch = open();
  EXPECT_EQ(ready(&watch), (Names{"a.safetensors"}));
  write("a.safetensors", 2);  // while it was being published
  ASSERT_TRUE(watch.remember(at("a.safetensors")).ok());
  EXPECT_EQ(ready(&watch), (Names{"a.safetensors"}));
}

TEST_F(FolderWatchTest, ReportsBadFoldersAndMemories) {
  EXPECT_FAILS(FolderWatch::open(at("missing"), 0), kNotFound, "missing");
  auto watch = open();
  EXPECT_FAILS(watch.remember_in(elsewhere.put("m.json", "[]")), kCorruption, "m.json");
}

TEST_F(FolderWatchTest, WaitReturnsWhenAFileAppears) {
  auto watch = open();
  std::thread writer([&] { write("a.safetensors", 1); });
  watch.wait(600);  // the test's own time limit is shorter
  writer.join();
  EXPECT_EQ(ready(&watch), (Names{"a.safetensors"}));
}

}  // namespace
}  // namespace deltawire::testing
