// A replica's relay: each object is fetched once, for any number of readers and failures.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "deltawire/replica.h"
#include "replica/follow_watch.h"
#include "serve/chain_server.h"
#include "serve/relay_store.h"
#include "store/directory_store.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

// Counts the fetched bytes, and can be slow or unavailable.
class Upstream final : public ForwardingStore {
 public:
  Upstream() : ForwardingStore(std::make_shared<MemoryStore>("upstream")) {}
  Result<ObjectInfo> stat(std::string_view name) override {
    ++stats;
    return is_away ? unavailable("away") : inner().stat(name);
  }
  Status download(std::string_view name, uint64_t size, Sink* sink) override {
    std::vector<uint8_t> bytes(size);
    DW_RETURN_IF_ERROR(inner().read(name, 0, bytes));
    for (uint64_t at = 0; at < size; at += 1000) {  // the second half first, some of it twice
      const uint64_t begin = (at + size / 2) % size, end = std::min(size, begin + 1500);
      if (is_away) return unavailable("away");
      if (at >= size / 2) std::this_thread::sleep_for(pause);
      // Count before the last bytes: a reader of the whole object may check right after them.
      if (at + 1000 >= size) fetched += size;
      DW_RETURN_IF_ERROR(sink->write(begin, Bytes(bytes).subspan(begin, end - begin)));
    }
    return {};
  }
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    read_directly += out.size();
    return inner().read(name, offset, out);
  }
  std::atomic<bool> is_away = false;
  std::chrono::microseconds pause{0};
  std::atomic<uint64_t> stats = 0, fetched = 0, read_directly = 0;
};

class RelayTest : public ::testing::Test {
 protected:
  std::vector<uint8_t> put(const std::string& name, size_t size) {
    std::vector<uint8_t> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = uint8_t((i + name.size()) * 2654435761U >> 13);
    EXPECT_TRUE(upstream_->inner().put(name, MemoryBody(bytes)).ok());
    return bytes;
  }
  bool reads(Store& store, const std::string& name, const std::vector<uint8_t>& bytes,
             size_t begin = 0, size_t size = SIZE_MAX) {
    size = std::min(size, bytes.size() - begin);
    std::vector<uint8_t> read(size);
    return store.read(name, begin, read).ok() &&
           std::equal(read.begin(), read.end(), bytes.begin() + ptrdiff_t(begin));
  }
  std::shared_ptr<RelayStore> relay(uint64_t max_bytes = 1 << 30) {
    return std::make_shared<RelayStore>(upstream_, RelayOptions{folder_.path() / "r", max_bytes});
  }
  const TempFolder folder_;
  const std::shared_ptr<Upstream> upstream_ = std::make_shared<Upstream>();
};

