#include "store/directory_store.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

OpenedStore in_a_folder() {
  auto folder = std::make_shared<TempFolder>();
  // Not created yet, and with a trailing slash, as people write it.
  return {std::make_shared<DirectoryStore>(folder->path() / "store/"), "", folder};
}

// Returns what `body` returns in a child process; 255 if it was killed.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

size_t files_below(const fs::path& folder) {
  size_t count = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    count += entry.is_regular_file();
  }
  return count;
}

void set_age(const fs::path& path, std::chrono::seconds age) {
  const timespec then{std::time(nullptr) - std::time_t(age.count()), 0}, times[2] = {then, then};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

class SlowBody final : public Body {
 public:
  explicit SlowBody(std::function<void()> between) : between_(std::move(between)) {}
  uint64_t size() const noexcept override { return 3; }
  Status read(uint64_t, std::span<uint8_t> out) const override {
    between_();
    std::fill(out.begin(), out.end(), uint8_t{'x'});
    return {};
  }

 private:
  const std::function<void()> between_;
};

}  // namespace

INSTANTIATE_TEST_SUITE_P(Directory, StoreConformance, ::testing::Values(StoreCase{in_a_folder}));

TEST(DirectoryStore, ExactlyOneRacingProcessWins) {
  const TempFolder folder;
  race_processes([&] { return std::make_shared<DirectoryStore>(folder.path() / "store"); });
  EXPECT_EQ(files_below(folder.path()), 10u);  // no temporary file stays
  DirectoryStore store(folder.path());         // the same bytes are a conflict, too
  ASSERT_TRUE(store.put_if_absent("v/1", MemoryBody("x")).ok());
  EXPECT_FAILS(store.put_if_absent("v/1", MemoryBody("x")), kConflict, "v/1");
}

TEST(DirectoryStore, RemovesEmptyFoldersButNotItsRoot) {
  const TempFolder folder;
  for (const char* spelling : {"store", "store/", "./store//", "store/."}) {
    DirectoryStore store(folder.path() / spelling);
    ASSERT_TRUE(store.put("a/b/c", MemoryBody("x")).ok());
    ASSERT_TRUE(store.remove("a/b/c").ok());
    EXPECT_FALSE(fs::exists(folder.path() / "store/a"));
    EXPECT_TRUE(fs::is_directory(folder.path() / "store"));
  }
}

TEST(DirectoryStore, RecreatesAFolderRemovedMeanwhile) {
  const TempFolder folder;
  DirectoryStore store(folder.path()), other(folder.path());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(store.put("a/b/1", MemoryBody("x")).ok());  // now it knows the folder
    ASSERT_TRUE(other.remove("a/b/1").ok());                // and the other removes it
    EXPECT_FALSE(fs::exists(folder.path() / "a"));
    EXPECT_TRUE(store.put("a/b/2", MemoryBody("y")).ok());
    ASSERT_TRUE(other.remove("a/b/2").ok());
    EXPECT_TRUE(store.put_if_absent("a/b/3", MemoryBody("z")).ok());
    ASSERT_TRUE(other.remove("a/b/3").ok());
  }
}

TEST(DirectoryStore, IgnoresFilesThatAreNotObjects) {
  const TempFolder folder;
  DirectoryStore store(folder.path());
  ASSERT_TRUE(store.put("a", MemoryBody("x")).ok());
  folder.put(".hidden", "");
  folder.put("back~up", "");
  folder.put("white room", "");
  fs::create_directories(folder.path() / "lost+found/inside");
  fs::create_directory(folder.path() / "empty");
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0666), 0);
  fs::create_symlink("nowhere", folder.path() / "dangling");
  const auto page = must(store.list("", "", 10));
  ASSERT_EQ(page.size(), 1u);
  EXPECT_EQ(page.front().name, "a");
  EXPECT_FAILS(store.get("pipe", 10), kNotFound, "not a file");
  EXPECT_FAILS(store.stat("empty"), kNotFound, "not a file");
  EXPECT_TRUE(store.remove("empty").ok());
  EXPECT_TRUE(fs::exists(folder.path() / "empty"));
}

