// Defects of a store, a disk or a folder: each is detected before a byte of the weights changes, is
// named, and is repaired if an anchor can repair it.
#include <grp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "chain/keys.h"
#include "deltawire/replica.h"
#include "replica/local_file.h"
#include "replica/local_state.h"
#include "store/directory_store.h"
#include "store/forwarding_store.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

class ReplicaErrorsTest : public ::testing::Test {
 protected:
  ReplicaErrorsTest() : chain_(std::make_shared<DirectoryStore>(folder_.path() / "store")) {
    tensors_ = {make_tensor("a", DType::kBF16, {50, 20}, 1),
                make_tensor("still", DType::kF32, {300}, 2),
                make_tensor("z", DType::kBF16, {400}, 3)};
  }

  void publish(size_t count, size_t num_files = 1) {
    chain_.publish_full(tensors_, num_files);
    for (size_t i = 0; i < count; ++i) {
      change(&tensors_[0], 0.1, 10 + i);
      change(&tensors_[2], 0.1, 20 + i);
      chain_.publish_delta(tensors_, "auto", num_files);
    }
  }
  void publish_and_pull(size_t count, std::optional<uint64_t> version = {}) {
    publish(count);
    must(pull(version));
  }
  fs::path local() const { return folder_.path() / "local"; }
  fs::path weights() const { return local() / "model.safetensors"; }
  fs::path object(const PartRef& part) const { return folder_.path() / "store" / part.name; }

  static ReplicaOptions options(bool repair = true) {
    return {.limits = {.threads = 2}, .repair = repair, .heartbeat = false};
  }
  Result<PullReport> pull(std::optional<uint64_t> version = {},
                          const ReplicaOptions& how = options()) {
    return pull_from(chain_.store(), version, how);
  }
  Result<PullReport> pull_from(std::shared_ptr<Store> store, std::optional<uint64_t> version = {},
                               const ReplicaOptions& how = options()) {
    auto replica = Replica::open(std::move(store), local(), how);
    if (!replica.ok()) return replica.status();
    return replica->pull(version);
  }
  // Version `version` is still complete after the failure.
  void expect_held(uint64_t version) {
    EXPECT_EQ(read_replica_state(local())->version, version);
    EXPECT_FALSE(read_replica_state(local())->patching_to);
    EXPECT_TRUE(is_identical(weights(), chain_.checkpoint(version) / "model.safetensors"));
  }

  void edit(const std::string& tensor) const { edit_tensor(weights(), tensor); }
  // Simulates silent disk corruption: the file has changed, and its stamp does not show it.
  void hide_edit() const {
    const fs::path file = local() / ".deltawire/state.json";
    LocalState state = **read_local_state(file);
    for (auto& [name, stamp] : state.weights) stamp = *stamp_of(local() / name);
    ASSERT_TRUE(write_local_state(file, state).ok());
  }

  TempFolder folder_;
  TestChain chain_;
  std::vector<TestTensor> tensors_;
};

// ---- the local files

TEST_F(ReplicaErrorsTest, DamagedStateIsRecoveredFromTheFiles) {
  publish(3);
  const fs::path state = local() / ".deltawire/state.json";
  for (const char* damage : {"", "{", "{\"format\": \"replica/1\"}", "garbage"}) {
    fs::remove_all(local());
    ASSERT_TRUE(pull(1).ok());
    const ReplicaState before = *read_replica_state(local());
    std::ofstream(state, std::ios::trunc) << damage;
    EXPECT_FAILS(pull({}, options(false)), kBaseMismatch, "state.json");
    EXPECT_TRUE(is_identical(weights(), chain_.checkpoint(1) / "model.safetensors"));
    // At the same version nothing is fetched, and the state is the same as before.
    const auto same = must(pull(1));
    EXPECT_TRUE(same.repaired);
    EXPECT_TRUE(contains(same.repair_reason, "state.json"));
    EXPECT_EQ(same.bytes, 0);
    expect_held(1);
    EXPECT_EQ(read_replica_state(local())->manifest, before.manifest);
    EXPECT_EQ(read_replica_state(local())->state, before.state);
    // It continues from there with deltas.
    std::ofstream(state, std::ios::trunc) << damage;
    const auto next = must(pull());
    EXPECT_TRUE(next.repaired);
    EXPECT_EQ(next.from, 1);
    EXPECT_EQ(next.num_hops, 2);
    expect_held(3);
    EXPECT_TRUE(fs::exists(local() / "config.json"));
  }
}

