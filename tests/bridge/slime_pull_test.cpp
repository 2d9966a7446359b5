// slime's pull, on files in slime's format: each failing that its own puller has, and what happens
// here instead.
#include "bridge/slime/pull.h"

#include <sys/file.h>

#include <thread>

#include "bridge/slime/local.h"
#include "bridge/slime_files.h"
#include "test_files.h"

namespace deltawire {
namespace {

namespace fs = std::filesystem;
using testing::contents_of;
using testing::holds;
using testing::is_failure;
using testing::Model;
using testing::read_file;
using testing::slime_folder;
using testing::write_slime_delta;
using testing::write_slime_full;
using testing::write_text;

class SlimePull : public ::testing::Test {
 protected:
  void SetUp() override {
    base_ = {testing::make_tensor("embed.weight", DType::kBF16, {64, 33}, 1),
             testing::make_tensor("layer.norm", DType::kF32, {33}, 2),
             testing::make_tensor("layer.up", DType::kBF16, {40, 33}, 3),
             testing::make_tensor("layer.scale", DType::kF8_E4M3, {7}, 4)};
    models_.push_back(base_);
    for (uint64_t v = 1; v <= 3; ++v) {
      Model next = models_.back();
      for (size_t i : {size_t{0}, size_t(v)}) testing::change(&next[i], 0.2, 10 * v + i);
      models_.push_back(next);
    }
    testing::write_sharded(base_folder(), base_, 2);
  }

  fs::path base_folder() const { return temp_.path() / "base"; }
  fs::path source() const { return temp_.path() / "source"; }
  fs::path local() const { return temp_.path() / "local"; }

  void publish(uint64_t version, const testing::SlimeWriting& how = {}) {
    write_slime_delta(source(), version, models_[version - 1], models_[version], how);
  }
  // A run of its own: the same numbers and names, other values.
  void publish_other_run(uint64_t upto) {
    fs::remove_all(source());
    for (uint64_t v = 1; v <= upto; ++v) {
      models_[v] = models_[v - 1];
      testing::change(&models_[v][0], 0.2, 1000 + v);
      publish(v);
    }
  }

  Result<SlimePullReport> pull(uint64_t target, bool with_base = true) {
    SlimePullOptions options;
    if (with_base) options.base = base_folder();
    options.threads = 2;
    options.check = check_;
    auto pulled = slime_pull({local(), source(), target}, options);
    if (!pulled.ok()) return pulled.status();
    DW_RETURN_IF_ERROR(pulled->settle());
    return pulled->report();
  }
  ::testing::AssertionResult pulls(uint64_t target, bool with_base = true) {
    const auto report = pull(target, with_base);
    if (!report.ok()) return ::testing::AssertionFailure() << report.status().to_string();
    if (state() != testing::slime_number(target)) {
      return ::testing::AssertionFailure() << "state.json says " << state();
    }
    return holds(local(), models_[target]);
  }
  std::string state() const {
    const auto version = read_slime_version(SlimeLocal{local()});
    return version.ok() && *version ? testing::slime_number(**version) : "none";
  }
  // A copy of all bytes, to see that nothing changed.
  std::map<std::string, std::string> snapshot() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(local())) {
      if (entry.is_regular_file()) files[entry.path().string()] = read_file(entry.path());
    }
    return files;
  }

  testing::TempFolder temp_;
  Model base_;
  std::vector<Model> models_;
  std::function<Status()> check_;
};

TEST_F(SlimePull, GoesFromTheBaseToAnyVersionAndBack) {
  for (uint64_t v = 1; v <= 3; ++v) publish(v, {v == 2 ? "overwrite" : "xor", v});
  EXPECT_TRUE(pulls(0));
  EXPECT_TRUE(fs::exists(local() / "config.json")) << "files beside the weights come along";
  EXPECT_TRUE(pulls(1));
  EXPECT_EQ(read_file(local() / ".weight_sync/state.json"), R"({"version": "000001"})");
  EXPECT_TRUE(pulls(3)) << "two versions at once";
  EXPECT_FALSE(pull(3)->changed);
  EXPECT_TRUE(pulls(2)) << "theirs answers success and stays at 3";
  EXPECT_TRUE(pulls(0));
}

