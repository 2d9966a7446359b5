// A chain whose parts stay with the ranks that made them, read through rank 0's server.
#include "serve/rank_store.h"

#include <gtest/gtest.h>

#include "chain/names.h"
#include "http/http_server.h"
#include "serve/chain_server.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

class RankStoreTest : public ::testing::Test {
 protected:
  RankStoreTest() {
    for (unsigned rank = 0; rank < 3; ++rank) {
      own_.push_back(std::make_shared<MemoryStore>("rank " + std::to_string(rank)));
    }
    urls_.resize(3);
    for (unsigned rank = 3; rank-- > 0;) {
      ServeOptions options{.token = Secret("of this test")};
      if (rank == 0)
        options.holder = [urls = urls_](auto name) { return url_of_holder(urls, name); };
      servers_.push_back(must(ChainServer::start(own_[rank], options)));
      urls_[rank] = servers_.back()->url();
    }
    for (unsigned rank = 0; rank < 3; ++rank) {
      stores_.push_back(must(open_rank_store(rank, own_[rank], urls_, known())));
    }
    reader_ = must(open_store(urls_[0], known()));
  }

  static StoreOptions known() { return {.token = "of this test", .retries = 0}; }
  static std::string part(uint64_t version, unsigned rank) {
    return part_folder(version, "aa", rank) + "part-00000.safetensors";
  }
  void put(unsigned rank, const std::string& name) {
    must(stores_[rank]->put(name, MemoryBody(name)));
  }

  std::vector<std::shared_ptr<MemoryStore>> own_;
  std::vector<std::unique_ptr<ChainServer>> servers_;  // of ranks 2, 1, 0
  std::vector<std::string> urls_;
  std::vector<std::shared_ptr<Store>> stores_;
  std::shared_ptr<Store> reader_;
};

TEST(RankNames, NameTheRankThatHoldsAnObject) {
  EXPECT_EQ(rank_of_object("parts/0000000012-9f3c-rank-3/part-00000.safetensors"), 3U);
  EXPECT_EQ(rank_of_object("pending/0000000012-9f3c/rank-12.boxes"), 12U);
  for (const char* name :
       {"parts/0000000012-9f3c/part-00000.safetensors", "manifests/0000000012.json",
        "parts/0000000012-9f3c-rank-/x", "parts/0000000012-9f3c/rank-3/x",
        "files/0000000012-9f3c/rank-3.boxes", "pending/0000000012-9f3c/x"}) {
    EXPECT_EQ(rank_of_object(name), std::nullopt) << name;
  }
}

TEST_F(RankStoreTest, PartsStayWithTheirRanks) {
  for (unsigned rank = 0; rank < 3; ++rank) put(rank, part(7, rank));
  for (unsigned rank = 0; rank < 3; ++rank) {
    const std::string name = part(7, rank);
    for (unsigned holder = 0; holder < 3; ++holder) {
      EXPECT_EQ(own_[holder]->stat(name).ok(), holder == rank) << name;
      EXPECT_EQ(must(stores_[holder]->get(name, 1000)), name);
    }
    EXPECT_EQ(must(reader_->get(name, 1000)), name);
    std::vector<uint8_t> some(5);
    for (int i = 0; i < 2; ++i) must(reader_->read(name, 3, some));  // then rank 0 is not asked
    EXPECT_EQ(std::string(some.begin(), some.end()), name.substr(3, 5));
    EXPECT_EQ(must(reader_->stat(name)).size_bytes, name.size());
  }
  EXPECT_FAILS(stores_[1]->put(part(7, 2), MemoryBody("x")), kInvalidArgument,
               "belongs to another rank");
  EXPECT_FAILS(reader_->get(part(8, 2), 1000), kNotFound, "no such object");
  EXPECT_TRUE(must(stores_[1]->capabilities()).put_if_absent) << "what a publisher asks for";
  must(stores_[0]->put_if_absent(manifest_name(7), MemoryBody("{}")));
  EXPECT_EQ(must(stores_[2]->get(manifest_name(7), 10)), "{}");
  const std::string boxes = "pending/0000000008-bb/rank-2.boxes";
  put(2, boxes);
  EXPECT_EQ(must(stores_[0]->get(boxes, 100)), boxes);
  EXPECT_TRUE(own_[2]->stat(part(7, 2)).ok());
}

TEST_F(RankStoreTest, ObjectsRemovedFromTheChainAreDropped) {
  for (const uint64_t version : {1, 2}) {
    put(1, part(version, 1));
    must(stores_[0]->put_if_absent(manifest_name(version), MemoryBody("{}")));
  }
  put(1, part_folder(3, "bb", 1) + "part-00000.safetensors");  // never committed
  must(stores_[0]->remove(manifest_name(1)));
  must(stores_[0]->remove(part(1, 1)));  // as gc does
  EXPECT_TRUE(own_[1]->stat(part(1, 1)).ok());
  put(1, part(3, 1));
  put(1, part_folder(3, "aa", 1) + "part-00001.safetensors");
  EXPECT_EQ(must(own_[1]->list("", "", 10)).size(), 3U);
  EXPECT_TRUE(own_[1]->stat(part(2, 1)).ok());
}

TEST_F(RankStoreTest, ReportsAMissingRank) {
  put(2, part(1, 2));
  EXPECT_EQ(must(reader_->get(part(1, 2), 1000)), part(1, 2));
  servers_[0].reset();
  EXPECT_FAILS(reader_->get(part(1, 2), 1000), kUnavailable, "-rank-2/");
  EXPECT_FAILS(reader_->get(part(1, 2), 1000), kUnavailable, "sent on to " + urls_[2]);
  EXPECT_FAILS(stores_[0]->get(part(1, 2), 1000), kUnavailable, "-rank-2/");
  put(1, part(1, 1));
  EXPECT_EQ(must(reader_->get(part(1, 1), 1000)), part(1, 1)) << "the others are there";
}

TEST(SentOn, RejectsRedirectsToOtherObjects) {
  std::string location;
  const auto server = must(HttpServer::start("127.0.0.1", 0, {}, [&](const HttpCall&) {
    HttpReply reply{.status = 307};
    reply.headers.emplace_back("Location", location);
    return reply;
  }));
  const std::string here = "http://127.0.0.1:" + std::to_string(server->port());
  const auto store = must(open_store(here, {.retries = 0}));
  for (const char* to : {"", "http://127.0.0.1:1/other", "file:///objects/HEAD", "/objects/HEAD",
                         "https://127.0.0.1:1/objects/HEAD"}) {
    location = to;
    EXPECT_FAILS(store->get("HEAD", 10), kIo, "expected the same object") << to;
  }
  location = here + "/objects/HEAD";  // in a ring
  EXPECT_FAILS(store->get("HEAD", 10), kIo, "307");
}

}  // namespace
}  // namespace deltawire::testing