TEST(DirectoryStore, ReportsAFileInPlaceOfAFolder) {
  const TempFolder folder;
  const std::string file = folder.put("file", "x");
  DirectoryStore store(file);
  const char* const message = "is a file; expected a folder";
  EXPECT_FAILS(store.put("a", MemoryBody("x")), kIo, file, message);
  EXPECT_FAILS(store.put_if_absent("a/b", MemoryBody("x")), kIo, file, message);
  EXPECT_FAILS(store.get("a", 10), kIo, file, message);
  EXPECT_FAILS(store.stat("a/b"), kIo, file, message);
  EXPECT_FAILS(store.list("", "", 10), kIo, file, message);
  DirectoryStore around(folder.path());
  EXPECT_FAILS(around.put("file/a", MemoryBody("x")), kIo, file, message);
  EXPECT_FAILS(around.put("file/a/b", MemoryBody("x")), kIo, file, message);
  EXPECT_EQ(read_file(file), "x");
  ASSERT_TRUE(around.put("folder/a", MemoryBody("x")).ok());
  EXPECT_FAILS(around.put("folder", MemoryBody("x")), kIo, "folder", "directory");
  EXPECT_EQ(files_below(folder.path()), 2u);
}

TEST(DirectoryStore, ReportsMissingPermissions) {
  const TempFolder folder;
  DirectoryStore store(folder.path() / "store");
  ASSERT_TRUE(store.put("a/b", MemoryBody("x")).ok());
  ::chmod(folder.path().c_str(), 0755);
  ::chmod((folder.path() / "store/a").c_str(), 0555);
  ::chmod((folder.path() / "store/a/b").c_str(), 0);
  // Root has all permissions, so another user tries.
  const int failed = in_child([&] {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) return 100;
    DirectoryStore theirs(folder.path() / "store");
    const auto denied = [](const Status& status) {
      return bool(is_failure(status, Code::kIo, "store/a", "Permission denied"));
    };
    if (!denied(theirs.put("a/c", MemoryBody("y")))) return 1;
    if (!denied(theirs.put_if_absent("a/c", MemoryBody("y")))) return 2;
    if (!denied(theirs.put("a/d/e", MemoryBody("y")))) return 3;
    if (!denied(theirs.remove("a/b"))) return 4;
    if (!denied(theirs.get("a/b", 10).status())) return 5;
    return 0;
  });
  EXPECT_EQ(failed, 0);
  ::chmod((folder.path() / "store/a").c_str(), 0755);
  ::chmod((folder.path() / "store/a/b").c_str(), 0644);
  EXPECT_EQ(*store.get("a/b", 10), "x");
  EXPECT_EQ(files_below(folder.path()), 1u);
}

// Mounts a small filesystem in a mount namespace that ends with the child.
int on_a_small_disk(const fs::path& at, const std::function<int()>& body) {
  return in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0) return 77;
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    if (::mount("tmpfs", at.c_str(), "tmpfs", 0, "size=1m") != 0) return 77;
    return body();
  });
}

TEST(DirectoryStore, FullDiskFailsWithoutLosses) {
  const TempFolder folder;
  const int failed = on_a_small_disk(folder.path(), [&] {
    DirectoryStore store(folder.path());
    const std::string small(1000, 's'), large(3 << 20, 'l');
    if (!store.put("a/kept", MemoryBody(small)).ok()) return 1;
    const auto full = [&](const Status& status) {
      return bool(is_failure(status, Code::kIo, "No space left on device"));
    };
    if (!full(store.put("a/large", MemoryBody(large)))) return 2;
    if (!full(store.put_if_absent("a/large", MemoryBody(large)))) return 3;
    if (!full(store.put("a/kept", MemoryBody(large)))) return 4;
    if (!full(store.put("new/folder/large", MemoryBody(large)))) return 9;
    if (fs::exists(folder.path() / "new")) return 10;
    if (*store.get("a/kept", 1 << 20) != small) return 5;
    if (store.stat("a/large").status().code() != Code::kNotFound) return 6;
    if (files_below(folder.path()) != 1) return 7;                // what was half written is gone
    if (!store.put("a/again", MemoryBody(small)).ok()) return 8;  // and its space is free again
    return 0;
  });
  if (failed == 77) GTEST_SKIP() << "only the superuser can mount a small disk";
  EXPECT_EQ(failed, 0);
}