TEST_F(SlimePull, EveryChecksum) {
  for (const ChecksumKind kind :
       {ChecksumKind::kXxh3_128, ChecksumKind::kAdler32, ChecksumKind::kBlake3}) {
    if (!check_available(kind).ok()) continue;
    fs::remove_all(source());
    fs::remove_all(local());
    publish(1, {"xor", 1, kind});
    EXPECT_TRUE(pulls(1)) << checksum_name(kind);
  }
}

TEST_F(SlimePull, WithoutABaseVersion0IsWhatIsThere) {
  publish(1);
  testing::write_sharded(local(), base_, 3);
  EXPECT_TRUE(pulls(0, false));
  EXPECT_TRUE(pulls(1, false));
  EXPECT_TRUE(
      is_failure(pull(0, false).status(), Code::kBaseMismatch, "holds version 1", "no base"));
  EXPECT_TRUE(holds(local(), models_[1]));
}

TEST_F(SlimePull, AnEmptyFolderWithoutABaseIsRefused) {
  publish(1);
  EXPECT_TRUE(
      is_failure(pull(1, false).status(), Code::kNotFound, "holds no checkpoint", "no base"));
  EXPECT_TRUE(is_failure(pull(2).status(), Code::kNotFound, "weight_v000002"));
  EXPECT_FALSE(fs::exists(local())) << "nothing was pulled: no folder, no lock";
  testing::write_sharded(local(), models_[0], 2);
  EXPECT_TRUE(is_failure(pull(2).status(), Code::kNotFound, "weight_v000002"));
  EXPECT_FALSE(fs::exists(local() / ".weight_sync"));
}

// Their puller replaces it, whatever it is.
TEST_F(SlimePull, AnUnknownCheckpointIsNotOverwritten) {
  publish(1);
  testing::write_sharded(local(), models_[2], 2);
  EXPECT_TRUE(
      is_failure(pull(1).status(), Code::kConflict, "is not", "embed.weight", ".weight_sync"));
  EXPECT_TRUE(holds(local(), models_[2]));
}

// Failing 1: theirs sees "000002", and answers success without looking.
TEST_F(SlimePull, AStaleFolderOfAnEarlierRunIsMadeAnew) {
  publish(1);
  publish(2);
  ASSERT_TRUE(pulls(2));
  publish_other_run(3);
  const auto report = pull(2);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->rebuilt);
  EXPECT_NE(report->reason.find("of another run"), std::string::npos) << report->reason;
  EXPECT_TRUE(holds(local(), models_[2]));
  EXPECT_TRUE(pulls(3));
}

TEST_F(SlimePull, AStaleFolderWithoutABaseIsRefused) {
  testing::write_sharded(local(), base_, 1);
  publish(1);
  ASSERT_TRUE(pulls(1, false));
  publish_other_run(2);
  const auto before = snapshot();
  EXPECT_TRUE(is_failure(pull(1, false).status(), Code::kBaseMismatch, "another run"));
  EXPECT_TRUE(is_failure(pull(2, false).status(), Code::kBaseMismatch, "another run"));
  EXPECT_EQ(snapshot(), before);
}

// Their own puller keeps no record: the digests of the version that it claims tell.
TEST_F(SlimePull, AStateOfTheirsIsProvenByDigests) {
  publish(1);
  publish(2);
  testing::write_sharded(local(), models_[1], 2);
  write_text(local() / ".weight_sync/state.json", R"({"version": "000001"})");
  EXPECT_TRUE(pulls(1, false));
  EXPECT_TRUE(pulls(2, false));
  fs::remove_all(local());
  testing::write_sharded(local(), base_, 2);
  write_text(local() / ".weight_sync/state.json", R"({"version": "000001"})");
  EXPECT_TRUE(is_failure(pull(1, false).status(), Code::kBaseMismatch, "embed.weight"));
  EXPECT_TRUE(pulls(1)) << "with a base it is made anew";
}

