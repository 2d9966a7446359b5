// A chain over HTTP: the server, and the store that reads it.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <deque>
#include <thread>

#include "base/endpoint.h"
#include "deltawire/replica.h"
#include "http/http_client.h"
#include "replica/follow_watch.h"
#include "serve/chain_server.h"
#include "store/directory_store.h"
#include "store/http_store.h"
#include "store/memory_store.h"
#include "support/test_chain.h"

namespace deltawire::testing {
namespace {

std::unique_ptr<ChainServer> serve(std::shared_ptr<Store> store, ServeOptions options = {}) {
  return must(ChainServer::start(std::move(store), std::move(options)));
}
std::shared_ptr<Store> open(const std::string& url, StoreOptions options = {}) {
  options.retries = 0;
  return must(open_store(url, options));
}

std::vector<uint8_t> pattern(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = uint8_t(i * 2654435761U >> 13);
  return bytes;
}

class BytesSink final : public Sink {
 public:
  explicit BytesSink(size_t size) : bytes(size) {}
  Status write(uint64_t offset, std::span<const uint8_t> piece) override {
    std::copy(piece.begin(), piece.end(), bytes.begin() + ptrdiff_t(offset));
    return {};
  }
  std::vector<uint8_t> bytes;
};

class ServeTest : public ::testing::Test {
 protected:
  const std::shared_ptr<MemoryStore> origin_ = std::make_shared<MemoryStore>("serve");
  const std::unique_ptr<ChainServer> server_ = serve(origin_);
  const std::shared_ptr<Store> store_ = open(server_->url());
};

TEST_F(ServeTest, ReadsWhatTheOriginHolds) {
  const std::vector<uint8_t> large = pattern(5'000'000);
  ASSERT_TRUE(origin_->put("parts/large", MemoryBody(large)).ok());
  ASSERT_TRUE(origin_->put("parts/empty", MemoryBody("")).ok());
  ASSERT_TRUE(origin_->put("HEAD", MemoryBody("12")).ok());
  EXPECT_EQ(must(store_->get("HEAD", 100)), "12");
  EXPECT_EQ(must(store_->get("parts/empty", 100)), "");
  const ObjectInfo info = must(store_->stat("parts/large"));
  EXPECT_EQ(info.size_bytes, large.size());
  EXPECT_EQ(info.modified, must(origin_->stat("parts/large")).modified);
  BytesSink sink(large.size());
  ASSERT_TRUE(store_->download("parts/large", large.size(), &sink).ok());
  EXPECT_EQ(sink.bytes, large);
  for (const size_t offset : {size_t{0}, size_t{1}, size_t{4'999'990}}) {
    std::vector<uint8_t> some(10);
    ASSERT_TRUE(store_->read("parts/large", offset, some).ok());
    EXPECT_TRUE(std::equal(some.begin(), some.end(), large.begin() + ptrdiff_t(offset)));
  }
  std::vector<uint8_t> over(11);
  EXPECT_TRUE(is_failure(store_->read("parts/large", 4'999'990, over), Code::kCorruption));
  EXPECT_TRUE(is_failure(store_->read("parts/large", 6'000'000, over), Code::kCorruption));
  EXPECT_TRUE(is_failure(store_->download("parts/large", 7, &sink), Code::kCorruption));
  EXPECT_TRUE(is_failure(store_->get("parts/large", 100), Code::kCorruption, "limit"));
  EXPECT_TRUE(is_failure(store_->get("parts/none", 100), Code::kNotFound, "parts/none"));
  EXPECT_TRUE(is_failure(store_->stat("parts/none"), Code::kNotFound));
  EXPECT_TRUE(is_failure(store_->read("parts/none", 0, over), Code::kNotFound));
  EXPECT_TRUE(is_failure(store_->get("../secrets", 100), Code::kInvalidArgument));
  EXPECT_NEAR(double(must(store_->clock())), double(must(origin_->clock())), 5);
}

TEST_F(ServeTest, ListsInPages) {
  for (int i = 0; i < 25; ++i) {
    ASSERT_TRUE(origin_->put("manifests/" + std::to_string(100 + i), MemoryBody("x")).ok());
  }
  ASSERT_TRUE(origin_->put("parts/x", MemoryBody("x")).ok());
  EXPECT_EQ(must(store_->list("manifests/", "", 10)).size(), 10U);
  const auto last = must(store_->list("manifests/", "manifests/119", 1000));
  ASSERT_EQ(last.size(), 5U);
  EXPECT_EQ(last[0].name, "manifests/120");
  EXPECT_EQ(last[0].size_bytes, 1U);
  EXPECT_EQ(must(store_->list("nothing/", "", 1000)).size(), 0U);
}

TEST_F(ServeTest, AcceptsWritesOfHeartbeatsOnly) {
  EXPECT_TRUE(store_->put("replicas/a.json", MemoryBody("{}")).ok());
  EXPECT_EQ(must(origin_->get("replicas/a.json", 100)), "{}");
  EXPECT_TRUE(store_->remove("replicas/a.json").ok());
  EXPECT_TRUE(is_failure(origin_->get("replicas/a.json", 100), Code::kNotFound));
  ASSERT_TRUE(origin_->put("manifests/0", MemoryBody("x")).ok());
  EXPECT_TRUE(
      is_failure(store_->put("manifests/0", MemoryBody("y")), Code::kUnsupported, "heartbeats"));
  EXPECT_TRUE(is_failure(store_->remove("manifests/0"), Code::kUnsupported));
  EXPECT_TRUE(is_failure(store_->put_if_absent("manifests/1", MemoryBody("y")), Code::kUnsupported,
                         "publish"));
  EXPECT_EQ(must(origin_->get("manifests/0", 100)), "x");
  const std::string much(2 << 20, 'x');
  EXPECT_FALSE(store_->put("replicas/much.json", MemoryBody(much)).ok());
}

HttpAnswer ask(const std::string& url, std::vector<std::string> headers = {},
               const std::string& method = "GET") {
  HttpClient client;
  HttpRequest request;
  request.method = method;
  request.url = url;
  request.headers = std::move(headers);
  return must(client.perform(request));
}

TEST_F(ServeTest, ImmutableObjectsAreCacheable) {
  ASSERT_TRUE(origin_->put("parts/a", MemoryBody("0123456789")).ok());
  ASSERT_TRUE(origin_->put("HEAD", MemoryBody("1")).ok());
  const std::string part = server_->url() + "/objects/parts/a";
  const HttpAnswer whole = ask(part);
  EXPECT_EQ(whole.text, "0123456789");
  EXPECT_NE(whole.header("cache-control").find("immutable"), std::string_view::npos);
  EXPECT_EQ(ask(server_->url() + "/objects/HEAD").header("cache-control"), "no-cache");
  const std::string etag(whole.header("etag"));
  EXPECT_EQ(ask(part, {"if-none-match: " + etag}).status, 304);
  EXPECT_EQ(ask(part, {"if-match: \"other\""}).status, 412);
  struct Case {
    const char* range;
    int status;
    const char* text;
  };
  for (const auto& [range, status, text] :
       {Case{"bytes=2-4", 206, "234"}, Case{"bytes=7-", 206, "789"}, Case{"bytes=-2", 206, "89"},
        Case{"bytes=5-99", 206, "56789"}, Case{"bytes=10-", 416, nullptr},
        Case{"bytes=4-2", 416, nullptr}, Case{"bytes=0-1,4-5", 200, "0123456789"},
        Case{"lines=1-2", 416, nullptr}, Case{"bytes=x-", 416, nullptr}}) {
    const HttpAnswer answer = ask(part, {std::string("range: ") + range});
    EXPECT_EQ(answer.status, status) << range;
    EXPECT_TRUE(text == nullptr || answer.text == text) << range;
  }
  EXPECT_EQ(ask(part, {}, "HEAD").header("content-length"), "10");
}

TEST_F(ServeTest, RejectsInvalidRequests) {
  EXPECT_EQ(ask(server_->url() + "/elsewhere").status, 404);
  EXPECT_EQ(ask(server_->url() + "/objects/..%2f..%2fetc%2fpasswd").status, 400);
  EXPECT_EQ(ask(server_->url() + "/objects/replicas/a", {}, "DELETE").status, 200);
  EXPECT_EQ(ask(server_->url() + "/objects?limit=x").status, 400);
  EXPECT_EQ(ask(server_->url() + "/objects?prefix=../").status, 400);
  EXPECT_EQ(ask(server_->url() + "/news?after=-1").status, 400);
  // A foreign server's 404 is not a missing object.
  EXPECT_TRUE(is_failure(open(server_->url() + "/x")->get("HEAD", 10), Code::kIo, "not a store"));
  EXPECT_TRUE(is_failure(ChainServer::start(origin_, {.address = "0.0.0.0:0"}),
                         Code::kInvalidArgument, "token"));
  EXPECT_TRUE(is_failure(ChainServer::start(origin_, {.address = "nowhere"}),
                         Code::kInvalidArgument, "HOST:PORT"));
}

TEST_F(ServeTest, RequiresTheToken) {
  const auto guarded = serve(origin_, {.address = "0.0.0.0:0", .token = Secret("between us")});
  const std::string url = "http://127.0.0.1" + guarded->url().substr(guarded->url().rfind(':'));
  ASSERT_TRUE(origin_->put("HEAD", MemoryBody("1")).ok());
  const TempFolder folder;
  const auto with = [&](const std::string& token) {
    EXPECT_TRUE(write_text_file(folder.path() / "token", token + "\n").ok());
    StoreOptions options;
    options.token_file = (folder.path() / "token").string();
    return open(url, options)->get("HEAD", 10);
  };
  EXPECT_EQ(must(with("between us")), "1");
  for (const char* const wrong : {"between", "between us!", "x"}) {
    EXPECT_TRUE(is_failure(with(wrong), Code::kIo, "token")) << wrong;
  }
  EXPECT_TRUE(is_failure(open(url)->get("HEAD", 10), Code::kIo, "token"));
  EXPECT_EQ(ask(url + "/news").status, 401);
}

TEST_F(ServeTest, ServesTlsAndChecksClientCertificates) {
  const TempFolder folder;
  const std::string cert = (folder.path() / "cert.pem").string();
  const std::string key = (folder.path() / "key.pem").string();
  const std::string both = (folder.path() / "both.pem").string();
  const std::string make =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
      "/CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout " +
      key + " -out " + cert + " 2>/dev/null && cat " + cert + " " + key + " > " + both;
  if (std::system(make.c_str()) != 0) GTEST_SKIP() << "no openssl";
  ASSERT_TRUE(origin_->put("parts/a", MemoryBody(pattern(3'000'000))).ok());
  StoreOptions trusting, known;
  trusting.ca_file = known.ca_file = cert;
  known.client_cert = both;
  const auto size = [](const std::string& url, const StoreOptions& options) {
    BytesSink sink(3'000'000);
    const Status status = open(url, options)->download("parts/a", 3'000'000, &sink);
    EXPECT_TRUE(!status.ok() || sink.bytes == pattern(3'000'000));
    return status;
  };
  const auto server = serve(origin_, {.tls = TlsFiles{cert, key, ""}});
  ASSERT_TRUE(server->url().starts_with("https://"));
  EXPECT_TRUE(size(server->url(), trusting).ok());
  EXPECT_TRUE(is_failure(size(server->url(), {}), Code::kIo, "trusted"));
  EXPECT_FALSE(size("http" + server->url().substr(5), trusting).ok());  // without TLS
  // With client certificates required, every address may be used.
  const auto strict = serve(origin_, {.address = "0.0.0.0:0", .tls = TlsFiles{cert, key, cert}});
  const std::string url = "https://127.0.0.1" + strict->url().substr(strict->url().rfind(':'));
  EXPECT_TRUE(size(url, known).ok());
  EXPECT_FALSE(size(url, trusting).ok());
  EXPECT_TRUE(is_failure(ChainServer::start(origin_, {.tls = TlsFiles{key, cert, ""}}), Code::kIo));
}

TEST_F(ServeTest, ServesSixtyFourFollowers) {
  ASSERT_TRUE(origin_->put("HEAD", MemoryBody("1")).ok());
  std::vector<std::unique_ptr<FollowWatch>> waiting;
  std::vector<std::shared_ptr<Store>> readers;
  for (int i = 0; i < 64; ++i) {  // each with a request that waits
    readers.push_back(open(server_->url()));
    waiting.push_back(std::make_unique<FollowWatch>(*readers.back()));
  }
  for (const auto& reader : readers) EXPECT_EQ(must(reader->get("HEAD", 10)), "1");
  for (const auto& reader : readers) must(reader->clock());
  std::vector<std::thread> enders;  // a request that waits is given up within a second
  for (auto& reader : readers) enders.emplace_back([&] { reader.reset(); });
  for (std::thread& ender : enders) ender.join();
}

TEST_F(ServeTest, ClosesIdleConnectionsForNewOnes) {
  ASSERT_TRUE(origin_->put("HEAD", MemoryBody("1")).ok());
  const auto small = serve(origin_, {.max_connections = 2});
  std::vector<std::shared_ptr<Store>> readers;  // each keeps its connection
  for (int i = 0; i < 6; ++i) {
    readers.push_back(open(small->url(), {.call_timeout_seconds = 20}));
    EXPECT_EQ(must(readers.back()->get("HEAD", 10)), "1");
  }
  for (const auto& reader : readers) EXPECT_EQ(must(reader->get("HEAD", 10)), "1");
}

TEST_F(ServeTest, UnknownClientsDoNotBlockOthers) {
  ASSERT_TRUE(origin_->put("parts/a", MemoryBody(pattern(100'000))).ok());
  const auto guarded = serve(origin_, {.token = Secret("between us")});
  const std::string url = guarded->url();
  const Endpoint endpoint = must(parse_endpoint(url.substr(7)));
  const auto say = [&](const std::string& words) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(uint16_t(std::stoi(endpoint.port)));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    EXPECT_EQ(::send(fd, words.data(), words.size(), MSG_NOSIGNAL), ssize_t(words.size()));
    return fd;
  };
  const std::string get = "GET /objects/parts/a HTTP/1.1\r\nhost: x\r\n";
  std::vector<int> open;
  for (const std::string& words :
       {std::string(), std::string("\0\xff\x16\x03\x01", 5), std::string("GET / HTTP/9.9\r\n"), get,
        get + "authorization: Bearer wrong\r\n\r\n", get + "range: bytes=0-,\r\n",
        std::string("PUT /objects/replicas/x HTTP/1.1\r\ncontent-length: 99999999999\r\n\r\n"),
        get + std::string(60'000, 'a'), std::string("\r\n\r\n\r\n")}) {
    for (int i = 0; i < 8; ++i) open.push_back(say(words));
  }
  const HttpAnswer answer = ask(url + "/objects/parts/a", {"authorization: Bearer between us"});
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.text.size(), 100'000U);
  EXPECT_EQ(objects_of(*origin_), std::vector<std::string>{"parts/a"});
  for (const int fd : open) ::close(fd);
}

// ---- news

TEST_F(ServeTest, NotifiesFollowersOfACommit) {
  const TempFolder folder;
  const auto directory = std::make_shared<DirectoryStore>(folder.path() / "store");
  ASSERT_TRUE(directory->put("manifests/0", MemoryBody("x")).ok());
  const auto from_folder = serve(directory);
  struct Case {
    Store& origin;
    std::string url;
  };
  const auto never = [] { return false; };
  for (const auto& [origin, url] :
       {Case{*origin_, server_->url()}, Case{*directory, from_folder->url()}}) {
    std::vector<std::shared_ptr<Store>> readers;
    std::deque<FollowWatch> watches;
    for (int i = 0; i < 4; ++i) {
      readers.push_back(open(url));
      watches.emplace_back(*readers.back());
    }
    for (int i = 1; i < 4; ++i) {
      for (FollowWatch& watch : watches) {  // starts with a check, or two of a file
        while (watch.wait(0.2, never)) {
        }
      }
      std::vector<std::thread> followers;
      for (FollowWatch& watch : watches) {
        followers.emplace_back([&] { EXPECT_TRUE(watch.wait(20, never)); });
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_TRUE(origin.put_if_absent("manifests/" + std::to_string(i), MemoryBody("x")).ok());
      for (std::thread& follower : followers) follower.join();
    }
  }
}

TEST_F(ServeTest, FollowersReconnectToARestartedServer) {
  auto first = serve(origin_);
  const std::string address = first->url().substr(7);
  const auto reader = open(first->url());
  FollowWatch watch(*reader);
  const auto never = [] { return false; };
  EXPECT_TRUE(watch.wait(20, never));
  first.reset();
  EXPECT_TRUE(is_failure(reader->get("HEAD", 10), Code::kUnavailable));
  first = serve(origin_, {.address = address});
  EXPECT_TRUE(watch.wait(20, never));
}

// ---- replicas

TEST(ServedChain, ReplicasPullOverHttp) {
  const TempFolder folder;
  TestChain chain(std::make_shared<MemoryStore>("served"));
  std::vector<TestTensor> tensors = {make_tensor("a", DType::kBF16, {300, 400}, 1),
                                     make_tensor("b", DType::kF32, {7, 9}, 2)};
  chain.publish_full(tensors);
  const auto server = serve(chain.store());
  auto replica = must(Replica::open(open(server->url()), folder.path() / "ckpt", {.name = "r"}));
  ASSERT_EQ(must(replica.pull()).version, 0U);
  for (int i = 1; i <= 3; ++i) {
    for (TestTensor& tensor : tensors) change(&tensor, 0.1, uint64_t(i));
    chain.publish_delta(tensors);
    EXPECT_EQ(must(replica.pull()).version, uint64_t(i));
  }
  for (int i = 0; i < 200; ++i) {  // its heartbeat comes by itself
    if (must(chain.store()->list("replicas/", "", 10)).size() == 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  FAIL() << "no heartbeat";
}

TEST(ServedChain, FallsBackToAnotherSource) {
  const auto origin = std::make_shared<MemoryStore>("sources");
  ASSERT_TRUE(origin->put("HEAD", MemoryBody("1")).ok());
  const auto behind = std::make_shared<MemoryStore>("behind");
  auto one = serve(origin), other = serve(origin), relay = serve(behind);
  const auto store = open(one->url() + "," + other->url() + "," + relay->url());
  EXPECT_EQ(must(store->get("HEAD", 10)), "1");  // also where the relay is asked first
  one.reset();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(must(store->get("HEAD", 10)), "1");
  for (int i = 0; i < 5; ++i) {  // one is away, the others have no such object
    EXPECT_TRUE(is_failure(store->get("manifests/9", 10), Code::kNotFound));
  }
  other.reset();
  EXPECT_TRUE(is_failure(store->get("HEAD", 10), Code::kNotFound));
  relay.reset();
  EXPECT_TRUE(is_failure(store->get("HEAD", 10), Code::kUnavailable));
}

}  // namespace
}  // namespace deltawire::testing