TEST_F(RelayTest, FetchesOnceForManyReadersAndServesRangesEarly) {
  const std::vector<uint8_t> bytes = put("parts/0000000001-a/p", 300'000);
  upstream_->pause = std::chrono::milliseconds(2);
  const auto store = relay();
  EXPECT_TRUE(reads(*store, "parts/0000000001-a/p", bytes, 200'000, 1000));
  EXPECT_EQ(upstream_->fetched, 0U) << "waited for all of it";
  std::vector<std::thread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&, i] {
      EXPECT_TRUE(reads(*store, "parts/0000000001-a/p", bytes, size_t(i) * 30'000, 60'000));
      EXPECT_TRUE(reads(*store, "parts/0000000001-a/p", bytes));
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(upstream_->fetched, bytes.size());
  EXPECT_EQ(upstream_->read_directly, 0U);
  EXPECT_EQ(upstream_->stats, 1U);
  std::vector<uint8_t> over(10);
  EXPECT_TRUE(is_failure(store->read("parts/0000000001-a/p", 299'995, over), Code::kCorruption));
  EXPECT_TRUE(is_failure(store->read("parts/none", 0, over), Code::kNotFound));
  EXPECT_TRUE(is_failure(store->get("parts/0000000001-a/p", 10), Code::kCorruption));
  EXPECT_TRUE(fs::is_empty(folder_.path() / "r")) << "files have no names";
}

TEST_F(RelayTest, ForwardsMutableObjects) {
  const auto store = relay();
  for (const char* const text : {"1", "2"}) {
    ASSERT_TRUE(upstream_->put("HEAD", MemoryBody(text)).ok());
    EXPECT_EQ(must(store->get("HEAD", 10)), text);
  }
  ASSERT_TRUE(store->put("replicas/a.json", MemoryBody("{}")).ok());
  EXPECT_EQ(must(upstream_->get("replicas/a.json", 10)), "{}");
  EXPECT_EQ(make_relay(std::make_shared<DirectoryStore>(folder_.path()), {})->local_folder(),
            folder_.path().string());
}

TEST_F(RelayTest, RetriesFailuresAndWorksWithoutADisk) {
  const std::vector<uint8_t> bytes = put("parts/0000000001-a/p", 50'000);
  const auto store = relay();
  ASSERT_TRUE(store->stat("parts/0000000001-a/p").ok());
  upstream_->is_away = true;
  std::vector<uint8_t> some(10);
  EXPECT_TRUE(is_failure(store->read("parts/0000000001-a/p", 0, some), Code::kUnavailable));
  upstream_->is_away = false;
  EXPECT_TRUE(reads(*store, "parts/0000000001-a/p", bytes));
  upstream_->is_away = true;  // it is at hand
  EXPECT_TRUE(reads(*store, "parts/0000000001-a/p", bytes));
  upstream_->is_away = false;
  EXPECT_TRUE(write_text_file(folder_.path() / "file", "x").ok());
  RelayStore broken(upstream_, {.folder = folder_.path() / "file"});
  EXPECT_TRUE(reads(broken, "parts/0000000001-a/p", bytes));
  EXPECT_EQ(upstream_->read_directly, bytes.size());
}

TEST_F(RelayTest, FetchesDamagedObjectsAgain) {
  const std::string name = "parts/0000000001-a/p";
  std::vector<uint8_t> wrong = put(name, 50'000), right = wrong;
  wrong[25'000] ^= 1;
  ASSERT_TRUE(upstream_->inner().put(name, MemoryBody(wrong)).ok());
  const auto store = relay();
  std::vector<uint8_t> got(right.size());
  SpanSink sink(got);
  ASSERT_TRUE(store->download(name, got.size(), &sink).ok());
  ASSERT_TRUE(upstream_->inner().put(name, MemoryBody(right)).ok());  // as from another path
  EXPECT_TRUE(reads(*store, name, wrong));
  ASSERT_TRUE(store->download(name, got.size(), &sink).ok());
  EXPECT_EQ(got, right);
  EXPECT_TRUE(reads(*store, name, right));
}

TEST_F(RelayTest, EvictsLeastRecentlyReadObjects) {
  const auto store = relay(100'000);
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.push_back("parts/000000000" + std::to_string(i) + "-a/p");
  for (const std::string& name : names) EXPECT_TRUE(reads(*store, name, put(name, 40'000)));
  EXPECT_EQ(upstream_->fetched, 5 * 40'000U);
  EXPECT_TRUE(reads(*store, names[4], put(names[4], 40'000)));
  EXPECT_TRUE(reads(*store, names[3], put(names[3], 40'000)));
  EXPECT_EQ(upstream_->fetched, 5 * 40'000U);
  EXPECT_TRUE(reads(*store, names[0], put(names[0], 40'000)));  // in the place of the fourth
  EXPECT_TRUE(reads(*store, names[3], put(names[3], 40'000)));
  EXPECT_EQ(upstream_->fetched, 6 * 40'000U);
  EXPECT_TRUE(reads(*store, "parts/large", put("parts/large", 200'000)));
  EXPECT_EQ(upstream_->read_directly, 200'000U);
}

TEST(Relay, ServesEightReplicasWithOneDownloadPerPart) {
  const TempFolder folder;
  TestChain chain(std::make_shared<MemoryStore>("relayed"));
  std::vector<TestTensor> tensors = {make_tensor("a", DType::kBF16, {300, 400}, 1)};
  chain.publish_full(tensors);
  class Counting final : public ForwardingStore {
   public:
    using ForwardingStore::ForwardingStore;
    Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
      sent += out.size();
      return inner().read(name, offset, out);
    }
    std::atomic<uint64_t> sent = 0;
  };
  const auto origin = std::make_shared<Counting>(chain.store());
  const auto server = must(ChainServer::start(origin, {}));
  const auto fetched = make_relay(must(open_store(server->url(), {})), {folder.path() / "relay"});
  const auto relay = must(ChainServer::start(fetched, {}));
  std::vector<Replica> replicas;
  const auto add = [&](const std::shared_ptr<Store>& store) {
    const std::string name = "r" + std::to_string(replicas.size());
    replicas.push_back(must(Replica::open(store, folder.path() / name, {.name = name})));
  };
  add(fetched);  // the relay's own
  for (int i = 0; i < 8; ++i) add(must(open_store(relay->url(), {})));
  const auto last = must(open_store(relay->url(), {}));
  FollowWatch watch(*last);
  const auto never = [] { return false; };
  while (watch.wait(0.5, never)) {
  }
  change(&tensors[0], 0.1, 7);
  chain.publish_delta(tensors);
  EXPECT_TRUE(watch.wait(20, never));
  std::vector<std::thread> threads;
  for (Replica& replica : replicas) {
    threads.emplace_back([&] { EXPECT_EQ(must(replica.pull()).version, 1U); });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t immutable_bytes = 0;
  for (const char* const prefix : {"parts/", "full/", "schemas/", "files/"}) {
    for (const ObjectInfo& one : must(chain.store()->list(prefix, "", 1000))) {
      immutable_bytes += one.size_bytes;
    }
  }
  EXPECT_LE(origin->sent, immutable_bytes);
  const HoldersReport report = must(chain.chain.wait_until_held({.replicas = 9}));
  EXPECT_TRUE(report.complete) << report.num_holding;
}

}  // namespace
}  // namespace deltawire::testing