TEST_F(SlimePull, Generation2sStateIsReadAndKept) {
  publish(1);
  publish(2);
  testing::write_sharded(local(), models_[1], 2);
  write_text(local() / ".delta_sync/state.json", R"({"version": "000001"})");
  EXPECT_TRUE(pulls(2, false));
  EXPECT_EQ(read_file(local() / ".delta_sync/state.json"), R"({"version": "000002"})");
}

TEST_F(SlimePull, AStateThatSaysNothingIsNotBelieved) {
  publish(1);
  for (const char* text : {"", "{}", R"({"version": "two"})", R"({"version": -1})", "[1]",
                           R"({"version": "99999999999999999999"})"}) {
    fs::remove_all(local());
    testing::write_sharded(local(), models_[1], 2);
    write_text(local() / ".weight_sync/state.json", text);
    EXPECT_TRUE(is_failure(pull(1, false).status(), Code::kCorruption, "state.json")) << text;
    EXPECT_TRUE(pulls(1)) << text;
  }
}

// Failing 2: theirs XORs in place, and a second XOR takes the change back.
TEST_F(SlimePull, HalfAppliedXorOfTheirsIsMadeAnew) {
  publish(1);
  Model half = base_;
  half[0] = models_[1][0];
  testing::write_sharded(local(), half, 2);
  write_text(local() / ".weight_sync/state.json", R"({"version": "000000"})");
  const auto before = snapshot();
  EXPECT_TRUE(is_failure(pull(1, false).status(), Code::kCorruption, "embed.weight", "xxh3-128"));
  EXPECT_EQ(before.at((local() / ".weight_sync/state.json").string()),
            read_file(local() / ".weight_sync/state.json"));
  EXPECT_TRUE(holds(local(), half)) << "nothing is touched by a pull that fails";
  EXPECT_TRUE(pulls(1));
}

// Failing 3: under xor it cancels itself.
TEST_F(SlimePull, ATensorInTwoPartsIsRefused) {
  publish(1, {"xor", 2});
  const fs::path folder = slime_folder(source(), 1);
  fs::copy_file(folder / "model-00000-of-00002.safetensors", folder / "extra.safetensors");
  ASSERT_TRUE(pulls(0));
  const auto before = snapshot();
  EXPECT_FALSE(pull(1).ok());
  EXPECT_TRUE(holds(local(), base_));
  EXPECT_EQ(snapshot(), before);
}

// Failing 4: theirs is a KeyError.
TEST_F(SlimePull, ATiedHeadNeedNotBeThere) {
  Model before = models_[0], after = models_[1];
  before.push_back(before[0]);
  after.push_back(after[0]);
  before.back().name = after.back().name = "lm_head.weight";
  write_slime_delta(source(), 1, before, after);
  const auto report = pull(1);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(holds(local(), models_[1]));
  ASSERT_TRUE(pulls(0));
  EXPECT_EQ(pull(1)->num_tied, 1u);
}

TEST_F(SlimePull, AHeadThatIsNotTiedIsRefusedByName) {
  Model before = models_[0], after = models_[1];
  before.push_back(before[2]);
  after.push_back(models_[2][2]);
  before.back().name = after.back().name = "lm_head.weight";
  write_slime_delta(source(), 1, before, after);
  ASSERT_TRUE(pulls(0));
  const auto kept = snapshot();
  EXPECT_TRUE(is_failure(pull(1).status(), Code::kBaseMismatch, "lm_head.weight", "does not have"));
  EXPECT_EQ(snapshot(), kept);
}

