#include "tensor/safetensors_writer.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_files.h"

namespace deltawire::testing {
namespace {

const std::vector<TensorSpec> kSpecs = {
    {"a", DType::kBF16, {2}}, {"e", DType::kU8, {0}}, {"b", DType::kU8, {3}}};

TEST(SafetensorsWriter, AcceptsPiecesOfAnySize) {
  for (const size_t piece : {1, 2, 3, 5, 7}) {
    TempFolder folder;
    const auto path = folder.path() / "m.safetensors";
    auto writer = must(SafetensorsWriter::create(path, kSpecs, {{"k", "v"}}));
    EXPECT_EQ(writer.data_bytes(), 7U);
    const std::string data = "abcdefg";
    for (size_t at = 0; at < data.size(); at += piece) {
      ASSERT_TRUE(writer.write(as_bytes(data.substr(at, piece))).ok());
    }
    EXPECT_EQ(writer.remaining_bytes(), 0U);
    EXPECT_FALSE(fs::exists(path));
    ASSERT_TRUE(writer.commit().ok());
    EXPECT_EQ(read_file(path), *serialise_safetensors_header(kSpecs, {{"k", "v"}}) + data);
    EXPECT_EQ(folder.num_files(), 1U);
    EXPECT_FAILS(writer.commit(), kInvalidArgument, "already committed");
    EXPECT_FAILS(writer.write({}), kInvalidArgument, "already committed");
  }
}

TEST(SafetensorsWriter, ChecksWholeTensors) {
  TempFolder folder;
  const auto path = folder.path() / "m.safetensors";
  auto writer = must(SafetensorsWriter::create(path, kSpecs));
  EXPECT_FAILS(writer.write_tensor("b", as_bytes("xyz")), kInvalidArgument, path.string(),
               "tensor \"a\": is next, got \"b\"");
  EXPECT_FAILS(writer.write_tensor("a", as_bytes("xyz")), kInvalidArgument,
               "tensor \"a\": takes 4 bytes, got 3");
  ASSERT_TRUE(writer.write_tensor("a", as_bytes("abcd")).ok());
  ASSERT_TRUE(writer.write_tensor("e", {}).ok());
  ASSERT_TRUE(writer.write(as_bytes("x")).ok());
  EXPECT_FAILS(writer.write_tensor("b", as_bytes("xyz")), kInvalidArgument,
               "tensor \"b\": already begun");
  ASSERT_TRUE(writer.write(as_bytes("yz")).ok());
  EXPECT_FAILS(writer.write_tensor("b", as_bytes("xyz")), kInvalidArgument, "no tensor is left");
  ASSERT_TRUE(writer.commit().ok());
  EXPECT_TRUE(parse_safetensors(as_bytes(read_file(path))).ok());
}

TEST(SafetensorsWriter, MixesPiecesAndWholeTensors) {
  TempFolder folder;
  const std::vector<TensorSpec> specs = {{"a", DType::kU8, {2}}, {"b", DType::kU8, {1}}};
  auto writer = must(SafetensorsWriter::create(folder.path() / "m.safetensors", specs));
  ASSERT_TRUE(writer.write(as_bytes("aa")).ok());
  ASSERT_TRUE(writer.write_tensor("b", as_bytes("b")).ok());
  EXPECT_TRUE(writer.commit().ok());
}

TEST(SafetensorsWriter, DoesNotCommitShortData) {
  TempFolder folder;
  const auto path = folder.path() / "m.safetensors";
  {
    auto writer = must(SafetensorsWriter::create(path, kSpecs));
    ASSERT_TRUE(writer.write(as_bytes("abcde")).ok());
    EXPECT_FAILS(writer.commit(), kInvalidArgument, path.string(),
                 "tensor \"b\": got 1 of 3 bytes");
    EXPECT_EQ(folder.num_files(), 1U);  // the temporary one
  }
  EXPECT_EQ(folder.num_files(), 0U);
}

TEST(SafetensorsWriter, RejectsTooMuchData) {
  TempFolder folder;
  const auto path = folder.path() / "m.safetensors";
  auto writer = must(SafetensorsWriter::create(path, kSpecs));
  EXPECT_FAILS(writer.write(as_bytes("abcdefgh")), kInvalidArgument,
               "got 8 bytes, expected at most 7 more");
  ASSERT_TRUE(writer.write(as_bytes("abcdefg")).ok());
  EXPECT_FALSE(writer.write(as_bytes("h")).ok());
  EXPECT_TRUE(writer.commit().ok());
  EXPECT_TRUE(parse_safetensors(as_bytes(read_file(path))).ok());
}

TEST(SafetensorsWriter, KeepsTheOldFileUntilCommit) {
  TempFolder folder;
  const auto path = folder.put("m.safetensors", "old");
  {
    auto writer = must(SafetensorsWriter::create(path, kSpecs));
    ASSERT_TRUE(writer.write(as_bytes("abcdefg")).ok());
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.num_files(), 1U);
}

TEST(SafetensorsWriter, RejectsInvalidSpecsBeforeWriting) {
  TempFolder folder;
  const auto path = folder.path() / "m.safetensors";
  EXPECT_FAILS(SafetensorsWriter::create(path, {{"w", DType::kF4, {1}}}), kInvalidArgument,
               path.string(), "tensor \"w\"");
  EXPECT_EQ(folder.num_files(), 0U);
}

TEST(SafetensorsWriter, ReportsAMissingFolder) {
  TempFolder folder;
  const auto path = folder.path() / "missing" / "m.safetensors";
  EXPECT_FAILS(SafetensorsWriter::create(path, kSpecs), kNotFound, path.string());
  folder.put("file", "");
  const auto below_file = folder.path() / "file" / "m.safetensors";
  EXPECT_FAILS(SafetensorsWriter::create(below_file, kSpecs), kIo, below_file.string());
}

// In a child without root's rights, which would ignore permissions.
TEST(SafetensorsWriter, ReportsAReadOnlyFolder) {
  TempFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0555), 0);
  const auto path = folder.path() / "m.safetensors";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(2);
    const auto status = SafetensorsWriter::create(path, kSpecs).status();
    ::_exit(is_failure(status, Code::kIo, path.string(), "Permission denied") ? 0 : 1);
  }
  int result = 0;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_EQ(result, 0);
}

