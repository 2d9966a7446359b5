// The S3 store against a real server: Ceph RADOS Gateway.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"
#include "s3_environment.h"
#include "s3_gateway.h"
#include "store/s3/client.h"
#include "store/s3_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

OpenedStore conformance_store(uint64_t multipart_bytes) {
  if (gateway() == nullptr) return {nullptr, kNoGateway};
  StoreOptions options = gateway_options();
  options.multipart_bytes = multipart_bytes;
  return {open_fresh_store(options), ""};
}

INSTANTIATE_TEST_SUITE_P(S3Rgw, StoreConformance,
                         ::testing::Values(StoreCase{[] { return conformance_store(16 * kMiB); }}));
// Everything possible in pieces.
INSTANTIATE_TEST_SUITE_P(S3RgwInPieces, StoreConformance,
                         ::testing::Values(StoreCase{[] { return conformance_store(1); }}));

// Calls a function whenever the bytes are read.
class WatchedBody final : public Body {
 public:
  WatchedBody(std::span<const uint8_t> bytes, std::function<Status(uint64_t offset)> on_read)
      : bytes_(bytes), on_read_(std::move(on_read)) {}
  uint64_t size() const noexcept override { return bytes_.size(); }
  Status read(uint64_t offset, std::span<uint8_t> out) const override {
    std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return on_read_(offset);
  }

 private:
  const std::span<const uint8_t> bytes_;
  const std::function<Status(uint64_t)> on_read_;
};

// The prefix of its objects in the bucket.
std::string prefix_of(const Store& store) {
  return store.url().substr(std::string("s3://").size() + sizeof kBucket);
}

// Unfinished multipart uploads of this store in the bucket.
std::string pending_uploads(const Store& store) {
  auto client = s3::Client::make(kBucket, gateway_options());
  if (!client.ok()) return client.status().to_string();
  s3::Request request;
  request.query = {{"uploads", ""}, {"prefix", prefix_of(store)}};
  const auto answer = (*client)->send_ok(request);
  if (!answer.ok()) return answer.status().to_string();
  const size_t upload = answer->text.find("<Upload>");
  return upload == std::string::npos ? "" : answer->text.substr(upload);
}

TEST(S3Rgw, TransfersLargeObjectsOfOddSizes) {
  REQUIRE_GATEWAY();
  StoreOptions options = gateway_options();
  options.connections = 5;
  options.multipart_bytes = 7 * kMiB + 1;
  const auto store = open_fresh_store(options);
  for (const size_t size : {100 * kMiB + 1, 7 * kMiB + 1, 7 * kMiB + 2, 10 * kMiB, 5 * kMiB - 1}) {
    SCOPED_TRACE(size);
    const std::vector<uint8_t> bytes = pattern(size);
    must(store->put("large", MemoryBody(bytes)));
    EXPECT_EQ(store->stat("large")->size_bytes, size);
    BytesSink sink(size);
    must(store->download("large", size, &sink));
    EXPECT_TRUE(sink.bytes == bytes);
    // A range over several pieces, one at the end, an empty one.
    for (const size_t offset : {size_t{12345}, size - 1, size}) {
      std::vector<uint8_t> out(std::min(size - offset, 3 * kMiB + 1));
      ASSERT_TRUE(store->read("large", offset, out).ok());
      EXPECT_TRUE(std::equal(out.begin(), out.end(), bytes.begin() + ptrdiff_t(offset)));
    }
  }
  EXPECT_EQ(pending_uploads(*store), "");
}

TEST(S3Rgw, FailedUploadLeavesNothing) {
  REQUIRE_GATEWAY();
  const auto store = open_fresh_store(gateway_options());
  const std::vector<uint8_t> bytes = pattern(40 * kMiB);
  const WatchedBody body(bytes, [](uint64_t offset) {
    return offset > 30 * kMiB ? io_error("the source broke") : Status();
  });
  EXPECT_FAILS(store->put("broken", body), kIo, "the source broke");
  EXPECT_FAILS(store->stat("broken"), kNotFound);
  EXPECT_EQ(pending_uploads(*store), "");
}

TEST(S3Rgw, DetectsPendingUploads) {  // the check of the two tests above can fail
  REQUIRE_GATEWAY();
  const auto store = open_fresh_store(gateway_options());
  auto client = must(s3::Client::make(kBucket, gateway_options()));
  s3::Request request;
  request.method = "POST";
  request.key = prefix_of(*store) + "/left";
  request.query = {{"uploads", ""}};
  ASSERT_TRUE(client->send_ok(request).ok());
  EXPECT_TRUE(contains(pending_uploads(*store), "/left</Key>"));
}

