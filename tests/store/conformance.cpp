#include "conformance.h"

#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

#include "store/probe.h"
#include "test_files.h"

namespace deltawire::testing {

constexpr uint64_t kAny = uint64_t{1} << 20;
constexpr unsigned kThreads = 8;

void StoreConformance::SetUp() {
  opened_ = GetParam().make();
  if (opened_.store == nullptr) GTEST_SKIP() << opened_.why_not;
}

Status StoreConformance::put(std::string_view name, std::string_view text) {
  return store().put(name, MemoryBody(text));
}

Status StoreConformance::put_if_absent(std::string_view name, std::string_view text) {
  return store().put_if_absent(name, MemoryBody(text));
}

std::string StoreConformance::text_of(std::string_view name) {
  const Result<std::string> text = store().get(name, kAny);
  return text.ok() ? *text : text.status().to_string();
}

std::string StoreConformance::names(std::string_view prefix, std::string_view start_after,
                                    size_t limit) {
  const auto page = store().list(prefix, start_after, limit);
  if (!page.ok()) return page.status().to_string();
  std::string all;
  for (const ObjectInfo& object : *page) all += (all.empty() ? "" : " ") + object.name;
  return all;
}

std::vector<uint8_t> pattern(size_t size, uint64_t seed) {
  std::vector<uint8_t> bytes(size);
  uint64_t state = seed * 2 + 1;
  for (uint8_t& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = uint8_t(state >> 56);
  }
  return bytes;
}

Status BytesSink::write(uint64_t offset, std::span<const uint8_t> piece) {
  if (before_write) before_write();
  if (offset > bytes.size() || piece.size() > bytes.size() - offset) {
    return internal_error("a piece lies outside the object");
  }
  std::copy(piece.begin(), piece.end(), bytes.begin() + ptrdiff_t(offset));
  return {};
}

void race_processes(const std::function<std::shared_ptr<Store>()>& open) {
  constexpr int kProcesses = 8, kRounds = 10;
  int go[2];
  ASSERT_EQ(::pipe(go), 0);
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::close(go[1]);
      char byte;
      if (::read(go[0], &byte, 1) != 0) ::_exit(100);  // all start when the parent lets go
      const std::shared_ptr<Store> own = open();
      int wins = 0;
      for (int round = 0; round < kRounds; ++round) {
        const std::string name = "race/" + std::to_string(round);
        const Status status = own->put_if_absent(name, MemoryBody(std::to_string(process)));
        wins += status.ok();
        if (!status.ok() && status.code() != Code::kConflict) ::_exit(101);
        if (status.ok() && *own->get(name, 9) != std::to_string(process)) ::_exit(102);
      }
      ::_exit(wins);
    }
    children.push_back(child);
  }
  ::close(go[0]);
  ::close(go[1]);
  int wins = 0;
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= kRounds) << status;
    wins += WEXITSTATUS(status);
  }
  EXPECT_EQ(wins, kRounds);
  EXPECT_EQ(open()->list("", "", 100)->size(), size_t{kRounds});
}

namespace {

// Fails at its second half: a source that breaks during an upload.
class BrokenBody final : public Body {
 public:
  uint64_t size() const noexcept override { return uint64_t{4} << 20; }
  Status read(uint64_t offset, std::span<uint8_t> out) const override {
    if (offset + out.size() > size() / 2) return io_error("the source broke");
    std::fill(out.begin(), out.end(), uint8_t{7});
    return {};
  }
};

class RefusingSink final : public Sink {
 public:
  Status write(uint64_t, std::span<const uint8_t>) override { return io_error("the disk is full"); }
};

}  // namespace

TEST_P(StoreConformance, ReportsItsCapabilities) {
  EXPECT_EQ(must(store().capabilities()).put_if_absent, GetParam().put_if_absent);
  EXPECT_FALSE(store().url().empty());
}