TEST(SafetensorsWriter, ReportsADirectoryInTheWay) {
  TempFolder folder;
  const auto path = folder.path() / "m.safetensors";
  fs::create_directory(path);
  auto writer = must(SafetensorsWriter::create(path, {}));
  EXPECT_FAILS(writer.commit(), kIo, path.string());
  EXPECT_EQ(folder.num_files(), 1U);
}

// A file size limit stands in for a full disk: write() fails half-way with an errno.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    ::signal(SIGXFSZ, old_handler_);
  }

 private:
  rlimit old_;
  void (*old_handler_)(int);
};

TEST(SafetensorsWriter, ReportsAFullDisk) {
  TempFolder folder;
  const auto path = folder.path() / "m.safetensors";
  const std::string data(100'000, 'x');
  {
    FileSizeLimit limit(50'000);
    auto writer = must(SafetensorsWriter::create(path, {{"w", DType::kU8, {100'000}}}));
    EXPECT_FAILS(writer.write(as_bytes(data)), kIo, path.string());
    EXPECT_FAILS(writer.write(as_bytes(data)), kInvalidArgument, "failed before");
    EXPECT_FAILS(writer.commit(), kInvalidArgument, "failed before");
  }
  EXPECT_EQ(folder.num_files(), 0U);
}

TEST(SafetensorsWriter, ReportsAFullDiskAtTheHeader) {
  TempFolder folder;
  const auto path = folder.path() / "m.safetensors";
  FileSizeLimit limit(10);
  EXPECT_FAILS(SafetensorsWriter::create(path, kSpecs), kIo, path.string());
  EXPECT_EQ(folder.num_files(), 0U);
}

}  // namespace
}  // namespace deltawire::testing
