// What a result may not be written to: found before any work, and nothing lost.
#include "delta/output.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoints.h"
#include "deltawire/delta.h"

namespace deltawire::testing {
namespace {

namespace fs = std::filesystem;

class OutputTest : public ::testing::Test {
 protected:
  TempFolder folder;
  fs::path at(const std::string& name) const { return folder.path() / name; }

  void SetUp() override {
    std::vector<TestTensor> tensors = {make_tensor("w", DType::kBF16, {40, 30}, 1),
                                       make_tensor("v", DType::kF32, {10}, 2)};
    write_checkpoint(at("a.safetensors"), tensors);
    write_sharded(at("old"), tensors, 2);
    change(&tensors[0], 0.1, 3);
    write_checkpoint(at("b.safetensors"), tensors);
    write_sharded(at("new"), tensors, 2);
  }
  Status diff(const fs::path& a, const fs::path& b, const fs::path& out) {
    return diff_checkpoints(a, b, out, {}).status();
  }
  Status diff_files(const fs::path& out) {
    return diff(at("a.safetensors"), at("b.safetensors"), out);
  }
  Status diff_folders(const fs::path& out) { return diff(at("old"), at("new"), out); }
  Status apply(const fs::path& delta, const fs::path& base, const fs::path& out) {
    return apply_delta(delta, base, out, {}).status();
  }
};

TEST_F(OutputTest, AnInputIsNeverTheOutputOfDiff) {
  const std::string a = read_file(at("a.safetensors")), b = read_file(at("b.safetensors"));
  fs::create_hard_link(at("a.safetensors"), at("hard.safetensors"));
  fs::create_symlink("b.safetensors", at("soft.safetensors"));
  for (const char* name : {"a.safetensors", "b.safetensors", "hard.safetensors", "soft.safetensors",
                           "./a.safetensors", "old/../b.safetensors"}) {
    EXPECT_TRUE(is_failure(diff_files(at(name)), Code::kInvalidArgument, name, "which is read"))
        << name;
  }
  EXPECT_EQ(read_file(at("a.safetensors")), a);
  EXPECT_EQ(read_file(at("b.safetensors")), b);
}

TEST_F(OutputTest, NothingIsPutIntoAnInputFolder) {
  fs::create_directory(at("new/inner"));
  fs::create_directory_symlink(at("old"), at("link"));
  fs::rename(at("new/a-00001.safetensors"), at("blob.safetensors"));  // as caches keep them
  fs::create_symlink(at("blob.safetensors"), at("new/a-00001.safetensors"));
  for (const char* name :
       {"old", "new/", "old/a-00001.safetensors", "new/delta.safetensors", "new/delta",
        "new/inner/d.safetensors", "link/d.safetensors", "blob.safetensors"}) {
    EXPECT_TRUE(is_failure(diff_folders(at(name)), Code::kInvalidArgument, "which is read"))
        << name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(at("old")), {}), 4);
  EXPECT_TRUE(diff_folders(at("beside.safetensors")).ok());
}

TEST_F(OutputTest, ApplyLeavesItsDeltaAlone) {
  ASSERT_TRUE(diff_files(at("d.safetensors")).ok());
  ASSERT_TRUE(diff_folders(at("parts")).ok());
  const std::string delta = read_file(at("d.safetensors"));
  EXPECT_TRUE(is_failure(apply(at("d.safetensors"), at("a.safetensors"), at("d.safetensors")),
                         Code::kInvalidArgument, "d.safetensors: is", "which is read"));
  EXPECT_EQ(read_file(at("d.safetensors")), delta);
  EXPECT_TRUE(is_failure(apply(at("parts"), at("a.safetensors"), at("parts/new.safetensors")),
                         Code::kInvalidArgument, "lies inside", "which is read"));
  EXPECT_TRUE(is_failure(apply(at("parts"), at("old"), at("old/new")), Code::kInvalidArgument,
                         "lies inside", "which is read"));
  EXPECT_TRUE(is_failure(apply(at("parts"), at("old"), at("old")), Code::kInvalidArgument, "is",
                         "which is read"));
}

TEST_F(OutputTest, AFileMayBePatchedInPlace) {
  ASSERT_TRUE(diff_files(at("d.safetensors")).ok());
  fs::permissions(at("a.safetensors"), fs::perms(0640));
  ASSERT_TRUE(apply(at("d.safetensors"), at("a.safetensors"), at("a.safetensors")).ok());
  EXPECT_EQ(read_file(at("a.safetensors")), read_file(at("b.safetensors")));
  EXPECT_EQ(fs::status(at("a.safetensors")).permissions(), fs::perms(0640));
}

TEST_F(OutputTest, PermissionBitsOfAFolderAreKept) {
  ASSERT_TRUE(diff_folders(at("d.safetensors")).ok());
  fs::permissions(at("old"), fs::perms(0750));
  fs::permissions(at("old/a-00001.safetensors"), fs::perms(0444));
  fs::permissions(at("old/a-00002.safetensors"), fs::perms(0600));
  fs::permissions(at("old/config.json"), fs::perms(0640));
  ASSERT_TRUE(apply(at("d.safetensors"), at("old"), at("out")).ok());
  const auto bits = [&](const char* name) { return fs::status(at(name)).permissions(); };
  EXPECT_EQ(bits("out"), fs::perms(0750));
  EXPECT_EQ(bits("out/a-00001.safetensors"), fs::perms(0444));
  EXPECT_EQ(bits("out/a-00002.safetensors"), fs::perms(0600));
  EXPECT_EQ(bits("out/config.json"), fs::perms(0640));
}

TEST_F(OutputTest, OnlyFilesAreReplacedByFiles) {
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
  EXPECT_TRUE(is_failure(diff_files(at("pipe.safetensors")), Code::kInvalidArgument, "is a pipe"));
  EXPECT_TRUE(is_failure(diff_files(at("s.safetensors")), Code::kInvalidArgument, "is a socket"));
  EXPECT_TRUE(
      is_failure(diff_files(at("folder.safetensors")), Code::kInvalidArgument, "is a folder"));
  EXPECT_TRUE(
      is_failure(diff_files(at("null.safetensors")), Code::kInvalidArgument, "is a device"));
  EXPECT_TRUE(is_failure(diff_files("/dev/null"), Code::kInvalidArgument, "is a device"));
  EXPECT_TRUE(is_failure(diff_files(""), Code::kInvalidArgument, "name is empty"));
  ::close(listener);
  EXPECT_TRUE(fs::is_fifo(at("pipe.safetensors")));
}

TEST_F(OutputTest, TheBaseDecidesWhetherApplyWritesAFileOrAFolder) {
  ASSERT_TRUE(diff_files(at("d.safetensors")).ok());
  fs::create_directory(at("empty"));
  EXPECT_TRUE(is_failure(apply(at("d.safetensors"), at("a.safetensors"), at("empty")),
                         Code::kInvalidArgument, "is a folder", "the result is a file"));
  EXPECT_TRUE(is_failure(apply(at("d.safetensors"), at("a.safetensors"), at("none/")),
                         Code::kInvalidArgument, "names a folder"));
  EXPECT_TRUE(is_failure(apply(at("d.safetensors"), at("old"), at("c.safetensors")),
                         Code::kInvalidArgument, "is a folder, and so is the result"));
  EXPECT_TRUE(is_failure(apply(at("d.safetensors"), at("old"), at("d.safetensors/")),
                         Code::kInvalidArgument, "d.safetensors"));
  folder.put("file", "x");
  EXPECT_TRUE(is_failure(apply(at("d.safetensors"), at("old"), at("file")), Code::kInvalidArgument,
                         "is a file", "the result is a folder"));
  EXPECT_TRUE(apply(at("d.safetensors"), at("old"), at("empty")).ok());
  EXPECT_EQ(read_file(at("file")), "x");
}

TEST_F(OutputTest, LinksAreFollowedAndStay) {
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

TEST_F(OutputTest, WhatAKilledRunLeftIsClearedAway) {
  const std::string delta = at("d.safetensors").string();
  ASSERT_TRUE(diff_files(delta).ok());
  const size_t before = folder.num_files();
  const pid_t child = ::fork();
  if (child == 0) {
    DiffOptions options;
    options.progress = [&](uint64_t done, uint64_t total) {
      // While the delta is written, not before.
      if (done == total && folder.num_files() > before) ::raise(SIGKILL);
      return true;
    };
    std::ignore = diff_checkpoints(at("a.safetensors"), at("b.safetensors"), delta, options);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(folder.num_files(), before + 1);
  ASSERT_TRUE(diff_files(delta).ok());
  EXPECT_EQ(folder.num_files(), before);
}

}  // namespace
}  // namespace deltawire::testing