TEST_F(ReplicaErrorsTest, DamagedStateAndFilesAreRepairedFromAFullVersion) {
  publish_and_pull(2, 1);
  edit("still");
  std::ofstream(local() / ".deltawire/state.json", std::ios::trunc) << "garbage";
  const auto report = must(pull());
  EXPECT_TRUE(report.repaired);
  EXPECT_EQ(report.num_hops, 3);
  expect_held(2);
}

TEST_F(ReplicaErrorsTest, DamagedCopyOnWriteStateIsRecovered) {
  publish(3);
  ReplicaOptions how = options();
  how.copy_on_write = CopyOnWrite{};
  ASSERT_TRUE(pull(1, how).ok());
  std::ofstream(local() / ".deltawire/state.json", std::ios::trunc) << "garbage";
  EXPECT_FAILS(pull(), kInvalidArgument, "copy-on-write");
  const auto report = must(pull({}, how));
  EXPECT_TRUE(report.repaired);
  EXPECT_EQ(report.num_hops, 2);
  EXPECT_TRUE(is_identical(local() / "current", chain_.checkpoint(3)));
  EXPECT_TRUE(fs::exists(local() / "current/config.json"));
}

TEST_F(ReplicaErrorsTest, EditedTensorIsNamedAndRepaired) {
  publish(1);
  for (const char* tensor : {"a", "still"}) {  // one that the version patches, one that it leaves
    fs::remove_all(local());
    ASSERT_TRUE(pull(0).ok());
    edit(tensor);
    const std::string edited = read_file(weights());
    EXPECT_FAILS(pull({}, options(false)), kBaseMismatch, weights().string(),
                 std::string("\"") + tensor + "\"", "expected");
    EXPECT_EQ(read_file(weights()), edited);
    const auto report = must(pull());
    EXPECT_TRUE(report.repaired);
    EXPECT_TRUE(contains(report.repair_reason, tensor));
    expect_held(1);
  }
}

TEST_F(ReplicaErrorsTest, DetectsAnEditWithoutANewVersion) {
  publish_and_pull(1);
  edit("still");
  EXPECT_FAILS(pull({}, options(false)), kBaseMismatch, "\"still\"");
  EXPECT_TRUE(must(pull()).repaired);
  expect_held(1);
}

TEST_F(ReplicaErrorsTest, AcceptsAFileThatWasOnlyTouched) {
  publish_and_pull(1);
  const std::string bytes = read_file(weights());
  fs::remove(weights());
  std::ofstream(weights(), std::ios::binary) << bytes;
  const auto report = must(pull({}, options(false)));
  EXPECT_FALSE(report.changed);
  const LocalState state = **read_local_state(local() / ".deltawire/state.json");
  EXPECT_EQ(state.weights.at("model.safetensors"), *stamp_of(weights()));
}

TEST_F(ReplicaErrorsTest, VerifyDetectsSilentDamage) {
  publish_and_pull(1);
  edit("still");
  hide_edit();
  EXPECT_FALSE(pull()->changed);
  ReplicaOptions how = options();
  how.verify_all = true;
  const auto report = must(pull({}, how));
  EXPECT_TRUE(report.repaired);
  expect_held(1);
}

// Without verification, a tensor that the next version patches is hashed all the same.
TEST_F(ReplicaErrorsTest, DetectsSilentDamageOfAPatchedTensor) {
  publish_and_pull(1, 0);
  edit("z");
  hide_edit();
  EXPECT_FAILS(pull({}, options(false)), kBaseMismatch, "\"z\"");
  ASSERT_TRUE(pull().ok());
  expect_held(1);
}

