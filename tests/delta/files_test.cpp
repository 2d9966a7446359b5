// Invalid outputs are rejected before any work, without losing data. Inputs that another process
// modifies or truncates give an error that names the file, and no output.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints.h"
#include "delta/delta_writer.h"
#include "deltawire/delta.h"

namespace deltawire::testing {
namespace {

class OutputTest : public ::testing::Test {
 protected:
  TempFolder folder;
  fs::path at(const std::string& name) const { return folder.path() / name; }
  const fs::path a = at("a.safetensors"), b = at("b.safetensors"), c = at("c.safetensors"),
                 d = at("d.safetensors");

  void SetUp() override {
    std::vector<TestTensor> tensors = {make_tensor("w", DType::kBF16, {40, 30}, 1),
                                       make_tensor("v", DType::kF32, {10}, 2)};
    write_checkpoint(a, tensors);
    write_sharded(at("old"), tensors, 2);
    change(&tensors[0], 0.1, 3);
    write_checkpoint(b, tensors);
    write_sharded(at("new"), tensors, 2);
  }
  Status diff(const fs::path& a, const fs::path& b, const fs::path& out) {
    return diff_checkpoints(a, b, out, {}).status();
  }
  Status diff_files(const fs::path& out) { return diff(a, b, out); }
  Status diff_folders(const fs::path& out) { return diff(at("old"), at("new"), out); }
  Status apply(const fs::path& delta, const fs::path& base, const fs::path& out) {
    return apply_delta(delta, base, out, {}).status();
  }
};

TEST_F(OutputTest, DiffRejectsAnInputAsOutput) {
  const std::string old_a = read_file(a), old_b = read_file(b);
  fs::create_hard_link(a, at("hard.safetensors"));
  fs::create_symlink("b.safetensors", at("soft.safetensors"));
  for (const char* name : {"a.safetensors", "b.safetensors", "hard.safetensors", "soft.safetensors",
                           "./a.safetensors", "old/../b.safetensors"}) {
    EXPECT_FAILS(diff_files(at(name)), kInvalidArgument, name, "which is an input") << name;
  }
  EXPECT_EQ(read_file(a), old_a);
  EXPECT_EQ(read_file(b), old_b);
}

TEST_F(OutputTest, DiffRejectsOutputsInsideInputFolders) {
  fs::create_directory(at("new/inner"));
  fs::create_directory_symlink(at("old"), at("link"));
  fs::rename(at("new/a-00001.safetensors"), at("blob.safetensors"));  // as caches keep them
  fs::create_symlink(at("blob.safetensors"), at("new/a-00001.safetensors"));
  for (const char* name :
       {"old", "new/", "old/a-00001.safetensors", "new/delta.safetensors", "new/delta",
        "new/inner/d.safetensors", "link/d.safetensors", "blob.safetensors"}) {
    EXPECT_FAILS(diff_folders(at(name)), kInvalidArgument, "which is an input") << name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(at("old")), {}), 4);
  EXPECT_TRUE(diff_folders(at("beside.safetensors")).ok());
}

TEST_F(OutputTest, ApplyRejectsItsDeltaAsOutput) {
  ASSERT_TRUE(diff_files(d).ok());
  ASSERT_TRUE(diff_folders(at("parts")).ok());
  const std::string delta = read_file(d);
  EXPECT_FAILS(apply(d, a, d), kInvalidArgument, "d.safetensors: is", "which is an input");
  EXPECT_EQ(read_file(d), delta);
  EXPECT_FAILS(apply(at("parts"), a, at("parts/new.safetensors")), kInvalidArgument, "lies inside",
               "which is an input");
  EXPECT_FAILS(apply(at("parts"), at("old"), at("old/new")), kInvalidArgument, "lies inside",
               "which is an input");
  EXPECT_FAILS(apply(at("parts"), at("old"), at("old")), kInvalidArgument, "is",
               "which is an input");
}

TEST_F(OutputTest, ApplyPatchesAFileInPlace) {
  ASSERT_TRUE(diff_files(d).ok());
  fs::permissions(a, fs::perms(0640));
  ASSERT_TRUE(apply(d, a, a).ok());
  EXPECT_EQ(read_file(a), read_file(b));
  EXPECT_EQ(fs::status(a).permissions(), fs::perms(0640));
}

TEST_F(OutputTest, KeepsPermissionsOfAFolder) {
  ASSERT_TRUE(diff_folders(d).ok());
  fs::permissions(at("old"), fs::perms(0750));
  fs::permissions(at("old/a-00001.safetensors"), fs::perms(0444));
  fs::permissions(at("old/a-00002.safetensors"), fs::perms(0600));
  fs::permissions(at("old/config.json"), fs::perms(0640));
  ASSERT_TRUE(apply(d, at("old"), at("out")).ok());
  const auto bits = [&](const char* name) { return fs::status(at(name)).permissions(); };
  EXPECT_EQ(bits("out"), fs::perms(0750));
  EXPECT_EQ(bits("out/a-00001.safetensors"), fs::perms(0444));
  EXPECT_EQ(bits("out/a-00002.safetensors"), fs::perms(0600));
  EXPECT_EQ(bits("out/config.json"), fs::perms(0640));
}

TEST_F(OutputTest, ReplacesRegularFilesOnly) {
  ASSERT_EQ(::mkfifo(at("pipe.safetensors").c_str(), 0600), 0);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = at("s.safetensors").string();
  ASSERT_LT(name.size(), sizeof address.sun_path);
  std::copy(name.begin(), name.end(), address.sun_path);
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  fs::create_directory(at("folder.safetensors"));
  fs::create_symlink("/dev/null", at("null.safetensors"));
  EXPECT_FAILS(diff_files(at("pipe.safetensors")), kInvalidArgument, "is a pipe");
  EXPECT_FAILS(diff_files(at("s.safetensors")), kInvalidArgument, "is a socket");
  EXPECT_TRUE(
      is_failure(diff_files(at("folder.safetensors")), Code::kInvalidArgument, "is a folder"));
  EXPECT_TRUE(
      is_failure(diff_files(at("null.safetensors")), Code::kInvalidArgument, "is a device"));
  EXPECT_FAILS(diff_files("/dev/null"), kInvalidArgument, "is a device");
  EXPECT_FAILS(diff_files(""), kInvalidArgument, "name is empty");
  ::close(listener);
  EXPECT_TRUE(fs::is_fifo(at("pipe.safetensors")));
}

TEST_F(OutputTest, ApplyWritesAFileOrAFolderLikeTheBase) {
  ASSERT_TRUE(diff_files(d).ok());
  fs::create_directory(at("empty"));
  EXPECT_FAILS(apply(d, a, at("empty")), kInvalidArgument, "is a folder", "the result is a file");
  EXPECT_FAILS(apply(d, a, at("none/")), kInvalidArgument, "names a folder");
  EXPECT_FAILS(apply(d, at("old"), c), kInvalidArgument, "is a folder, and so is the result");
  EXPECT_FAILS(apply(d, at("old"), at("d.safetensors/")), kInvalidArgument, "d.safetensors");
  folder.put("file", "x");
  EXPECT_FAILS(apply(d, at("old"), at("file")), kInvalidArgument, "is a file",
               "the result is a folder");
  EXPECT_TRUE(apply(d, at("old"), at("empty")).ok());
  EXPECT_EQ(read_file(at("file")), "x");
}

TEST_F(OutputTest, FollowsAndKeepsSymbolicLinks) {
  folder.put("target.safetensors", "old");
  fs::create_directory(at("elsewhere"));
  fs::create_symlink("target.safetensors", at("link.safetensors"));
  fs::create_symlink("elsewhere/later.safetensors", at("dangling.safetensors"));
  fs::create_symlink("link.safetensors", at("twice.safetensors"));
  fs::create_symlink("loop.safetensors", at("loop.safetensors"));
  fs::create_directory_symlink("elsewhere", at("folder"));
  ASSERT_TRUE(diff_files(at("twice.safetensors")).ok());
  EXPECT_TRUE(fs::is_symlink(at("twice.safetensors")));
  EXPECT_TRUE(fs::is_symlink(at("link.safetensors")));
  EXPECT_GT(fs::file_size(at("target.safetensors")), 100U);
  ASSERT_TRUE(diff_files(at("folder")).ok());  // to an empty folder: it is the one that is filled
  EXPECT_TRUE(fs::is_symlink(at("folder")));
  EXPECT_TRUE(fs::exists(at("elsewhere/delta.index.json")));
  ASSERT_TRUE(diff_files(at("dangling.safetensors")).ok());
  EXPECT_TRUE(fs::exists(at("elsewhere/later.safetensors")));
  EXPECT_TRUE(
      is_failure(diff_files(at("loop.safetensors")), Code::kInvalidArgument, "leads nowhere"));
}

TEST_F(OutputTest, RemovesTemporaryFilesOfAKilledRun) {
  const std::string delta = d.string();
  ASSERT_TRUE(diff_files(delta).ok());
  const size_t before = folder.num_files();
  const pid_t child = ::fork();
  if (child == 0) {
    DiffOptions options;
    options.progress = [&](uint64_t done, uint64_t total) {
      // Kills while the delta is being written, not before.
      if (done == total && folder.num_files() > before) ::raise(SIGKILL);
      return true;
    };
    std::ignore = diff_checkpoints(a, b, delta, options);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(folder.num_files(), before + 1);
  ASSERT_TRUE(diff_files(delta).ok());
  EXPECT_EQ(folder.num_files(), before);
}

enum class Meddling { kNone, kWrite, kCut };

class ChangingInputsTest : public ::testing::TestWithParam<Meddling> {
 protected:
  TempFolder folder;
  const fs::path before = folder.path() / "before.safetensors";
  const fs::path after = folder.path() / "after.safetensors";
  const fs::path delta = folder.path() / "delta.safetensors";
  const fs::path out = folder.path() / "out.safetensors";

  void SetUp() override {
    std::vector<TestTensor> tensors = {make_tensor("a", DType::kBF16, {300, 512}, 1),
                                       make_tensor("b", DType::kBF16, {300, 512}, 2)};
    write_checkpoint(before, tensors);
    for (TestTensor& tensor : tensors) change(&tensor, 0.1, 3);
    tensors.push_back(make_tensor("new", DType::kBF16, {64, 64}, 4));
    write_checkpoint(after, tensors);
  }
  // Modifies a file at the first progress call: all files are open, and work remains.
  Progress meddle(const fs::path& path) {
    return [path, done = false](uint64_t, uint64_t) mutable {
      if (std::exchange(done, true) || GetParam() == Meddling::kNone) return true;
      if (GetParam() == Meddling::kCut) {
        fs::resize_file(path, 500);
      } else {
        overwrite(path, -10, "meddlesome");
      }
      return true;
    };
  }
  ::testing::AssertionResult refused(const Status& status, const fs::path& path) {
    if (GetParam() == Meddling::kNone) {
      must(status);
      return ::testing::AssertionSuccess();
    }
    return is_failure(status, Code::kIo, path.string(), "changed while it was read");
  }
};

TEST_P(ChangingInputsTest, DiffDetectsThem) {
  for (const fs::path& path : {before, after}) {
    SetUp();
    EXPECT_TRUE(refused(
        diff_checkpoints(before, after, delta, {.threads = 1, .progress = meddle(path)}).status(),
        path));
    EXPECT_EQ(fs::exists(delta), GetParam() == Meddling::kNone);
  }
}

TEST_P(ChangingInputsTest, ApplyDetectsThem) {
  for (const fs::path& path : {before, delta}) {
    SetUp();
    ASSERT_TRUE(diff_checkpoints(before, after, delta, {}).ok());
    EXPECT_TRUE(refused(
        apply_delta(delta, before, out, {.threads = 1, .progress = meddle(path)}).status(), path));
    EXPECT_EQ(fs::exists(out), GetParam() == Meddling::kNone);
  }
}

TEST_P(ChangingInputsTest, VerifyDetectsThem) {
  for (const fs::path& path : {before, after}) {
    SetUp();
    EXPECT_TRUE(refused(
        verify_checkpoints(before, after, {.threads = 1, .progress = meddle(path)}).status(),
        path));
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, ChangingInputsTest,
                         ::testing::Values(Meddling::kNone, Meddling::kWrite, Meddling::kCut));

}  // namespace
}  // namespace deltawire::testing