// A body that changes between hashing and sending: the server detects it.
TEST(S3Rgw, ServerVerifiesTheChecksum) {
  REQUIRE_GATEWAY();
  const auto store = open_fresh_store(gateway_options());
  std::vector<uint8_t> bytes = pattern(1000);
  int reads = 0;
  const WatchedBody body(bytes, [&](uint64_t) {
    if (++reads == 1) bytes[500] ^= 1;
    return Status();
  });
  EXPECT_FAILS(store->put("changed", body), kUnavailable, "XAmzContentSHA256Mismatch");
  EXPECT_FAILS(store->stat("changed"), kNotFound);
}

TEST(S3Rgw, ReportsAWrongSecret) {
  REQUIRE_GATEWAY();
  const StoreOptions options = gateway_options();
  const std::string access = std::getenv("AWS_ACCESS_KEY_ID");
  Environment environment;
  environment.set_keys(access, "wrong-secret");
  const auto store = open_fresh_store(options);
  const std::vector<uint8_t> large = pattern(8 * kMiB);
  for (const Status& status : {store->put("a", MemoryBody("x")), store->put("a", MemoryBody(large)),
                               store->list("", "", 1).status(), store->get("a", 10).status()}) {
    EXPECT_FAILS(status, kIo, "access denied", "SignatureDoesNotMatch");
    EXPECT_FALSE(contains(status.message(), "wrong-secret"));
  }
  EXPECT_FAILS(store->stat("a"), kIo, "access denied");
  environment.set_keys("nobody", "wrong-secret");
  EXPECT_FAILS(open_fresh_store(options)->put("a", MemoryBody("x")), kIo, "access denied",
               "InvalidAccessKeyId");
}

TEST(S3Rgw, ReportsAMissingBucket) {
  REQUIRE_GATEWAY();
  const auto store = *open_s3_store("no-such-bucket", "p", gateway_options());
  for (const Status& status :
       {store->put("a", MemoryBody("x")), store->list("", "", 1).status(),
        store->get("a", 10).status(), store->remove("a"), store->capabilities().status()}) {
    EXPECT_FAILS(status, kNotFound, "no such bucket", "s3://no-such-bucket/p");
  }
  EXPECT_FAILS(store->stat("a"), kNotFound);
}

TEST(S3Rgw, VerifiesTlsCertificates) {
  REQUIRE_GATEWAY();
  StoreOptions options = gateway_options();
  options.endpoint = gateway()->tls_endpoint;
  EXPECT_FAILS(open_fresh_store(options)->put("a", MemoryBody("x")), kIo,
               "certificate is not trusted");
  options.ca_file = gateway()->ca_file;
  const auto store = open_fresh_store(options);
  const std::vector<uint8_t> bytes = pattern(20 * kMiB + 3);
  const Status put = store->put("large", MemoryBody(bytes));
  ASSERT_TRUE(put.ok()) << put.to_string();
  BytesSink sink(bytes.size());
  ASSERT_TRUE(store->download("large", bytes.size(), &sink).ok());
  EXPECT_TRUE(sink.bytes == bytes);
  TempFolder folder;
  options.ca_file = folder.put("ca.pem", "not a certificate").string();
  EXPECT_FAILS(open_fresh_store(options)->put("a", MemoryBody("x")), kIo, "trusted certificates");
}

TEST(S3Rgw, SupportsVirtualHostStyle) {
  REQUIRE_GATEWAY();
  StoreOptions options = gateway_options();
  options.endpoint = gateway()->virtual_host_endpoint;
  options.virtual_host = true;
  const auto store = open_fresh_store(options);
  must(store->put("a/b", MemoryBody("hello")));
  EXPECT_EQ(*store->get("a/b", 10), "hello");
  EXPECT_EQ(store->list("", "", 10)->size(), 1u);
}

TEST(S3Rgw, CapabilityProbeLeavesNothing) {
  REQUIRE_GATEWAY();
  const auto store = open_fresh_store(gateway_options());
  ASSERT_TRUE(store->capabilities().ok());
  EXPECT_TRUE(store->capabilities()->put_if_absent);
  auto client = must(s3::Client::make(kBucket, gateway_options()));
  s3::Request request;
  request.query = {{"list-type", "2"}, {"prefix", prefix_of(*store)}};
  EXPECT_TRUE(s3::parse_list(must(client->send_ok(request)).text)->objects.empty());
}