TEST_F(ReplicaErrorsTest, MissingTruncatedOrReplacedFileIsRepaired) {
  publish(1);
  const auto missing = [&] { fs::remove(weights()); };
  const auto cut_short = [&] { fs::resize_file(weights(), fs::file_size(weights()) - 10); };
  const auto other = [&] {
    write_checkpoint(weights(), {make_tensor("other", DType::kBF16, {3}, 1)});
  };
  for (const std::function<void()>& damage :
       {std::function<void()>(missing), std::function<void()>(cut_short),
        std::function<void()>(other)}) {
    fs::remove_all(local());
    ASSERT_TRUE(pull(0).ok());
    damage();
    EXPECT_FAILS(pull({}, options(false)), kBaseMismatch, "model.safetensors");
    EXPECT_TRUE(must(pull()).repaired);
    expect_held(1);
  }
}

TEST_F(ReplicaErrorsTest, RefusesAnotherRun) {
  publish_and_pull(1);
  TestChain other(std::make_shared<MemoryStore>("other"));
  other.publish_full(tensors_);
  EXPECT_FAILS(pull_from(other.store()), kBaseMismatch, chain_.chain.run(), other.chain.run());
  expect_held(1);
}

TEST_F(ReplicaErrorsTest, DoesNotOverwriteForeignFiles) {
  publish(0);
  fs::create_directories(local());
  std::ofstream(local() / "model.safetensors") << "precious";
  EXPECT_FAILS(pull(), kInvalidArgument, "model.safetensors", "not a replica");
  EXPECT_EQ(read_file(weights()), "precious");
  EXPECT_FALSE(fs::exists(local() / ".deltawire"));
}

TEST_F(ReplicaErrorsTest, ReportsAnUnreadableState) {
  publish_and_pull(0);
  std::ofstream(local() / ".deltawire/state.json") << "{\"format\":\"replica/1\"}";
  EXPECT_FAILS(read_replica_state(local()), kCorruption, "state.json");
  std::ofstream(local() / ".deltawire/state.json") << "{\"format\":\"replica/9\"}";
  EXPECT_FAILS(pull(), kUnsupported, "replica/9");
  EXPECT_FAILS(read_replica_state(folder_.path()), kNotFound, "not a replica");
}

TEST_F(ReplicaErrorsTest, RepairsAfterAnUnreadableJournal) {
  publish_and_pull(1, 0);
  fs::create_directories(local() / ".deltawire/journal");
  std::ofstream(local() / ".deltawire/journal/record.json") << "{}";
  EXPECT_FAILS(pull({}, options(false)), kBaseMismatch, "record.json");
  EXPECT_TRUE(must(pull()).repaired);
  expect_held(1);
  EXPECT_FALSE(fs::exists(local() / ".deltawire/journal"));
}

TEST_F(ReplicaErrorsTest, LocksOutASecondProcess) {
  publish(0);
  const Replica first = must(Replica::open(chain_.store(), local(), options()));
  const auto second = Replica::open(chain_.store(), local(), options());
  EXPECT_FAILS(second, kConflict, local().string(), process_name());
}

TEST_F(ReplicaErrorsTest, RefusesAModeChangeBetweenInPlaceAndCopyOnWrite) {
  publish_and_pull(0);
  ReplicaOptions how = options();
  how.copy_on_write = CopyOnWrite{};
  EXPECT_FAILS(pull({}, how), kInvalidArgument, "in place");
}

// ---- the chain

TEST_F(ReplicaErrorsTest, ReportsMissingVersions) {
  EXPECT_FAILS(pull(), kNotFound, "nothing was published");
  publish(1);
  EXPECT_FAILS(pull(7), kNotFound, "no version 7");
  TempFolder empty;
  EXPECT_FAILS(pull_from(std::make_shared<DirectoryStore>(empty.path())), kNotFound, "no run");
}

TEST_F(ReplicaErrorsTest, CatchesUpAPrunedChainFromAnAnchor) {
  publish_and_pull(4, 1);
  for (const uint64_t version : {0, 1, 2}) {
    ASSERT_TRUE(chain_.store()->remove(manifest_name(version)).ok());
  }
  EXPECT_FAILS(pull(), kNotFound);
  expect_held(1);
  chain_.add_anchor(3);
  EXPECT_FALSE(must(pull()).repaired);
  expect_held(4);
}