TEST_P(StoreConformance, RefusesInvalidNames) {
  const std::string long_name(513, 'a'), long_component = "a/" + std::string(256, 'b');
  std::string zero = "zero";
  zero.push_back('\0');
  const std::vector<std::string> bad = {
      "",       "/",      "/a",   "a/",         "a//b",      "..",           "../a",
      "a/../b", ".",      "a/.b", "white room", "back\\sla", "colon:",       "per%20",
      "ümlaut", "line\n", "*",    "a?b",        long_name,   long_component, zero};
  uint8_t byte = 0;
  BytesSink sink(1);
  for (const std::string& name : bad) {
    const auto refused = [&](const Status& status) {
      return is_failure(status, Code::kInvalidArgument, "not the name of an object");
    };
    EXPECT_TRUE(refused(put(name, "x"))) << name;
    EXPECT_TRUE(refused(put_if_absent(name, "x"))) << name;
    EXPECT_TRUE(refused(store().stat(name).status())) << name;
    EXPECT_TRUE(refused(store().get(name, kAny).status())) << name;
    EXPECT_TRUE(refused(store().read(name, 0, {&byte, 1}))) << name;
    EXPECT_TRUE(refused(store().download(name, 1, &sink))) << name;
    EXPECT_TRUE(refused(store().remove(name))) << name;
  }
  for (const char* prefix : {"..", "../", "/", "/a", "a//", "a/../", ".a", "a/.b", "a b"}) {
    EXPECT_FAILS(store().list(prefix, "", 10), kInvalidArgument, "not the beginning of a name")
        << prefix;
  }
}

TEST_P(StoreConformance, AcceptsEveryValidName) {
  const std::string component(255, 'c'), longest = component + "/" + component.substr(1) + "/x";
  for (const std::string& name :
       {std::string("a"), std::string("A-Z_a.z-09"), std::string("a/b/c/d/e/f"),
        std::string("dot.at.end."), component, longest}) {
    SCOPED_TRACE(name);
    must(put(name, name));
    EXPECT_EQ(text_of(name), name);
    EXPECT_EQ(names(""), name);
    EXPECT_TRUE(store().remove(name).ok());
  }
}

TEST_P(StoreConformance, ReturnsWhatWasPut) {
  const std::vector<uint8_t> bytes = pattern(300'000, 1);
  const std::time_t before = std::time(nullptr);
  ASSERT_TRUE(store().put("parts/one.bin", MemoryBody(bytes)).ok());
  const auto info = must(store().stat("parts/one.bin"));
  EXPECT_EQ(info.name, "parts/one.bin");
  EXPECT_EQ(info.size_bytes, bytes.size());
  EXPECT_GE(info.modified, before - 60);  // the server may have a clock of its own
  EXPECT_LE(info.modified, std::time(nullptr) + 60);
  EXPECT_EQ(text_of("parts/one.bin"), std::string(bytes.begin(), bytes.end()));
}

TEST_P(StoreConformance, ClockMatchesModificationTimes) {
  ASSERT_TRUE(put("a", "x").ok());  // a folder has a clock once it is there
  const Result<int64_t> before = store().clock();
  if (before.status().code() == Code::kUnsupported) GTEST_SKIP() << "it cannot be asked";
  ASSERT_TRUE(before.ok()) << before.status().to_string();
  ASSERT_TRUE(put("a", "y").ok());
  EXPECT_GE(store().stat("a")->modified, *before - 1);  // seconds may be cut off, or rounded
  EXPECT_LE(store().stat("a")->modified, *store().clock() + 1);
  EXPECT_EQ(store().list("", "", 10)->size(), 1u);  // nothing stays behind
}

TEST_P(StoreConformance, ReadsRanges) {
  const std::vector<uint8_t> bytes = pattern(100'000, 2);
  ASSERT_TRUE(store().put("ranges", MemoryBody(bytes)).ok());
  struct Range {
    size_t offset, size;
  };
  for (const Range range : {Range{0, 1}, {0, 100'000}, {99'999, 1}, {1, 99'999}, {50'000, 7}}) {
    std::vector<uint8_t> out(range.size);
    must(store().read("ranges", range.offset, out));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), bytes.begin() + ptrdiff_t(range.offset)));
  }
  for (const size_t offset : {size_t{0}, size_t{5}, bytes.size()}) {  // nothing, from anywhere
    EXPECT_TRUE(store().read("ranges", offset, {}).ok()) << offset;
  }
}

TEST_P(StoreConformance, ReadingPastTheEndIsCorruption) {
  ASSERT_TRUE(put("short", "12345").ok());
  std::vector<uint8_t> out(5);
  for (const uint64_t offset :
       {uint64_t{1}, uint64_t{4}, uint64_t{5}, uint64_t{6}, uint64_t{1} << 40}) {
    EXPECT_FAILS(store().read("short", offset, out), kCorruption, "short") << offset;
  }
  out.resize(6);
  EXPECT_FAILS(store().read("short", 0, out), kCorruption, "short");
}