TEST(S3Rgw, ExactlyOneRacingProcessWins) {
  REQUIRE_GATEWAY();
  const std::string prefix = prefix_of(*open_fresh_store(gateway_options()));
  race_processes([&] { return *open_s3_store(kBucket, prefix, gateway_options()); });
}

// --- a gateway that is killed

class S3RgwKilled : public ::testing::Test {
 protected:
  void SetUp() override {
    REQUIRE_GATEWAY();
    own_ = start_own_gateway();
    ASSERT_GT(own_.pid, 0);
    options_ = gateway_options();
    survivor_ = open_fresh_store(options_);
    options_.endpoint = own_.endpoint;
    options_.connections = 3;
    options_.call_timeout_seconds = 10;
    const std::string prefix = prefix_of(*survivor_);
    store_ = *open_s3_store(kBucket, prefix, options_);
  }
  void TearDown() override {
    if (own_.pid > 0) kill_gateway();
  }
  void kill_gateway() {
    if (!killed_.exchange(true)) ::kill(own_.pid, SIGKILL);
  }

  OwnGateway own_;
  std::atomic<bool> killed_{false};
  StoreOptions options_;
  std::shared_ptr<Store> store_, survivor_;  // the same objects through two gateways
};

TEST_F(S3RgwKilled, DuringAnUpload) {
  const std::vector<uint8_t> bytes = pattern(40 * kMiB);
  ASSERT_TRUE(store_->put("before", MemoryBody("x")).ok());
  std::atomic<uint64_t> reads{0};
  const WatchedBody body(bytes, [&](uint64_t) {
    if (++reads == 200) kill_gateway();
    return Status();
  });
  EXPECT_FAILS(store_->put("large", body), kUnavailable, "object large");
  EXPECT_TRUE(killed_);
  EXPECT_FAILS(store_->stat("before"), kUnavailable);
  EXPECT_FAILS(survivor_->stat("large"), kNotFound);
  EXPECT_EQ(*survivor_->get("before", 10), "x");
}

TEST_F(S3RgwKilled, DuringADownload) {
  const std::vector<uint8_t> bytes = pattern(40 * kMiB);
  ASSERT_TRUE(survivor_->put("large", MemoryBody(bytes)).ok());
  BytesSink sink(bytes.size());
  std::atomic<int> writes{0};
  sink.before_write = [&] {
    if (++writes == 10) kill_gateway();
  };
  EXPECT_FAILS(store_->download("large", bytes.size(), &sink), kUnavailable, "object large");
  EXPECT_TRUE(killed_);
  ASSERT_TRUE(survivor_->download("large", bytes.size(), &sink).ok());
  EXPECT_TRUE(sink.bytes == bytes);
}

// Like SSO: the keys are in no variable and no AWS file; a process prints them.
TEST(S3Rgw, UsesKeysOfACredentialProcess) {
  REQUIRE_GATEWAY();
  const std::string access = std::getenv("AWS_ACCESS_KEY_ID");
  const std::string secret = std::getenv("AWS_SECRET_ACCESS_KEY");
  Environment environment;
  TempFolder folder;
  const auto print = [&](const std::string& key) {
    folder.put("keys.json", R"({"Version": 1, "AccessKeyId": ")" + access +
                                R"(", "SecretAccessKey": ")" + key +
                                R"(", "Expiration": "2001-01-01T00:00:00Z"})");
  };
  print(secret);
  environment.set("AWS_REGION", "us-east-1");
  environment.set("AWS_PROFILE", "gate");
  environment.set("AWS_CONFIG_FILE",
                  folder
                      .put("config", "[profile gate]\ncredential_process = cat " +
                                         (folder.path() / "keys.json").string() + "\n")
                      .string());
  const std::shared_ptr<Store> store = open_fresh_store(gateway_options());
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->put("a", MemoryBody("hello")).ok());
  EXPECT_EQ(store->get("a", 100).value(), "hello");
  // The keys have expired: the process runs each time, and its latest output is used.
  print("wrong");
  EXPECT_FAILS(store->put("b", MemoryBody("x")), kIo, "access denied", "SignatureDoesNotMatch");
  print(secret);
  EXPECT_TRUE(store->put("b", MemoryBody("x")).ok());
}

}  // namespace
}  // namespace deltawire::testing