TEST_F(ReplicaErrorsTest, DoesNotContinueARewrittenHistory) {
  publish_and_pull(2, 1);
  const fs::path file = local() / ".deltawire/state.json";
  LocalState state = **read_local_state(file);
  state.replica.manifest = std::string(64, 'a');
  ASSERT_TRUE(write_local_state(file, state).ok());
  EXPECT_FAILS(pull(), kCorruption, "manifest", "another history");
  EXPECT_FAILS(pull(2, options(false)), kBaseMismatch, "manifest");
  EXPECT_TRUE(must(pull(2)).repaired);
  expect_held(2);
}

TEST_F(ReplicaErrorsTest, DetectsTruncatedFlippedOrMissingParts) {
  publish_and_pull(1, 0);
  const PartRef& part = chain_.records[1].manifest.parts[0];
  const std::string good = read_file(object(part));
  fs::resize_file(object(part), good.size() - 1);
  EXPECT_FAILS(pull(), kCorruption, part.name);
  expect_held(0);
  std::ofstream(object(part), std::ios::binary) << good;
  flip_bit(object(part), good.size() / 2);
  EXPECT_FAILS(pull(), kCorruption, part.name, "sha-256");
  expect_held(0);
  fs::remove(object(part));
  EXPECT_FAILS(pull(), kNotFound, part.name);
  expect_held(0);
  std::ofstream(object(part), std::ios::binary) << good;
  ASSERT_TRUE(pull().ok());
  expect_held(1);
}

// If another path leads to the version, it is used; the bad part is still reported.
TEST_F(ReplicaErrorsTest, MergedDeltaOrAnchorReplacesBadParts) {
  publish(3);
  chain_.add_merged(1, 3);
  const PartRef part = chain_.records[3].manifest.parts[0];
  for (const bool missing : {false, true}) {
    if (missing) {
      fs::remove(object(part));
    } else {
      flip_bit(object(part), part.size_bytes / 2);
    }
    fs::remove_all(local());
    // From version 1 the merged delta is the cheapest path; from version 2 only an anchor helps.
    ASSERT_TRUE(pull(2).ok());
    const Code code = missing ? Code::kNotFound : Code::kCorruption;
    EXPECT_TRUE(is_failure(pull({}, options(false)), code, part.name));
    expect_held(2);
    const auto report = must(pull());
    EXPECT_TRUE(report.repaired);
    EXPECT_TRUE(contains(report.repair_reason, part.name));
    expect_held(3);
    EXPECT_EQ(report.num_hops, 3U);  // the seed, version 1, the merged delta
  }
  // With a bad merged delta, too, nothing leads to version 3, and the first bad part is reported.
  const auto hops = list_hops(chain_.chain, 0, 3, 4);
  const PartRef merged = read_hop(chain_.chain, hops->at(0))->parts[0];
  flip_bit(object(merged), merged.size_bytes / 2);
  fs::remove_all(local());
  ASSERT_TRUE(pull(2).ok());
  EXPECT_FAILS(pull(), kNotFound, part.name);
  expect_held(2);
  chain_.add_anchor(3);
  ASSERT_TRUE(pull().ok());
  expect_held(3);
}

// A store whose first answer is wrong, like after a bit flip on the network.
class FlakyStore final : public ForwardingStore {
 public:
  FlakyStore(std::shared_ptr<Store> inner, std::string victim)
      : ForwardingStore(std::move(inner)), victim_(std::move(victim)) {}
  int downloads = 0;

  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override {
    if (name != victim_) return inner().download(name, size_bytes, sink);
    std::vector<uint8_t> bytes(size_bytes);
    DW_RETURN_IF_ERROR(inner().read(name, 0, bytes));
    if (++downloads == 1) bytes[size_bytes / 2] ^= 4;
    // Pieces out of order, one of them twice.
    const size_t half = size_bytes / 2;
    const std::span<const uint8_t> all(bytes);
    DW_RETURN_IF_ERROR(sink->write(half, all.subspan(half)));
    DW_RETURN_IF_ERROR(sink->write(0, all.first(half)));
    if (downloads == 2) return sink->write(10, all.subspan(10, 20));
    return {};
  }

 private:
  const std::string victim_;
};

