#include "base/folder.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

// The name that a process which is gone by now would have used.
fs::path name_of_the_dead(const fs::path& target) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string name = temporary_path(target).string();
    const bool written = ::write(ends[1], name.data(), name.size()) == ssize_t(name.size());
    ::_exit(written ? 0 : 1);
  }
  char buffer[4096];
  const ssize_t length = ::read(ends[0], buffer, sizeof buffer);
  ::close(ends[0]);
  ::close(ends[1]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return std::string(buffer, size_t(std::max<ssize_t>(length, 0)));
}

TEST(Temporary, NamesAreNewEveryTimeAndBesideTheirTarget) {
  const fs::path one = temporary_path("folder/m.safetensors");
  EXPECT_NE(one, temporary_path("folder/m.safetensors"));
  EXPECT_EQ(one.parent_path(), "folder");
  EXPECT_TRUE(one.filename().string().starts_with("m.safetensors."));
  EXPECT_EQ(one.extension(), ".tmp");
}

TEST(Temporary, WhatTheDeadLeftIsRemovedFilesAndFolders) {
  TempFolder folder;
  const fs::path target = folder.path() / "m.safetensors";
  const fs::path file = name_of_the_dead(target), inner = name_of_the_dead(target);
  folder.put(file.filename().string(), "half");
  fs::create_directory(inner);
  folder.put(inner.filename().string() + "/part", "half");
  folder.put("m.safetensors", "whole");
  remove_stale_temporaries(target);
  EXPECT_FALSE(fs::exists(file));
  EXPECT_FALSE(fs::exists(inner));
  EXPECT_TRUE(fs::exists(target));
}

TEST(Temporary, EverythingElseStays) {
  TempFolder folder;
  const fs::path target = folder.path() / "m.safetensors";
  const std::string dead = name_of_the_dead(target).filename().string();
  const std::string rest = dead.substr(dead.find("safetensors.") + 12);  // "TAG-PID-0.tmp"
  std::string elsewhere = dead;  // another machine, or this one before its last boot
  char& digit = elsewhere[std::string("m.safetensors.").size()];
  digit = digit == '0' ? '1' : '0';
  const std::vector<std::string> names = {
      temporary_path(target).filename().string(),  // ours: alive
      elsewhere,
      "n.safetensors." + rest,    // of another target
      "m.safetensors.x." + rest,  // of a target whose name begins alike
      dead + ".tmp",
      dead + "x",
      "m.safetensors.-1-0.tmp",
      "m.safetensors.tmp",
  };
  for (const std::string& name : names) folder.put(name, "x");
  remove_stale_temporaries(target);
  for (const std::string& name : names) EXPECT_TRUE(fs::exists(folder.path() / name)) << name;
  remove_stale_temporaries(folder.path() / "no folder" / "m");  // nothing to look at: no harm
}

TEST(Temporary, AKilledWriterLeavesOneThatTheNextFinds) {
  TempFolder folder;
  const fs::path target = folder.path() / "m";
  const pid_t child = ::fork();
  if (child == 0) {
    auto file = AtomicFile::create(target);
    if (file.ok() && file->write(testing::as_bytes("half")).ok()) ::raise(SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(folder.num_files(), 1U);
  remove_stale_temporaries(target);
  EXPECT_EQ(folder.num_files(), 0U);
}

}  // namespace
}  // namespace deltawire::testing