TEST_P(StoreConformance, HoldsEmptyObjects) {
  ASSERT_TRUE(put("empty", "").ok());
  EXPECT_EQ(text_of("empty"), "");
  EXPECT_EQ(store().stat("empty")->size_bytes, 0u);
  EXPECT_EQ(names(""), "empty");
  BytesSink sink(0);
  EXPECT_TRUE(store().download("empty", 0, &sink).ok());
  EXPECT_TRUE(store().read("empty", 0, {}).ok());
  uint8_t byte;
  EXPECT_FAILS(store().read("empty", 0, {&byte, 1}), kCorruption, "empty");
  EXPECT_TRUE(put("empty", "no more").ok());
  EXPECT_EQ(text_of("empty"), "no more");
}

TEST_P(StoreConformance, PutOverwrites) {
  ASSERT_TRUE(put("HEAD", "a long first value").ok());
  ASSERT_TRUE(put("HEAD", "second").ok());
  EXPECT_EQ(text_of("HEAD"), "second");
  EXPECT_EQ(store().stat("HEAD")->size_bytes, 6u);
  EXPECT_EQ(names(""), "HEAD");
}

TEST_P(StoreConformance, PutIfAbsentUsesANameOnce) {
  if (!GetParam().put_if_absent) {
    EXPECT_FAILS(put_if_absent("v/1", "x"), kUnsupported);
    return;
  }
  ASSERT_TRUE(put_if_absent("v/1", "first").ok());
  EXPECT_FAILS(put_if_absent("v/1", "second"), kConflict, "v/1");
  EXPECT_EQ(text_of("v/1"), "first");
  ASSERT_TRUE(put("v/2", "put").ok());
  EXPECT_FAILS(put_if_absent("v/2", "second"), kConflict, "v/2");
  EXPECT_EQ(text_of("v/2"), "put");
  ASSERT_TRUE(store().remove("v/1").ok());
  EXPECT_TRUE(put_if_absent("v/1", "again").ok());
  EXPECT_EQ(text_of("v/1"), "again");
}

TEST_P(StoreConformance, ExactlyOneRacingThreadWins) {
  if (!GetParam().put_if_absent) GTEST_SKIP() << "this store says that it cannot";
  for (int round = 0; round < 10; ++round) {
    const std::string name = "race/" + std::to_string(round);
    std::atomic<int> winner{-1}, winners{0}, losers{0};
    in_threads(kThreads, [&](unsigned thread) {
      const Status status = put_if_absent(name, "thread " + std::to_string(thread));
      if (status.ok()) winner = thread, ++winners;
      if (status.code() == Code::kConflict) ++losers;
    });
    EXPECT_EQ(winners, 1) << name;
    EXPECT_EQ(losers, kThreads - 1) << name;
    EXPECT_EQ(text_of(name), "thread " + std::to_string(winner));
  }
}

TEST_P(StoreConformance, MissingObjectIsNotFound) {
  ASSERT_TRUE(put("there/is", "x").ok());
  uint8_t byte;
  BytesSink sink(1);
  for (const char* name : {"missing", "missing/too", "there", "there/is-not", "there/is/not"}) {
    EXPECT_FAILS(store().stat(name), kNotFound, name);
    EXPECT_FAILS(store().get(name, kAny), kNotFound, name);
    EXPECT_FAILS(store().read(name, 0, {&byte, 1}), kNotFound, name);
    EXPECT_FAILS(store().download(name, 1, &sink), kNotFound, name);
    EXPECT_TRUE(store().remove(name).ok()) << name;
  }
  EXPECT_EQ(text_of("there/is"), "x");
}

TEST_P(StoreConformance, RemovesObjects) {
  ASSERT_TRUE(put("a/b/one", "1").ok());
  ASSERT_TRUE(put("a/b/two", "2").ok());
  ASSERT_TRUE(store().remove("a/b/one").ok());
  EXPECT_TRUE(store().remove("a/b/one").ok());
  EXPECT_FAILS(store().stat("a/b/one"), kNotFound);
  EXPECT_EQ(names(""), "a/b/two");
  ASSERT_TRUE(store().remove("a/b/two").ok());
  EXPECT_EQ(names(""), "");
  EXPECT_TRUE(put("a/b/one", "again").ok());
  EXPECT_EQ(text_of("a/b/one"), "again");
}

TEST_P(StoreConformance, GetEnforcesItsLimit) {
  ASSERT_TRUE(put("ten", "0123456789").ok());
  EXPECT_EQ(*store().get("ten", 10), "0123456789");
  EXPECT_FAILS(store().get("ten", 9), kCorruption, "ten", "10", "9");
  EXPECT_FAILS(store().get("ten", 0), kCorruption, "ten");
}