TEST_F(ReplicaErrorsTest, FetchesABadPartOnceMore) {
  publish_and_pull(1, 0);
  const auto store =
      std::make_shared<FlakyStore>(chain_.store(), chain_.records[1].manifest.parts[0].name);
  must(pull_from(store));
  EXPECT_EQ(store->downloads, 2);
  expect_held(1);
}

// A hostile publisher: false claims about what its parts lead to, its name, or sizes.
TEST_F(ReplicaErrorsTest, RefusesInconsistentManifests) {
  struct Lie {
    std::function<void(Manifest*)> tell;
    std::vector<const char*> phrases;
  };
  const auto other_digest = [](Manifest* m) {
    m->digests[0].bytes[3] ^= 1;
    Schema schema{
        {{"a", DType::kBF16, {50, 20}}, {"still", DType::kF32, {300}}, {"z", DType::kBF16, {400}}}};
    m->state = state_digest(states_of(schema, *m).value());
  };
  const auto huge_part = [](Manifest* m) {
    m->chain_bytes += (uint64_t{1} << 40) - m->parts[0].size_bytes;
    m->parts[0].size_bytes = uint64_t{1} << 40;
  };
  const Lie lies[] = {
      {other_digest, {"parts/0000000002-", "\"a\"", "expected"}},
      {[](Manifest* m) { m->state.bytes[0] ^= 1; }, {"version 2", "state digest"}},
      {huge_part, {"version 2", "at most"}},
  };
  publish_and_pull(1);
  for (const Lie& lie : lies) {
    chain_.tamper = lie.tell;
    change(&tensors_[0], 0.1, 77);
    chain_.publish_delta(tensors_);
    const auto report = pull();
    for (const char* phrase : lie.phrases) EXPECT_FAILS(report, kCorruption, phrase);
    expect_held(1);
    chain_.lose_after(1);
  }
}

TEST_F(ReplicaErrorsTest, RefusesNamesThatLeaveTheFolder) {
  const auto expect_refused = [&](std::function<void(Manifest*)> tamper, const std::string& named) {
    TestChain chain(std::make_shared<MemoryStore>("hostile"));
    chain.tamper = std::move(tamper);
    chain.publish_full(tensors_);
    EXPECT_FAILS(pull_from(chain.store()), kCorruption, named) << named;
    fs::remove_all(local());
  };
  for (const std::string name : {"sub/config.json", "v0000000001", "current"}) {
    const auto add_part = [&](Manifest* m) {
      m->parts.push_back(m->parts.front());
      m->parts.back().name = "full/0000000000-abc/" + name;
      m->chain_bytes *= 2;
    };
    expect_refused(add_part, name);
  }
  for (const std::string name :
       {"../config.json", "v0000000001", "current", ".deltawire", "a/b", "model.safetensors"}) {
    expect_refused([&](Manifest* m) { m->files[0].name = name; }, name);
  }
  for (const std::string attempt : {"../../etc", "0000000001-ab", "0000000000-ab/c", "", "x"}) {
    expect_refused([&](Manifest* m) { m->files[0].attempt = attempt; }, "config.json");
  }
}

TEST_F(ReplicaErrorsTest, RefusesUnsignedRecordsWithATrustedKey) {
  publish(0);
  const fs::path key = folder_.path() / "key";
  ASSERT_TRUE(make_key_files(key).ok());
  ReplicaOptions how = options();
  how.accept.trust = key.string() + ".pub";
  EXPECT_FAILS(pull({}, how), kCorruption, "sign");
}

// ---- the disk

// Runs `body` in a process of its own and adopts its failures.
void in_child(const std::function<void()>& body) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

// A disk that fills up: files may not exceed a limit that the checkpoint has reached.
TEST_F(ReplicaErrorsTest, FullDiskLeavesTheCheckpointUnchanged) {
  tensors_[0] = make_tensor("a", DType::kBF16, {5000, 20}, 1);
  publish_and_pull(1, 0);
  in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{8000, 8000};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
    EXPECT_FAILS(pull(), kIo, local().string());
  });
  expect_held(0);
  EXPECT_FALSE(fs::exists(local() / ".deltawire/work"));
  ASSERT_TRUE(pull().ok());
  expect_held(1);
}

