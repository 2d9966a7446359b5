#include "base/file.h"

#include "test_files.h"

namespace deltawire::testing {
namespace {

// Says stop when asked for the n-th time.
Poll stop_at(int n) {
  return [left = n]() mutable { return --left <= 0 ? cancelled("stopped") : Status(); };
}

int count_polls(const std::function<Status(const Poll&)>& work) {
  int polls = 0;
  EXPECT_TRUE(work([&] {
                ++polls;
                return Status();
              }).ok());
  return polls;
}

TEST(AtomicFile, StopsBetweenPiecesAndNeverAppears) {
  TempFolder folder;
  const fs::path path = folder.path() / "f";
  const std::vector<uint8_t> bytes(size_t{70} << 20, 7);  // three pieces
  const auto write = [&](const Poll& poll) -> Status {
    DW_ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::create(path));
    DW_RETURN_IF_ERROR(file.write(bytes, poll));
    return file.commit(poll);
  };
  const int polls = count_polls(write);
  EXPECT_GE(polls, 5);  // three writes, before and after the sync
  EXPECT_EQ(fs::file_size(path), bytes.size());
  fs::remove(path);
  for (int n = 1; n <= polls; ++n) {
    EXPECT_FAILS(write(stop_at(n)), Code::kCancelled, "stopped") << n;
    EXPECT_EQ(folder.num_files(), 0U) << n;
  }
}

TEST(MutableFile, StopsBetweenPiecesAndNeverAppears) {
  TempFolder folder;
  const fs::path path = folder.path() / "f";
  const auto write = [&](const Poll& poll) -> Status {
    DW_ASSIGN_OR_RETURN(MutableFile file, MutableFile::create(path, uint64_t{70} << 20));
    for (size_t i = 0; i < file.bytes().size(); i += 4096) file.bytes()[i] = 1;
    return file.commit(poll);
  };
  const int polls = count_polls(write);
  EXPECT_GE(polls, 5);
  fs::remove(path);
  for (int n = 1; n <= polls; ++n) {
    EXPECT_FAILS(write(stop_at(n)), Code::kCancelled, "stopped") << n;
    EXPECT_EQ(folder.num_files(), 0U) << n;
  }
}

TEST(AtomicFile, KeepsTheBitsItIsGiven) {
  TempFolder folder;
  const fs::path path = folder.path() / "f";
  auto file = must(AtomicFile::create(path));
  ASSERT_TRUE(file.set_permissions(fs::perms(0640)).ok());
  ASSERT_TRUE(file.commit().ok());
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0640));
}

TEST(AtomicFile, MessagesShowTheNameTheyAreTold) {
  TempFolder folder;
  const auto result = AtomicFile::create(folder.path() / "missing" / "f", "what the user typed");
  EXPECT_FAILS(result, Code::kNotFound, "what the user typed: cannot create");
  EXPECT_FALSE(contains(result.status().message(), "missing"));
}

}  // namespace
}  // namespace deltawire::testing
