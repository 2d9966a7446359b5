// Files that are truncated while mapped: reads give zeros and are recorded, never a fatal signal.
#include "base/mapping.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

class MappingTest : public ::testing::Test {
 protected:
  TempFolder folder;
  const size_t page = size_t(::sysconf(_SC_PAGESIZE));
  fs::path make(size_t pages) { return folder.put("file", std::string(pages * page, 'x')); }
};

TEST_F(MappingTest, TruncatedPagesReadAsZeros) {
  const auto file = must(MappedFile::open(make(8)));
  const Bytes bytes = file->bytes();
  EXPECT_EQ(bytes[5 * page], 'x');
  EXPECT_TRUE(file->check_unchanged().ok());
  fs::resize_file(file->path(), page);
  EXPECT_TRUE(file->check_whole().ok());  // nothing was lost yet
  EXPECT_EQ(bytes[5 * page], 0);
  EXPECT_EQ(bytes[0], 'x');
  EXPECT_EQ(bytes[8 * page - 1], 0);
  EXPECT_FAILS(file->check_whole(), kIo, "changed while it was read");
  // A truncation is recorded per mapping.
  const auto again = must(MappedFile::open(file->path()));
  EXPECT_EQ(again->bytes()[0], 'x');
  EXPECT_TRUE(again->check_unchanged().ok());
}

TEST_F(MappingTest, CopiesFromLargeFilesWithReads) {
  const auto file = must(MappedFile::open_large(make(8)));
  const Bytes bytes = file->bytes();
  std::vector<uint8_t> copy(4 * page, 1);
  copy_out(bytes.data() + 3 * page + 5, copy.data(), copy.size());
  EXPECT_EQ(copy, std::vector<uint8_t>(4 * page, 'x'));
  // Truncated pages are copied as zeros and recorded, too.
  fs::resize_file(file->path(), 4 * page);
  copy_out(bytes.data() + 3 * page, copy.data(), copy.size());
  EXPECT_EQ(std::vector<uint8_t>(copy.begin(), copy.begin() + ptrdiff_t(page)),
            std::vector<uint8_t>(page, 'x'));
  EXPECT_EQ(std::vector<uint8_t>(copy.begin() + ptrdiff_t(page), copy.end()),
            std::vector<uint8_t>(3 * page, 0));
  EXPECT_FAILS(file->check_whole(), kIo, "changed while it was read");
}

TEST_F(MappingTest, CopiesFromMappingsAndPlainMemory) {
  const auto file = must(MappedFile::open(make(2)));
  std::vector<uint8_t> copy(page, 1);
  copy_out(file->bytes().data() + 7, copy.data(), copy.size());
  EXPECT_EQ(copy, std::vector<uint8_t>(page, 'x'));
  const std::vector<uint8_t> own(page, 9);
  copy_out(own.data(), copy.data(), copy.size());
  EXPECT_EQ(copy, own);
}

// With more files than reserved descriptors, the rest is read through the mappings.
TEST_F(MappingTest, CopiesFromMoreFilesThanDescriptors) {
  DW_LABEL(long);
  std::vector<std::shared_ptr<MappedFile>> files;
  const fs::path path = make(1);
  for (int i = 0; i < 300; ++i) {
    auto file = must(MappedFile::open_large(path));
    files.push_back(std::move(file));
  }
  for (const auto& file : files) {
    std::vector<uint8_t> copy(page);
    copy_out(file->bytes().data(), copy.data(), copy.size());
    EXPECT_EQ(copy, std::vector<uint8_t>(page, 'x'));
  }
}

TEST_F(MappingTest, ReportsResidentShare) {
  const fs::path path = make(16);
  const auto file = must(MappedFile::open(path));
  EXPECT_EQ(resident_share(file->bytes().data(), file->bytes().size()), 1);
  EXPECT_EQ(resident_share(file->bytes().data() + page + 1, 10), 1);
  EXPECT_EQ(resident_share(file->bytes().data(), 0), 1);
}

