#include "base/file.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/folder.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

// Returns a failure on the n-th call.
Poll stop_at(int n) {
  return [left = n]() mutable { return --left <= 0 ? cancelled("stopped") : Status(); };
}

// `write` puts 70 MiB, three pieces, into the folder: it can be cancelled between any two.
void expect_stops(const TempFolder& folder, const std::function<Status(const Poll&)>& write) {
  int polls = 0;
  must(write([&] {
    ++polls;
    return Status();
  }));
  EXPECT_GE(polls, 5);  // three writes, before and after the sync
  EXPECT_EQ(fs::file_size(folder.path() / "f"), size_t{70} << 20);
  fs::remove(folder.path() / "f");
  for (int n = 1; n <= polls; ++n) {
    EXPECT_FAILS(write(stop_at(n)), kCancelled, "stopped") << n;
    EXPECT_EQ(folder.num_files(), 0U) << n;
  }
}

TEST(AtomicFile, CancelledWriteLeavesNoFile) {
  TempFolder folder;
  const std::vector<uint8_t> bytes(size_t{70} << 20, 7);
  expect_stops(folder, [&](const Poll& poll) -> Status {
    DW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(folder.path() / "f"));
    DW_RETURN_IF_ERROR(file.write(bytes, poll));
    return file.commit(poll);
  });
}

TEST(MutableFile, CancelledWriteLeavesNoFile) {
  TempFolder folder;
  expect_stops(folder, [&](const Poll& poll) -> Status {
    DW_ASSIGN_OR_RETURN(MutableFile file,
                        MutableFile::create(folder.path() / "f", uint64_t{70} << 20));
    for (size_t i = 0; i < file.bytes().size(); i += 4096) file.bytes()[i] = 1;
    return file.commit(poll);
  });
}

TEST(AtomicFile, KeepsPermissions) {
  TempFolder folder;
  const fs::path path = folder.path() / "f";
  auto file = must(AtomicFile::create(path));
  ASSERT_TRUE(file.set_permissions(fs::perms(0640)).ok());
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0640));
}

TEST(AtomicFile, MessagesUseTheDisplayName) {
  TempFolder folder;
  const auto result = AtomicFile::create(folder.path() / "missing" / "f", "what the user typed");
  EXPECT_FAILS(result, kNotFound, "what the user typed: cannot create");
  EXPECT_FALSE(contains(result.status().message(), "missing"));
}

// The temporary name that a process which has exited would have used.
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

TEST(Temporary, NamesAreUniqueAndBesideTheTarget) {
  const fs::path one = temporary_path("folder/m.safetensors");
  EXPECT_NE(one, temporary_path("folder/m.safetensors"));
  EXPECT_EQ(one.parent_path(), "folder");
  EXPECT_TRUE(one.filename().string().starts_with("m.safetensors."));
  EXPECT_EQ(one.extension(), ".tmp");
}

TEST(Temporary, RemovesFilesAndFoldersOfDeadWriters) {
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

TEST(Temporary, KeepsUnrelatedFiles) {
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

TEST(Temporary, RemovesTheFileOfAKilledWriter) {
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