TEST(DirectoryStore, ReadsFromAReadOnlyDisk) {
  const TempFolder folder;
  const int failed = on_a_small_disk(folder.path(), [&] {
    DirectoryStore store(folder.path());
    if (!store.put("a/b", MemoryBody("x")).ok()) return 1;
    if (::mount(nullptr, folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return 77;
    }
    DirectoryStore again(folder.path());
    const auto read_only = [&](const Status& status) {
      return bool(is_failure(status, Code::kIo, "Read-only file system"));
    };
    if (!read_only(again.put("a/c", MemoryBody("y")))) return 2;
    if (!read_only(again.put_if_absent("d/c", MemoryBody("y")))) return 3;
    if (!read_only(again.remove("a/b"))) return 4;
    if (*again.get("a/b", 10) != "x") return 5;
    if (again.list("", "", 10)->size() != 1) return 6;
    return 0;
  });
  if (failed == 77) GTEST_SKIP() << "only the superuser can mount a small disk";
  EXPECT_EQ(failed, 0);
}

TEST(DirectoryStore, RemovesOldTemporaryFiles) {
  const TempFolder folder;
  const fs::path root = folder.path() / "store";
  // A writer that is killed in the middle of a put.
  EXPECT_EQ(in_child([&] {
              DirectoryStore store(root);
              static_cast<void>(store.put("a/b/c", SlowBody([] { ::raise(SIGKILL); })));
              return 0;
            }),
            255);
  ASSERT_EQ(files_below(root), 1u);
  DirectoryStore store(root);
  EXPECT_FAILS(store.stat("a/b/c"), kNotFound);
  EXPECT_TRUE(store.list("", "", 10)->empty());

  const int64_t a_day_ago = *store.clock() - 24 * 3600;
  EXPECT_EQ(*remove_left_temporaries(root, a_day_ago), 0u);  // it may be alive
  fs::path left;
  for (const auto& entry : fs::recursive_directory_iterator(root)) left = entry.path();
  set_age(left, std::chrono::hours(23));
  EXPECT_EQ(*remove_left_temporaries(root, a_day_ago), 0u);

  // Old files of others stay.
  const fs::path foreign = root / "a/.profile";
  std::ofstream(foreign) << "x";
  ASSERT_TRUE(store.put("a/old", MemoryBody("x")).ok());
  set_age(foreign, std::chrono::hours(100));
  set_age(root / "a/old", std::chrono::hours(100));
  set_age(left, std::chrono::hours(25));
  EXPECT_EQ(*remove_left_temporaries(root, a_day_ago), 1u);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_EQ(*store.get("a/old", 10), "x");
  EXPECT_EQ(*remove_left_temporaries(folder.path() / "missing", a_day_ago), 0u);
}

TEST(DirectoryStore, WriterWhoseTemporaryFileVanishedMayRetry) {
  const TempFolder folder;
  DirectoryStore store(folder.path());
  const SlowBody swept([&] {
    for (const auto& entry : fs::directory_iterator(folder.path())) fs::remove(entry.path());
  });
  EXPECT_FAILS(store.put("a", swept), kUnavailable, "cannot rename");
  EXPECT_FAILS(store.put_if_absent("a", swept), kUnavailable, "cannot link");
  EXPECT_TRUE(store.put("a", MemoryBody("x")).ok());
}

TEST(DirectoryStore, ListsDuringConcurrentRemovals) {
  const TempFolder folder;
  DirectoryStore store(folder.path());
  constexpr int kObjects = 1500;
  const auto name = [](int i) { return "m/" + std::to_string(10000 + i); };
  fs::create_directory(folder.path() / "m");
  for (int i = 0; i < kObjects; ++i) folder.put(name(i), "");  // faster than by the store
  // Odd objects are removed during the listing: every even one must be listed, at any page break.
  std::thread remover([&] {
    for (int i = 1; i < kObjects; i += 2) static_cast<void>(store.remove(name(i)));
  });
  int even = 0;
  const Status status = list_all(store, "m/", "", [&](const ObjectInfo& object) {
    even += (object.name.back() - '0') % 2 == 0;
    return true;
  });
  remover.join();
  EXPECT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(even, kObjects / 2);
}

}  // namespace deltawire::testing