TEST_F(MappingTest, SurvivesTruncationUnderManyThreads) {
  for (int round = 0; round < 20; ++round) {
    const auto file = must(MappedFile::open(make(64)));
    fs::resize_file(file->path(), 0);
    std::atomic<uint64_t> sum{0};
    in_threads(4, [&](unsigned t) {
      for (size_t i = size_t(t); i < 64; i += 4) sum += file->bytes()[i * page];
    });
    EXPECT_EQ(sum, 0U);
    EXPECT_FALSE(file->check_whole().ok());
  }
}

TEST_F(MappingTest, DoesNotCommitATruncatedFile) {
  auto file = must(MutableFile::create(folder.path() / "out", 4 * page));
  for (const auto& item : fs::directory_iterator(folder.path())) fs::resize_file(item.path(), page);
  file.bytes()[3 * page] = 1;
  EXPECT_FAILS(file.commit(), kIo, "out");
  EXPECT_FALSE(fs::exists(folder.path() / "out"));
}

TEST_F(MappingTest, DetectsChangedFiles) {
  const fs::path path = make(1);
  const auto file = must(MappedFile::open(path));
  EXPECT_TRUE(file->check_unchanged().ok());
  fs::rename(path, folder.path() / "moved");
  folder.put("file", "another");
  EXPECT_TRUE(file->check_unchanged().ok());  // replaced, not written to
  fs::rename(folder.path() / "moved", path);
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(5));
  EXPECT_FAILS(file->check_unchanged(), kIo, path.string(), "time");
}

// ---- SIGBUS outside our mappings

volatile sig_atomic_t g_seen = 0;

TEST_F(MappingTest, ForwardsForeignFaultsToEarlierHandler) {
  EXPECT_EXIT(
      {
        struct sigaction own = {};
        own.sa_handler = [](int) { ::_exit(7); };
        ::sigaction(SIGBUS, &own, nullptr);
        const auto ours = MappedFile::open(make(1));  // installs ours before it
        const int fd = ::open(folder.put("other", std::string(page, 'x')).c_str(), O_RDONLY);
        auto* bytes =
            static_cast<volatile char*>(::mmap(nullptr, page, PROT_READ, MAP_SHARED, fd, 0));
        fs::resize_file(folder.path() / "other", 0);
        ::_exit(bytes[0] == 0 ? 1 : 2);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST_F(MappingTest, ForeignFaultsKillWithoutAHandler) {
  EXPECT_EXIT(
      {
        ::signal(SIGBUS, SIG_DFL);
        const auto ours = MappedFile::open(make(1));
        const int fd = ::open(folder.put("other", std::string(page, 'x')).c_str(), O_RDONLY);
        auto* bytes =
            static_cast<volatile char*>(::mmap(nullptr, page, PROT_READ, MAP_SHARED, fd, 0));
        fs::resize_file(folder.path() / "other", 0);
        ::_exit(bytes[0] == 0 ? 1 : 2);
      },
      ::testing::KilledBySignal(SIGBUS), "");
}

// A handler installed after ours that forwards faults it does not know, as many do.
TEST_F(MappingTest, WorksUnderALaterHandler) {
  static struct sigaction before;
  const auto first = MappedFile::open(make(1));
  struct sigaction own = {};
  own.sa_flags = SA_SIGINFO;
  own.sa_sigaction = [](int signal, siginfo_t* info, void* context) {
    g_seen = g_seen + 1;
    before.sa_sigaction(signal, info, context);
  };
  ASSERT_EQ(::sigaction(SIGBUS, &own, &before), 0);
  fs::resize_file(folder.path() / "file", 0);
  EXPECT_EQ((*first)->bytes()[0], 0);
  EXPECT_EQ(g_seen, 1);
  // The next mapping puts our handler first again.
  const auto second = MappedFile::open(folder.put("second", std::string(page, 'x')));
  fs::resize_file(folder.path() / "second", 0);
  EXPECT_EQ((*second)->bytes()[0], 0);
  EXPECT_EQ(g_seen, 1);
  EXPECT_FALSE((*second)->check_whole().ok());
}

}  // namespace
}  // namespace deltawire::testing