TEST_P(StoreConformance, DownloadsLargeObjects) {
  const std::vector<uint8_t> bytes = pattern((size_t{64} << 20) + 12345, 3);
  ASSERT_TRUE(store().put("parts/large", MemoryBody(bytes)).ok());
  BytesSink sink(bytes.size());
  must(store().download("parts/large", bytes.size(), &sink));
  EXPECT_TRUE(sink.bytes == bytes);
  EXPECT_EQ(store().stat("parts/large")->size_bytes, bytes.size());
  std::vector<uint8_t> end(1000);
  ASSERT_TRUE(store().read("parts/large", bytes.size() - end.size(), end).ok());
  EXPECT_TRUE(std::equal(end.begin(), end.end(), bytes.end() - ptrdiff_t(end.size())));
}

TEST_P(StoreConformance, DownloadOfAnotherSizeIsCorruption) {
  ASSERT_TRUE(put("five", "12345").ok());
  for (const uint64_t size : {uint64_t{0}, uint64_t{4}, uint64_t{6}, uint64_t{1} << 26}) {
    BytesSink sink(5);
    EXPECT_FAILS(store().download("five", size, &sink), kCorruption, "five") << size;
  }
}

TEST_P(StoreConformance, ReportsFailuresOfSinksAndBodies) {
  ASSERT_TRUE(put("five", "12345").ok());
  RefusingSink sink;
  EXPECT_FAILS(store().download("five", 5, &sink), kIo, "the disk is full");
  EXPECT_FAILS(store().put("broken", BrokenBody()), kIo, "the source broke");
  EXPECT_FAILS(store().stat("broken"), kNotFound);
  EXPECT_FAILS(store().put("five", BrokenBody()), kIo, "the source broke");
  EXPECT_EQ(text_of("five"), "12345");
  EXPECT_EQ(names(""), "five");
}

TEST_P(StoreConformance, ListsInByteOrder) {
  // '-' < '.' < '/' < '0' < 'A' < '_' < 'a': a folder's contents sort among its siblings.
  for (const char* name :
       {"a/b", "a-b", "a.b", "a0", "A", "a_", "aa", "b/a/z", "b/a-z", "b/a.z", "b/a0", "Z"}) {
    ASSERT_TRUE(put(name, name).ok());
  }
  EXPECT_EQ(names(""), "A Z a-b a.b a/b a0 a_ aa b/a-z b/a.z b/a/z b/a0");
  EXPECT_EQ(names("b/"), "b/a-z b/a.z b/a/z b/a0");
  EXPECT_EQ(names("b/a"), "b/a-z b/a.z b/a/z b/a0");
  EXPECT_EQ(names("b/a/"), "b/a/z");
  EXPECT_EQ(names("a"), "a-b a.b a/b a0 a_ aa");
  EXPECT_EQ(names("a."), "a.b");
  EXPECT_EQ(names("c"), "");
  EXPECT_EQ(names("a/b"), "a/b");
  EXPECT_EQ(names("a/b/"), "");
  EXPECT_EQ(names("missing/folder/"), "");
}

TEST_P(StoreConformance, ListsAfterAStartName) {
  for (const char* name : {"m/1", "m/2", "m/3", "m-x", "n/1", "n/2/a", "n/2-a"}) {
    ASSERT_TRUE(put(name, "").ok());
  }
  EXPECT_EQ(names("", "m/2"), "m/3 n/1 n/2-a n/2/a");
  EXPECT_EQ(names("m/", "m/1"), "m/2 m/3");
  EXPECT_EQ(names("m/", "m/15"), "m/2 m/3");  // no such object
  EXPECT_EQ(names("m/", "m/3"), "");
  EXPECT_EQ(names("m/", ""), "m/1 m/2 m/3");
  EXPECT_EQ(names("m/", "a"), "m/1 m/2 m/3");  // before the prefix
  EXPECT_EQ(names("m/", "z"), "");             // after it
  EXPECT_EQ(names("m/", "m"), "m/1 m/2 m/3");
  EXPECT_EQ(names("", "m/"), "m/1 m/2 m/3 n/1 n/2-a n/2/a");
  EXPECT_EQ(names("n/", "n/2-a"), "n/2/a");
  EXPECT_EQ(names("n/", "n/2-b"), "n/2/a");
  EXPECT_EQ(names("n/", "n/2/"), "n/2/a");
  EXPECT_EQ(names("n/", "n/2/a"), "");
  EXPECT_EQ(names("", "", 3), "m-x m/1 m/2");
  EXPECT_EQ(names("n/", "", 2), "n/1 n/2-a");
  EXPECT_EQ(names("", "", 0), "");
}