TEST_F(ReplicaErrorsTest, ReportsAReadOnlyDisk) {
  publish_and_pull(1, 0);
  ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
  const auto as_stranger = [&](const fs::path& where) {
    in_child([&] {
      // Root can write to every disk.
      if (::geteuid() == 0) {
        ASSERT_EQ(::setgroups(0, nullptr), 0);
        ASSERT_EQ(::setgid(65534), 0);
        ASSERT_EQ(::setuid(65534), 0);
      }
      auto replica = Replica::open(chain_.store(), where, options());
      EXPECT_FAILS(replica, kIo, where.string());
    });
  };
  if (::geteuid() != 0) {
    fs::permissions(local() / ".deltawire/lock", fs::perms::owner_read);
    fs::permissions(folder_.path(), fs::perms::owner_read | fs::perms::owner_exec);
  }
  as_stranger(local());
  as_stranger(folder_.path() / "new");
  expect_held(0);
}

// ---- Local files that another process truncates while a replica uses them: repaired or an error,
// never a fatal signal and never recorded as a version.

// Calls `act` once, before a part is read.
class ActingStore final : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  Status download(std::string_view name, uint64_t size, Sink* sink) override {
    if (name.starts_with("parts/")) {
      const std::lock_guard lock(mutex_);
      if (auto act = std::exchange(act_, nullptr)) act();
    }
    return inner().download(name, size, sink);
  }
  std::function<void()> act_;

 private:
  std::mutex mutex_;
};

class ReplicaCutFilesTest : public ::testing::Test {
 protected:
  ReplicaCutFilesTest() : chain_(store_) {
    tensors_ = {make_tensor("a", DType::kBF16, {500, 64}, 1),
                make_tensor("z", DType::kBF16, {500, 64}, 3)};
    chain_.publish_full(tensors_);
    for (TestTensor& tensor : tensors_) change(&tensor, 0.1, 10);
    chain_.publish_delta(tensors_);
  }
  fs::path local() const { return folder_.path() / "local"; }
  fs::path weights() const { return local() / "model.safetensors"; }
  Result<Replica> open() {
    return Replica::open(store_, local(), {.limits = {.threads = 2}, .heartbeat = false});
  }
  void cut() { fs::resize_file(weights(), 2000); }
  // In either case the next pull repairs it.
  void expect_mended() {
    auto replica = must(open());
    must(replica.pull());
    EXPECT_EQ(read_replica_state(local())->version, 1);
    EXPECT_TRUE(is_identical(weights(), chain_.checkpoint(1) / "model.safetensors"));
  }

  TempFolder folder_;
  std::shared_ptr<ActingStore> store_ =
      std::make_shared<ActingStore>(std::make_shared<MemoryStore>());
  TestChain chain_;
  std::vector<TestTensor> tensors_;
};

TEST_F(ReplicaCutFilesTest, DuringFetch) {
  {
    auto replica = open();
    ASSERT_TRUE(replica.ok() && replica->pull(0).ok());
    store_->act_ = [&] { cut(); };
    EXPECT_TRUE(!replica->pull().ok() || is_identical(weights(), chain_.checkpoint(1)));
  }
  expect_mended();
}

TEST_F(ReplicaCutFilesTest, BetweenPrepareAndCommit) {
  {
    auto replica = open();
    ASSERT_TRUE(replica.ok() && replica->pull(0).ok());
    ASSERT_TRUE(replica->prepare().ok());
    cut();
    EXPECT_TRUE(!replica->commit().ok() || is_identical(weights(), chain_.checkpoint(1)));
  }
  expect_mended();
}

TEST_F(ReplicaCutFilesTest, DuringPatch) {
  auto replica = open();
  ASSERT_TRUE(replica.ok() && replica->pull(0).ok());
  auto file = must(PatchedFile::open(weights()));
  EXPECT_TRUE(file.check_whole().ok());
  cut();
  file.bytes()[file.bytes().size() - 1] = 7;
  EXPECT_FAILS(file.sync(), kIo, weights().string(), "was truncated");
}

}  // namespace
}  // namespace deltawire::testing
