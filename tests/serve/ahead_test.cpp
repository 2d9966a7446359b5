// Parts that are fetched and decoded before their version is committed stay invisible, and wrong
// bytes are never used.
#include <condition_variable>
#include <thread>

#include "chain/names.h"
#include "deltawire/publisher.h"
#include "serve/chain_server.h"
#include "serve/relay_store.h"
#include "store/memory_store.h"
#include "store/push_source.h"
#include "support/live_model.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

// Delays or refuses manifests: all parts of a version are put, but it is not committed.
class GatedStore final : public ForwardingStore {
 public:
  GatedStore() : ForwardingStore(std::make_shared<MemoryStore>("gated")) {}

  Status put_if_absent(std::string_view name, const Body& body) override {
    if (version_of_manifest(name)) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return open_; });
      if (refuse_) return unavailable("the commit is refused");
    }
    return ForwardingStore::put_if_absent(name, body);
  }
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    if (name.starts_with(kPartPrefix)) ++part_reads;
    DW_RETURN_IF_ERROR(ForwardingStore::read(name, offset, out));
    if (damages && name.starts_with(kPartPrefix)) out[out.size() / 2] ^= 1;
    return {};
  }
  void set(bool open, bool refuse = false) {
    const std::lock_guard lock(mutex_);
    open_ = open;
    refuse_ = refuse;
    changed_.notify_all();
  }
  std::atomic<bool> damages = false;
  std::atomic<int> part_reads = 0;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = true, refuse_ = false;
};

// The parameter: whether a relay is in between.
class AheadTest : public ::testing::TestWithParam<bool> {
 protected:
  AheadTest() {
    EXPECT_TRUE(publish());
    store = must(open_store(server->url(), {}));
    if (!GetParam()) return;
    relayed = make_relay(store, {folder.path()});
    relay = must(ChainServer::start(relayed, {}));
    store = must(open_store(relay->url(), {}));
  }
  ~AheadTest() override {
    gate->set(true);
    if (publishing.joinable()) publishing.join();
  }

  bool publish() { return publisher.publish(model.views()).ok(); }

  // Publishes a step up to its commit and decodes it; `publishing` continues in the background.
  void put_ahead(TensorReplica* replica, bool is_whole = true) {
    gate->set(false);
    model.step();
    publishing = std::thread([this] { published = publish(); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(40);
    const auto done = [&] { return is_whole ? ahead != 0 : gate->part_reads != 0; };
    while (!done() && std::chrono::steady_clock::now() < end) {
      ahead = replica->prepare_ahead();
      (void)push_source_of(*store)->wait_for_news(UINT64_MAX, 0.05);
    }
    ASSERT_TRUE(done());
  }
  void let_commit(bool refuse = false) {
    gate->set(true, refuse);
    publishing.join();
    gate->set(true);
    EXPECT_EQ(published, !refuse);
  }
  TensorReplica open(Memory* memory) {
    TensorReplica replica =
        must(TensorReplica::open(store, memory->tensors, {.limits = {.threads = 2}}));
    EXPECT_TRUE(replica.pull().ok());
    return replica;
  }

  const TempFolder folder;
  const std::shared_ptr<GatedStore> gate = std::make_shared<GatedStore>();
  Model model = Model::make(40);
  Publisher publisher = must(Publisher::open(gate, {.limits = {.threads = 2}}));
  const std::unique_ptr<ChainServer> server = must(ChainServer::start(gate, {}));
  std::shared_ptr<Store> relayed, store;
  std::unique_ptr<ChainServer> relay;
  std::thread publishing;
  bool published = false;
  uint64_t ahead = 0;
};

INSTANTIATE_TEST_SUITE_P(Http, AheadTest, ::testing::Bool());

TEST_P(AheadTest, DecodesBeforeTheCommitAndWritesAfterIt) {
  Memory memory(model);
  TensorReplica replica = open(&memory);
  const Model before = model;
  put_ahead(&replica);
  EXPECT_FALSE(must(replica.pull()).changed);  // there is nothing to be seen
  EXPECT_TRUE(memory.is(before));
  const int reads = gate->part_reads;
  let_commit();
  const PullReport report = must(replica.pull());
  EXPECT_EQ(report.version, 1U);
  EXPECT_EQ(report.num_ahead, ahead);
  EXPECT_FALSE(report.repaired);
  EXPECT_TRUE(memory.is(model));
  EXPECT_EQ(gate->part_reads, reads) << "fetched twice";
  EXPECT_EQ(replica.prepare_ahead(), 0U);
}

TEST_P(AheadTest, DropsAVersionThatIsNeverCommitted) {
  Memory memory(model);
  TensorReplica replica = open(&memory);
  const Model before = model;
  put_ahead(&replica);
  let_commit(true);
  EXPECT_FALSE(must(replica.pull()).changed);
  EXPECT_TRUE(memory.is(before));
  model.step();  // the same number, other weights
  ASSERT_TRUE(publish());
  const PullReport report = must(replica.pull());
  EXPECT_EQ(report.version, 1U);
  EXPECT_FALSE(report.repaired) << report.repair_reason;
  EXPECT_TRUE(memory.is(model));
}

TEST_P(AheadTest, DetectsConcurrentWritesToTensors) {
  Memory memory(model);
  TensorReplica replica = open(&memory);
  put_ahead(&replica);
  for (LiveTensor& tensor : memory.tensors) tensor.bytes[tensor.bytes.size() / 2] ^= 1;
  let_commit();
  EXPECT_TRUE(must(replica.pull()).repaired);
  EXPECT_TRUE(memory.is(model));
}

TEST_P(AheadTest, FetchesDamagedPartsAgain) {
  Memory memory(model);
  TensorReplica replica = open(&memory);
  gate->damages = true;
  put_ahead(&replica, false);
  gate->damages = false;
  let_commit();
  const auto pull_at_last = [&](TensorReplica* one, const Memory& own) {
    Result<PullReport> report = one->pull();
    for (int i = 0; i < 5 && !report.ok(); ++i) report = one->pull();
    EXPECT_EQ(must(report).version, 1U);
    EXPECT_TRUE(own.is(model));
  };
  if (GetParam()) {  // a relay is a replica, too, and finds it first
    Memory own(model);
    TensorReplica first =
        must(TensorReplica::open(relayed, own.tensors, {.limits = {.threads = 2}}));
    pull_at_last(&first, own);
  }
  pull_at_last(&replica, memory);
}

}  // namespace
}  // namespace deltawire::testing