// Failing 5: theirs never compares sizes.
TEST_F(SlimePull, AnotherDtypeOrShapeIsRefused) {
  Model before = models_[0], after = models_[1];
  for (Model* model : {&before, &after}) {
    (*model)[0] =
        testing::make_tensor("embed.weight", DType::kF32, {64, 33}, model == &before ? 5 : 6);
  }
  for (const char* encoding : {"xor", "overwrite"}) {
    fs::remove_all(source());
    fs::remove_all(local());
    write_slime_delta(source(), 1, before, after, {encoding});
    ASSERT_TRUE(pulls(0));
    EXPECT_FALSE(pull(1).ok()) << encoding;
    EXPECT_TRUE(holds(local(), base_));
    EXPECT_EQ(state(), "000000");
  }
}

// Failing 6: theirs applies what it finds, and advances.
TEST_F(SlimePull, AMissingPartIsRefused) {
  publish(1, {"xor", 2});
  fs::remove(slime_folder(source(), 1) / "model-00001-of-00002.safetensors");
  ASSERT_TRUE(pulls(0));
  EXPECT_FALSE(pull(1).ok());
  EXPECT_EQ(state(), "000000");
  EXPECT_TRUE(holds(local(), base_));
}

// Failing 7: theirs takes it for a full checkpoint, and deletes the local one.
TEST_F(SlimePull, AFolderWithoutAnIndexIsNoVersion) {
  publish(1);
  fs::remove(slime_folder(source(), 1) / "model.safetensors.index.json");
  ASSERT_TRUE(pulls(0));
  EXPECT_TRUE(is_failure(pull(1).status(), Code::kNotFound, "weight_v000001",
                         "model.safetensors.index.json"));
  fs::create_directories(slime_folder(source(), 2));
  EXPECT_TRUE(is_failure(pull(2).status(), Code::kNotFound, "weight_v000002"));
  EXPECT_TRUE(holds(local(), base_));
}

// Failing 8: theirs has patched what came before the cut, for ever.
TEST_F(SlimePull, EveryTruncationOfAPartIsRefused) {
  publish(1);
  const fs::path part = slime_folder(source(), 1) / "model-00000-of-00001.safetensors";
  const std::string whole = read_file(part);
  ASSERT_TRUE(pulls(0));
  const auto before = snapshot();
  for (size_t size = 0; size < whole.size(); size += 1 + size / 16) {
    write_text(part, whole.substr(0, size));
    EXPECT_FALSE(pull(1).ok()) << size;
  }
  EXPECT_EQ(snapshot(), before);
  write_text(part, whole);
  EXPECT_TRUE(pulls(1));
}

TEST_F(SlimePull, EveryFlippedByteIsRefusedOrHarmless) {
  publish(1);
  const fs::path part = slime_folder(source(), 1) / "model-00000-of-00001.safetensors";
  const std::string whole = read_file(part);
  ASSERT_TRUE(pulls(0));
  for (size_t at = 0; at < whole.size(); at += 1 + at / 32) {
    std::string flipped = whole;
    flipped[at] = char(flipped[at] ^ 0x10);
    write_text(part, flipped);
    if (!pull(1).ok()) continue;
    EXPECT_TRUE(holds(local(), models_[1])) << at;
    fs::remove_all(local());
    ASSERT_TRUE(pull(0).ok());
  }
  EXPECT_TRUE(holds(local(), base_) || holds(local(), models_[1]));
}

// Failing 9: their glob finds nothing there, and they answer success.
TEST_F(SlimePull, APathMayHoldWhatGlobsKnow) {
  const fs::path odd = temp_.path() / "run[1]*?";
  write_slime_delta(odd / "source", 1, models_[0], models_[1]);
  SlimePullOptions options;
  options.base = base_folder();
  auto pulled = slime_pull({odd / "local[2]", odd / "source", 1}, options);
  ASSERT_TRUE(pulled.ok()) << pulled.status().to_string();
  EXPECT_TRUE(holds(odd / "local[2]", models_[1]));
}