TEST_P(StoreConformance, ListsSizesAndTimes) {
  ASSERT_TRUE(put("x/5", "12345").ok());
  const auto page = store().list("x/", "", 10);
  ASSERT_TRUE(page.ok() && page->size() == 1);
  EXPECT_EQ(page->front().size_bytes, 5u);
  EXPECT_GE(page->front().modified, std::time(nullptr) - 3600);
}

TEST_P(StoreConformance, ListsManyInPages) {
  constexpr int kObjects = 2500;
  std::vector<std::string> expected(kObjects);
  for (int i = 0; i < kObjects; ++i) {
    expected[size_t(i)] = "many/" + std::to_string(i % 7) + "/" + std::to_string(i);
  }
  std::atomic<int> failures{0};
  in_threads(kThreads, [&](unsigned thread) {
    for (int i = thread; i < kObjects; i += kThreads) {
      if (!put(expected[size_t(i)], "x").ok()) ++failures;
    }
  });
  ASSERT_EQ(failures, 0);
  ASSERT_TRUE(put("man", "").ok() && put("many-not", "").ok());
  std::sort(expected.begin(), expected.end());
  const auto page = must(store().list("many/", "", 1'000'000));
  EXPECT_EQ(page.size(), 1000u);  // the most that one call gives
  std::vector<std::string> found;
  const auto collect = [&](const ObjectInfo& object) {
    found.push_back(object.name);
    return true;
  };
  ASSERT_TRUE(list_all(store(), "many/", "", collect).ok());
  EXPECT_EQ(found, expected);
  found.clear();
  ASSERT_TRUE(list_all(store(), "many/", expected[1234], collect).ok());
  EXPECT_EQ(found, std::vector<std::string>(expected.begin() + 1235, expected.end()));
  found.clear();
  ASSERT_TRUE(list_all(store(), "many/", "", [&](const ObjectInfo& object) {
                found.push_back(object.name);
                return found.size() < 1500;
              }).ok());
  EXPECT_EQ(found.size(), 1500u);
}

TEST_P(StoreConformance, ReadersNeverSeeATornObject) {
  // Every value is a single repeated letter: a mixture is easy to see.
  const auto value = [](int i) {
    return std::string(1000 + size_t(i % 26) * 997, char('a' + i % 26));
  };
  ASSERT_TRUE(put("HEAD", value(0)).ok());
  std::atomic<bool> done{false};
  std::atomic<int> torn{0}, failed{0}, reads{0};
  in_threads(kThreads, [&](unsigned thread) {
    if (thread < 2) {
      for (int i = 0; i < 100; ++i) {
        if (!put("HEAD", value(i * 2 + thread)).ok()) ++failed;
      }
      done = true;
      return;
    }
    do {
      const Result<std::string> text = store().get("HEAD", kAny);
      if (!text.ok()) {
        ++failed;
      } else if (text->empty() || *text != value((*text)[0] - 'a')) {
        ++torn;
      }
      ++reads;
    } while (!done);
  });
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(failed, 0);
  EXPECT_GE(reads, kThreads - 2);
}

TEST_P(StoreConformance, WritersAndRemoversOfOneFolder) {
  std::atomic<int> failures{0};
  in_threads(kThreads, [&](unsigned thread) {
    const std::string name = "folder/deep/" + std::to_string(thread);
    for (int i = 0; i < 50; ++i) {
      if (!put(name, name).ok() || text_of(name) != name || !store().remove(name).ok()) ++failures;
    }
  });
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(names(""), "");
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);

// The checks of `deltawire doctor`.
TEST_P(StoreConformance, PassesTheDoctorProbe) {
  must(put("run.json", "not the probe's"));
  const ProbeReport report = probe_store(store(), [] { return false; });
  for (const ProbeStep& step : report.steps) EXPECT_EQ(step.status.to_string(), "ok") << step.what;
  EXPECT_EQ(report.steps.size(), GetParam().put_if_absent ? 6U : 5U);
  EXPECT_EQ(report.put_if_absent, GetParam().put_if_absent);
  EXPECT_GT(report.put_seconds, 0);
  EXPECT_GT(report.get_seconds, 0);
  EXPECT_EQ(names(""), "run.json");
}

}  // namespace deltawire::testing
