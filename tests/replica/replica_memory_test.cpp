// A replica's memory grows neither with its largest tensor nor with the size of a change.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "checkpoints.h"
#include "deltawire/checkpoint.h"
#include "deltawire/publisher.h"
#include "deltawire/replica.h"
#include "deltawire/tensor_replica.h"
#include "store/directory_store.h"

namespace deltawire::testing {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kTensorBytes = 1024 * kMiB;
constexpr uint64_t kRoom = 448 * kMiB;  // beyond what a fresh process has

// Private writable memory of the process, which copies of a tensor would need. Mapped files do not
// count.
uint64_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmData:")) return std::stoull(line.substr(7)) * 1024;
  }
  return 0;
}

// Zeros that take no memory until they are written.
class LargeTensor {
 public:
  LargeTensor()
      : data_(static_cast<uint8_t*>(::mmap(nullptr, kTensorBytes, PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}
  ~LargeTensor() { ::munmap(data_, kTensorBytes); }
  LargeTensor(const LargeTensor&) = delete;
  LargeTensor& operator=(const LargeTensor&) = delete;

  MutableBytes bytes() const { return {data_, kTensorBytes}; }
  std::vector<PublishTensor> views() const {
    return {{{"large", DType::kBF16, {1024, kTensorBytes / 2048}, bytes()}, {}}};
  }

 private:
  uint8_t* const data_;
};

// Runs `work` in a child that may allocate `room` more bytes. Returns its error text.
std::string with_little_memory(uint64_t room, const std::function<Status()>& work) {
  int pipe[2];
  if (::pipe(pipe) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const auto run = [&]() -> Status {
      const rlimit limit{data_bytes() + room, data_bytes() + room};
      if (::setrlimit(RLIMIT_DATA, &limit) != 0) return internal_error("cannot set the limit");
      return work();
    };
    const Status status = run();
    const std::string text = status.ok() ? "" : status.to_string();
    if (::write(pipe[1], text.data(), text.size()) < 0) ::_exit(2);
    ::_exit(status.ok() ? 0 : 1);
  }
  ::close(pipe[1]);
  std::string text;
  char buffer[1024];
  for (ssize_t n; (n = ::read(pipe[0], buffer, sizeof buffer)) > 0;) text.append(buffer, size_t(n));
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (status == 0) return "";
  return text.empty() ? "ended with status " + std::to_string(status) : text;
}

// Pulls the versions in sequence.
std::string pull_with_little_memory(const fs::path& store, const fs::path& local,
                                    const std::vector<uint64_t>& versions) {
  return with_little_memory(kRoom, [&]() -> Status {
    ReplicaOptions options{.limits = {.threads = 2}, .heartbeat = false};
    DW_ASSIGN_OR_RETURN(Replica replica,
                        Replica::open(std::make_shared<DirectoryStore>(store), local, options));
    for (const uint64_t version : versions) {
      DW_ASSIGN_OR_RETURN(const PullReport report, replica.pull(version));
      if (report.repaired) return internal_error(report.repair_reason);
    }
    return {};
  });
}

bool holds(const fs::path& local, Bytes bytes) {
  const auto checkpoint = Checkpoint::open(local);
  if (!checkpoint.ok()) return false;
  const Bytes own = checkpoint->find("large")->view.bytes;
  return own.size() == bytes.size() && std::memcmp(own.data(), bytes.data(), own.size()) == 0;
}

TEST(ReplicaMemorySlowTest, PatchesATensorLargerThanMemory) {
  DW_LABEL(slow);
  TempFolder folder;
  const fs::path store = folder.path() / "store", local = folder.path() / "local";
  LargeTensor tensor;
  {
    PublishOptions options{.limits = {.threads = 2}};
    Publisher publisher = Publisher::open(std::make_shared<DirectoryStore>(store), options).value();
    const auto publish = [&] { must(publisher.publish(tensor.views())); };
    publish();
    // Sparse changes everywhere: decoded from the local bytes.
    for (uint64_t i = 0; i < kTensorBytes; i += 4097 * 64) tensor.bytes()[i] ^= 1;
    publish();
    // Two steps, one of them dense in a region: decoded on a copy.
    for (uint64_t i = 0; i < 96 * kMiB; ++i) tensor.bytes()[i] ^= uint8_t(i * 2654435761 >> 13) | 1;
    publish();
    for (uint64_t i = 0; i < kTensorBytes; i += 4099 * 64) tensor.bytes()[i] ^= 2;
    publish();
  }
  EXPECT_EQ(pull_with_little_memory(store, local, {0, 1, 3}), "");
  EXPECT_TRUE(holds(local, tensor.bytes()));
}

// The change is several times the memory that a replica of tensors may take: it is kept in a file
// until commit().
TEST(ReplicaMemorySlowTest, PatchesTensorsByChangesLargerThanMemory) {
  DW_LABEL(slow);
  constexpr uint64_t kSize = 32 * kMiB, kCount = 6;
  TempFolder folder;
  const fs::path store = folder.path() / "store";
  std::vector<std::vector<uint8_t>> weights(kCount, std::vector<uint8_t>(kSize));
  std::vector<std::vector<uint8_t>> held = weights;
  std::vector<PublishTensor> views;
  std::vector<LiveTensor> whole, boxes;
  const Shape shape = {1024, kSize / 2048};
  for (size_t i = 0; i < kCount; ++i) {
    const std::string name = "layer." + std::to_string(i);
    views.push_back({{name, DType::kBF16, shape, weights[i]}, {}});
    whole.push_back({name, DType::kBF16, shape, held[i]});
    const Box half{{0, 0}, {shape[0], shape[1] / 2}};
    boxes.push_back(
        {name, DType::kBF16, shape, MutableBytes(held[i]).first(kSize / 2), Memory::kHost, half});
  }
  {
    PublishOptions options{.limits = {.threads = 2}, .codec = "gaps"};
    Publisher publisher = Publisher::open(std::make_shared<DirectoryStore>(store), options).value();
    ASSERT_TRUE(publisher.publish(views).ok());
    for (std::vector<uint8_t>& bytes : weights) {
      for (uint64_t i = 0; i < kSize; i += 7) bytes[i] = uint8_t(i * 2654435761 >> 13) | 1;
    }
    ASSERT_FALSE(publisher.publish(views)->full);
  }
  const auto pull = [&](const std::vector<LiveTensor>& tensors, uint64_t memory_limit) {
    // Stacks of the hashing threads count too, 8 MiB each, although their pages are never
    // touched.
    return with_little_memory(144 * kMiB, [&]() -> Status {
      TensorReplicaOptions options{.limits = {.threads = 2, .memory_bytes = memory_limit},
                                   .heartbeat = false,
                                   .scratch = folder.path()};
      DW_ASSIGN_OR_RETURN(
          TensorReplica replica,
          TensorReplica::open(std::make_shared<DirectoryStore>(store), tensors, options));
      DW_RETURN_IF_ERROR(replica.pull(0).status());
      DW_ASSIGN_OR_RETURN(const PullReport report, replica.pull(1));
      if (report.repaired) return internal_error(report.repair_reason);
      for (size_t i = 0; i < tensors.size(); ++i) {  // the child's own memory: compared there
        std::vector<uint8_t> row(tensors[i].box.whole() ? kSize / 1024 : kSize / 2048);
        for (uint64_t at = 0; at < tensors[i].bytes.size(); at += row.size()) {
          const uint64_t from = at / row.size() * (kSize / 1024);
          if (std::memcmp(tensors[i].bytes.data() + at, weights[i].data() + from, row.size()) !=
              0) {
            return internal_error("tensor " + tensors[i].name + " differs");
          }
        }
      }
      return {};
    });
  };
  EXPECT_EQ(pull(whole, 48 * kMiB), "");
  EXPECT_EQ(pull(boxes, 48 * kMiB), "");
  EXPECT_TRUE(contains(pull(whole, 2048 * kMiB), "out of memory"));  // so near it is
}

}  // namespace
}  // namespace deltawire::testing