// Failing 10: found when the trainer first changes that tensor: the format has no digest of it
// before.
TEST_F(SlimePull, AWrongBaseIsFoundWhenItsTensorIsTouched) {
  publish(1);  // touches tensors 0 and 1
  publish(2);  // 0 and 2
  Model wrong = base_;
  testing::change(&wrong[2], 0.5, 99);
  testing::write_sharded(local(), wrong, 2);
  EXPECT_TRUE(pull(1, false).ok());
  EXPECT_TRUE(is_failure(pull(2, false).status(), Code::kCorruption, "layer.up"));
  EXPECT_EQ(state(), "000001");
  const auto report = pull(2);
  ASSERT_TRUE(report.ok()) << report.status().to_string();
  EXPECT_TRUE(report->rebuilt);
  EXPECT_TRUE(holds(local(), models_[2]));
}

TEST_F(SlimePull, FilesThatSomebodyWroteToAreNotBelieved) {
  publish(1);
  ASSERT_TRUE(pulls(1));
  const fs::path file = local() / "a-00001.safetensors";
  std::string bytes = read_file(file);
  bytes.back() = char(bytes.back() ^ 1);
  write_text(file, bytes);
  ASSERT_TRUE(pulls(1)) << "made anew";
}

TEST_F(SlimePull, AFullVersionReplacesWhatIsThere) {
  publish(1);
  write_slime_full(source(), 2, models_[2], 3);
  publish(3);
  ASSERT_TRUE(pulls(1));
  write_text(local() / "notes.txt", "mine");
  EXPECT_TRUE(pulls(2));
  EXPECT_TRUE(fs::exists(local() / "a-00003.safetensors"));
  EXPECT_EQ(read_file(local() / "notes.txt"), "mine") << "theirs removes what the version lacks";
  EXPECT_TRUE(pulls(3));
  fs::remove_all(slime_folder(source(), 1));
  fs::remove_all(local());
  EXPECT_TRUE(pulls(3, false)) << "a late joiner begins with the whole version";
  write_slime_full(source(), 2, models_[2], 1);
  EXPECT_TRUE(pulls(2, false));
  EXPECT_FALSE(fs::exists(local() / "a-00002.safetensors"));
}

TEST_F(SlimePull, AFullVersionThatLacksAFileIsRefused) {
  write_slime_full(source(), 1, models_[1], 2);
  fs::remove(slime_folder(source(), 1) / "a-00002.safetensors");
  ASSERT_TRUE(pulls(0));
  EXPECT_FALSE(pull(1).ok());
  EXPECT_TRUE(holds(local(), base_));
}

TEST_F(SlimePull, VersionsThatTheSourceLacksAreNotFound) {
  publish(1);
  publish(3);
  ASSERT_TRUE(pulls(1));
  EXPECT_TRUE(is_failure(pull(3).status(), Code::kNotFound, "weight_v000002"));
  EXPECT_TRUE(is_failure(pull(9).status(), Code::kNotFound, "weight_v000009"));
  fs::remove_all(source());
  EXPECT_TRUE(is_failure(pull(1).status(), Code::kNotFound, "weight_v000001"))
      << "a version that its source does not have is nobody's success";
  EXPECT_TRUE(holds(local(), models_[1]));
}

TEST_F(SlimePull, AVersionWithoutChangesIsOne) {
  models_[1] = models_[0];
  publish(1);
  models_[2] = models_[1];
  testing::change(&models_[2][1], 0.5, 7);
  publish(2);
  EXPECT_TRUE(pulls(0));
  EXPECT_TRUE(pulls(1));
  EXPECT_TRUE(pulls(2));
}

TEST_F(SlimePull, FilesThatShareTheirBytesAreNotPatchedInPlace) {
  publish(1);
  fs::create_directories(local());
  for (const auto& entry : fs::directory_iterator(base_folder())) {
    fs::create_hard_link(entry.path(), local() / entry.path().filename());
  }
  EXPECT_TRUE(pulls(1, false));
  EXPECT_TRUE(holds(base_folder(), base_));
  fs::remove_all(local());
  fs::create_directories(local());
  for (const auto& entry : fs::directory_iterator(base_folder())) {
    fs::create_symlink(entry.path(), local() / entry.path().filename());
  }
  EXPECT_TRUE(pulls(1, false));
  EXPECT_TRUE(holds(base_folder(), base_));
}

TEST_F(SlimePull, OnePullAtATimeAndTimeIsLimited) {
  publish(1);
  ASSERT_TRUE(pulls(0));
  const int fd = ::open((local() / ".weight_sync/lock").c_str(), O_RDWR);
  ASSERT_EQ(::flock(fd, LOCK_EX), 0);
  int asked = 0;
  check_ = [&] { return ++asked < 3 ? Status() : unavailable("time is over"); };
  EXPECT_TRUE(is_failure(pull(1).status(), Code::kUnavailable, "lock", "time is over"));
  EXPECT_EQ(state(), "000000");
  check_ = {};
  std::thread later([fd] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ::close(fd);
  });
  EXPECT_TRUE(pulls(1));
  later.join();
}

TEST_F(SlimePull, APullThatIsStoppedChangesNothing) {
  publish(1);
  ASSERT_TRUE(pulls(0));
  const auto before = snapshot();
  for (int limit = 0;; ++limit) {
    std::atomic<int> asked = 0;
    check_ = [&] { return asked++ < limit ? Status() : cancelled("stopped"); };
    const auto report = pull(1);
    if (report.ok()) break;
    EXPECT_EQ(report.status().code(), Code::kCancelled);
    EXPECT_EQ(snapshot(), before);
    ASSERT_LT(limit, 100);
  }
  EXPECT_TRUE(holds(local(), models_[1]));
}

TEST_F(SlimePull, VersionsMustLieBelowTheRoots) {
  publish(1);
  fs::create_directories(temp_.path() / "away");
  fs::rename(slime_folder(source(), 1), temp_.path() / "away/v");
  fs::create_directory_symlink(temp_.path() / "away/v", slime_folder(source(), 1));
  SlimePullOptions options;
  options.base = base_folder();
  options.roots = {source(), local()};
  EXPECT_TRUE(is_failure(slime_pull({local(), source(), 1}, options).status(),
                         Code::kInvalidArgument, "leads out"));
  options.roots.push_back(temp_.path() / "away");
  EXPECT_TRUE(slime_pull({local(), source(), 1}, options).ok());
}

TEST_F(SlimePull, TheHookRunsBeforeVersionsAreRead) {
  write_slime_delta(temp_.path() / "hidden", 1, models_[0], models_[1]);
  SlimePullOptions options;
  options.base = base_folder();
  options.pre_read_hook = "test $DELTAWIRE_TARGET_VERSION = 1 && mv " +
                          (temp_.path() / "hidden").string() + " \"$DELTAWIRE_SOURCE_DIR\"";
  EXPECT_TRUE(slime_pull({local(), source(), 0}, options).ok()) << "not for version 0";
  ASSERT_FALSE(fs::exists(source()));
  EXPECT_TRUE(slime_pull({local(), source(), 1}, options).ok());
  options.pre_read_hook = "exit 3";
  EXPECT_TRUE(is_failure(slime_pull({local(), source(), 2}, options).status(), Code::kConflict,
                         "the hook before reading"));
}

TEST_F(SlimePull, PathsMakeSense) {
  EXPECT_TRUE(is_failure(slime_pull({"local", source(), 1}, {}).status(), Code::kInvalidArgument,
                         "absolute"));
  EXPECT_TRUE(
      is_failure(slime_pull({source(), source(), 1}, {}).status(), Code::kInvalidArgument, "both"));
}

}  // namespace
}  // namespace deltawire
