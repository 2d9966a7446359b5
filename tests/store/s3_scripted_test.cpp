// The S3 store against a server that misbehaves as real ones rarely do, or must not.

#include "conformance.h"
#include "s3_environment.h"
#include "s3_scripted_server.h"
#include "store/s3_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

constexpr char kSecret[] = "a-secret-that-nobody-may-see";
constexpr char kToken[] = "a-token-that-nobody-may-see";

class S3Scripted : public ::testing::Test {
 protected:
  S3Scripted() {
    environment_.set_keys("ACCESS", kSecret);
    options_.call_timeout_seconds = 20;
    options_.connections = 4;
    options_.retries = 0;
  }

  Store& open(ScriptedServer::Script script) {
    server_ = std::make_unique<ScriptedServer>(std::move(script));
    options_.endpoint = server_->endpoint();
    return open_at("bucket", "pre/fix");
  }
  Store& open_at(const std::string& bucket, const std::string& prefix) {
    store_ = must(open_s3_store(bucket, prefix, options_));
    return *store_;
  }
  std::vector<SeenRequest> seen() { return server_->seen(); }

  Environment environment_;
  StoreOptions options_;
  std::unique_ptr<ScriptedServer> server_;
  std::shared_ptr<Store> store_;
};

Reply ok(const SeenRequest&, size_t) { return reply(200); }

// The answer of a server that supports ranges.
Reply serve_range(const SeenRequest& request, const std::string& bytes, const std::string& etag) {
  unsigned long first = 0, last = 0;
  if (std::sscanf(request.headers.at("range").c_str(), "bytes=%lu-%lu", &first, &last) != 2) {
    return reply(400);
  }
  if (first >= bytes.size()) {
    return reply(416, "", "content-range: bytes */" + std::to_string(bytes.size()) + "\r\n");
  }
  last = std::min<unsigned long>(last, bytes.size() - 1);
  return reply(206, bytes.substr(first, last - first + 1),
               "etag: \"" + etag + "\"\r\ncontent-range: bytes " + std::to_string(first) + "-" +
                   std::to_string(last) + "/" + std::to_string(bytes.size()) + "\r\n");
}

TEST_F(S3Scripted, SignsRequestsAndHidesSecrets) {
  environment_.set("AWS_SESSION_TOKEN", kToken);
  environment_.set("AWS_REGION", "eu-north-7");
  Store& store = open(ok);
  ASSERT_TRUE(store.put("a/b", MemoryBody("hello")).ok());
  ASSERT_EQ(seen().size(), 1u);
  const SeenRequest request = seen()[0];
  EXPECT_EQ(request.method, "PUT");
  EXPECT_EQ(request.target, "/bucket/pre/fix/a/b");
  EXPECT_EQ(request.body, "hello");
  EXPECT_EQ(request.headers.at("host"), "127.0.0.1:" + std::to_string(server_->port()));
  EXPECT_EQ(request.headers.at("x-amz-security-token"), kToken);
  EXPECT_EQ(request.headers.at("x-amz-content-sha256"),
            "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
  const std::string authorization = request.headers.at("authorization");
  EXPECT_EQ(authorization.find("AWS4-HMAC-SHA256 Credential=ACCESS/"), 0u) << authorization;
  EXPECT_TRUE(contains(authorization, "/eu-north-7/s3/aws4_request,"));
  EXPECT_TRUE(contains(authorization, "host;"));
  EXPECT_TRUE(contains(authorization, ";x-amz-security-token,"));
  EXPECT_FALSE(request.has("expect"));
  EXPECT_FALSE(request.has("content-type"));
  for (const auto& [name, value] : request.headers) EXPECT_FALSE(contains(value, kSecret)) << name;
}

TEST_F(S3Scripted, ClockIsThatOfTheServersAnswers) {
  const char date[] = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
  Store& store = open([&](const SeenRequest& request, size_t number) {
    EXPECT_EQ(request.method + " " + request.target, "HEAD /bucket/pre/fix/");
    return number == 0   ? reply(404, "", date)
           : number == 1 ? reply(200)
                         : reply(503, "", date);  // of whoever stands in for it
  });
  EXPECT_EQ(store.clock().value(), 784111777);
  EXPECT_EQ(store.clock().status().code(), Code::kUnsupported);
  EXPECT_EQ(store.clock().status().code(), Code::kUnavailable);
}

TEST_F(S3Scripted, SupportsVirtualHostStyle) {
  options_.virtual_host = true;
  server_ = std::make_unique<ScriptedServer>(ok);
  options_.endpoint = "http://localhost:" + std::to_string(server_->port());
  Store& store = open_at("bucket", "");
  must(store.put("a/b", MemoryBody("x")));
  EXPECT_EQ(seen()[0].headers.at("host"), "bucket.localhost:" + std::to_string(server_->port()));
  EXPECT_EQ(seen()[0].target, "/a/b");
}

TEST_F(S3Scripted, ReusesConnections) {
  Store& store = open(ok);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(store.put("a", MemoryBody("x")).ok());
  EXPECT_EQ(seen().size(), 20u);
  EXPECT_EQ(server_->num_connections(), 1u);
}

TEST_F(S3Scripted, MapsHttpErrorsToCodes) {
  struct Case {
    int status;
    const char* code;
    Code expected;
    const char* phrase;
  };
  const Case cases[] = {
      {400, "InvalidRequest", Code::kIo, "refused"},
      {400, "RequestTimeout", Code::kUnavailable, "try again"},
      {400, "BadDigest", Code::kUnavailable, "try again"},
      {400, "XAmzContentSHA256Mismatch", Code::kUnavailable, "try again"},
      {403, "SignatureDoesNotMatch", Code::kIo, "access denied"},
      {403, "RequestTimeTooSkewed", Code::kIo, "access denied"},
      {404, "NoSuchBucket", Code::kNotFound, "no such bucket"},
      {404, "NoSuchKey", Code::kNotFound, "no such object"},
      {409, "OperationAborted", Code::kUnavailable, "try again"},
      {429, "TooManyRequests", Code::kUnavailable, "try again"},
      {500, "InternalError", Code::kUnavailable, "try again"},
      {501, "NotImplemented", Code::kUnsupported, "not support"},
      {502, "BadGateway", Code::kUnavailable, "failed"},
      {503, "SlowDown", Code::kUnavailable, "try again"},
  };
  std::atomic<const Case*> now{nullptr};
  Store& store = open([&](const SeenRequest&, size_t) {
    return error_reply(now.load()->status, now.load()->code);
  });
  for (const Case& one : cases) {
    now = &one;
    const std::string status = "HTTP " + std::to_string(one.status) + " " + one.code;
    EXPECT_TRUE(is_failure(store.put("a/b", MemoryBody("x")), one.expected, one.phrase, status,
                           "s3://bucket/pre/fix", "object a/b", "request id request-1", "told so"));
    EXPECT_TRUE(is_failure(store.list("", "", 1), one.expected, one.phrase));
  }
}

TEST_F(S3Scripted, RemovesMissingObjects) {
  Store& store = open([&](const SeenRequest& request, size_t number) {
    EXPECT_EQ(request.method, "DELETE");
    EXPECT_FALSE(request.has("x-amz-security-token"));  // without a session there is none
    return error_reply(404, number == 0 ? "NoSuchKey" : "NoSuchBucket");
  });
  EXPECT_TRUE(store.remove("a").ok());
  EXPECT_FAILS(store.remove("a"), kNotFound, "bucket");
}

TEST_F(S3Scripted, HidesSecretsThatAServerEchoes) {
  environment_.set("AWS_SESSION_TOKEN", kToken);
  Store& store = open([&](const SeenRequest&, size_t) {
    return error_reply(403, kSecret, std::string("key ") + kSecret + " of\n" + kToken);
  });
  const Status status = store.put("a", MemoryBody("x"));
  EXPECT_FAILS(status, kIo, "key *** of?***");
  EXPECT_FALSE(contains(status.message(), kSecret));
  EXPECT_FALSE(contains(status.message(), kToken));
}

TEST_F(S3Scripted, RejectsAnswersThatAreNotS3) {
  std::atomic<const char*> now{""};
  Store& store = open([&](const SeenRequest&, size_t) { return reply(200, now.load()); });
  for (const char* text : {"", "<html></html>", "<ListBucketResult>", "\x01\x02", "{}"}) {
    now = text;
    EXPECT_FAILS(store.list("", "", 10), kCorruption, "s3://bucket") << text;
  }
}

TEST_F(S3Scripted, RejectsAnswersThatAreNotHttp) {
  Store& store = open([](const SeenRequest&, size_t) {
    return Reply{"220 mail ready\r\n", Reply::kClose};
  });
  EXPECT_FAILS(store.stat("a"), kIo, "does not speak HTTP");
}

TEST_F(S3Scripted, FollowsTheBucketsRegionOnce) {
  Store& store = open([](const SeenRequest& request, size_t) {
    const bool right =
        request.headers.at("authorization").find("/eu-west-3/s3/") != std::string::npos;
    if (right) return reply(200);
    return request.method == "HEAD" ? reply(301, "", "x-amz-bucket-region: eu-west-3\r\n")
                                    : reply(400,
                                            "<Error><Code>AuthorizationHeaderMalformed</Code>"
                                            "<Region>eu-west-3</Region></Error>");
  });
  EXPECT_TRUE(store.put("a", MemoryBody("hello")).ok());
  EXPECT_EQ(seen().size(), 2u);
  EXPECT_EQ(seen()[1].body, "hello");
  EXPECT_TRUE(store.put("b", MemoryBody("hello")).ok());
  EXPECT_EQ(seen().size(), 3u);  // it is remembered

  Store& other = open_at("bucket", "");
  EXPECT_TRUE(other.stat("a").ok());
  EXPECT_EQ(seen().size(), 5u);
}

TEST_F(S3Scripted, RejectsInvalidRegionRedirects) {
  std::atomic<const char*> region{"eu-west-3"};
  Store& store = open([&](const SeenRequest&, size_t) {
    return reply(301, "", std::string("x-amz-bucket-region: ") + region.load() + "\r\n");
  });
  EXPECT_FAILS(store.stat("a"), kIo, "another region");
  EXPECT_EQ(seen().size(), 2u);
  region = "evil.example/";
  EXPECT_FAILS(store.stat("a"), kIo, "another region");
  EXPECT_EQ(seen().size(), 3u);
}

// --- conditional PUT

TEST_F(S3Scripted, DetectsAServerThatRefusesConditions) {
  Store& store = open([](const SeenRequest& request, size_t) {
    return request.has("if-none-match") ? error_reply(501, "NotImplemented") : reply(200);
  });
  ASSERT_TRUE(store.capabilities().ok());
  EXPECT_FALSE(store.capabilities()->put_if_absent);
  EXPECT_EQ(seen().size(), 1u);  // the answer is kept
  EXPECT_FAILS(store.put_if_absent("v/1", MemoryBody("x")), kUnsupported, "conditional PUT", "v/1");
  EXPECT_EQ(seen().size(), 1u);  // and nothing was put
  EXPECT_TRUE(store.put("v/1", MemoryBody("x")).ok());
}

TEST_F(S3Scripted, DetectsAServerThatIgnoresConditions) {
  Store& store = open(ok);
  EXPECT_FAILS(store.put_if_absent("v/1", MemoryBody("x")), kUnsupported);
  const auto requests = seen();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].method + requests[1].method + requests[2].method, "PUTPUTDELETE");
  EXPECT_EQ(requests[0].target.find("/bucket/pre/fix/.probe-"), 0u);
  EXPECT_EQ(requests[0].target, requests[2].target);
}

TEST_F(S3Scripted, RepeatsAnUnansweredCapabilityProbe) {
  std::atomic<bool> down{true};
  Store& store = open([&](const SeenRequest&, size_t number) {
    if (down) return error_reply(503, "SlowDown");
    return number == 2 ? error_reply(412, "PreconditionFailed") : reply(200);
  });
  EXPECT_FAILS(store.capabilities(), kUnavailable);
  down = false;
  ASSERT_TRUE(store.capabilities().ok());
  EXPECT_TRUE(store.capabilities()->put_if_absent);
}

// A server with conditional PUT: it refuses the second put of a probe; else `script` answers.
ScriptedServer::Script conditional(ScriptedServer::Script script) {
  return
      [script = std::move(script), probes = 0](const SeenRequest& request, size_t number) mutable {
        if (request.target.find(".probe-") == std::string::npos) return script(request, number);
        if (request.method == "DELETE") return reply(204);
        return ++probes == 2 ? error_reply(412, "PreconditionFailed") : reply(200);
      };
}

TEST_F(S3Scripted, PutIfAbsentReportsConflicts) {
  std::atomic<int> status{200}, head{404};
  Store& store = open(conditional([&](const SeenRequest& request, size_t) {
    if (request.method == "HEAD") return reply(head);
    return reply(request.headers.at("if-none-match") == "*" ? status.load() : 500);
  }));
  const MemoryBody body("x");
  EXPECT_TRUE(store.put_if_absent("v/1", body).ok());
  status = 412;
  EXPECT_FAILS(store.put_if_absent("v/1", body), kConflict, "v/1");
  status = 409;  // a race that may have no winner: the name decides
  EXPECT_FAILS(store.put_if_absent("v/1", body), kUnavailable, "v/1");
  head = 200;
  EXPECT_FAILS(store.put_if_absent("v/1", body), kConflict, "v/1");
}

// A kept connection on which the server executes a request and then dies. libcurl would repeat it
// and find the name taken by ourselves.
TEST_F(S3Scripted, NeverSendsPutIfAbsentTwice) {
  std::atomic<bool> drop{false};
  Store& store = open(conditional([&](const SeenRequest&, size_t) {
    return drop ? Reply{"", Reply::kClose} : reply(200);
  }));
  ASSERT_TRUE(store.put_if_absent("v/1", MemoryBody("x")).ok());
  drop = true;
  const size_t before = seen().size();
  EXPECT_FAILS(store.put_if_absent("v/2", MemoryBody("x")), kUnavailable, "v/2");
  EXPECT_EQ(seen().size(), before + 1);
}

// --- deadlines and broken connections

TEST_F(S3Scripted, ConnectionRefusedIsUnavailable) {
  int port;
  {
    ScriptedServer gone(ok);
    port = gone.port();
  }
  options_.endpoint = "http://127.0.0.1:" + std::to_string(port);
  Store& store = open_at("bucket", "p");
  BytesSink sink(10);
  uint8_t byte;
  EXPECT_FAILS(store.put("a", MemoryBody("x")), kUnavailable, "object a");
  EXPECT_FAILS(store.put_if_absent("a", MemoryBody("x")), kUnavailable);
  EXPECT_FAILS(store.stat("a"), kUnavailable);
  EXPECT_FAILS(store.get("a", 1), kUnavailable);
  EXPECT_FAILS(store.read("a", 0, {&byte, 1}), kUnavailable);
  EXPECT_FAILS(store.download("a", 10, &sink), kUnavailable);
  EXPECT_FAILS(store.list("", "", 1), kUnavailable);
  EXPECT_FAILS(store.remove("a"), kUnavailable);
}

TEST_F(S3Scripted, SilentServerHitsTheDeadline) {
  options_.call_timeout_seconds = 0.2;
  Store& store = open([](const SeenRequest& request, size_t) {
    if (!request.has("range")) return Reply{"", Reply::kHang};
    Reply half = serve_range(request, std::string(1000, 'x'), "e");
    half.bytes.resize(half.bytes.size() - 500);
    half.then = Reply::kHang;
    return half;
  });
  BytesSink sink(1000);
  EXPECT_FAILS(store.stat("a"), kUnavailable, "no answer in 0.2 s");
  EXPECT_FAILS(store.put("a", MemoryBody("x")), kUnavailable, "no answer in");
  EXPECT_FAILS(store.download("a", 1000, &sink), kUnavailable, "no answer in");
}

TEST_F(S3Scripted, TruncatedDownloadIsUnavailable) {
  Store& store = open([](const SeenRequest& request, size_t) {
    Reply half = request.has("range") ? serve_range(request, std::string(1000, 'x'), "e")
                                      : reply(200, std::string(1000, 'x'));
    half.bytes.resize(half.bytes.size() - 1);
    half.then = Reply::kClose;
    return half;
  });
  BytesSink sink(1000);
  EXPECT_FAILS(store.download("a", 1000, &sink), kUnavailable);
  EXPECT_FAILS(store.get("a", 1000), kUnavailable);
}

// --- downloads

TEST_F(S3Scripted, DownloadsInRanges) {
  const std::string bytes = as_string(pattern(5 * kMiB + 3));
  Store& store =
      open([&](const SeenRequest& request, size_t) { return serve_range(request, bytes, "e"); });
  BytesSink sink(bytes.size());
  must(store.download("a", bytes.size(), &sink));
  EXPECT_TRUE(as_string(sink.bytes) == bytes);
  EXPECT_EQ(seen().size(), 4u);  // one for each connection
  std::vector<uint8_t> out(size_t(2 * kMiB + 1));
  ASSERT_TRUE(store.read("a", 12345, out).ok());
  EXPECT_EQ(std::memcmp(out.data(), bytes.data() + 12345, out.size()), 0);
}

TEST_F(S3Scripted, RequestsOnlyAFailedRangeAgain) {
  const std::string bytes = as_string(pattern(4 * kMiB));
  options_.connections = 1;  // one piece after the other
  options_.multipart_bytes = kMiB;
  options_.retries = 3;
  Store& store = open([&](const SeenRequest& request, size_t number) {
    if (number == 1) return error_reply(503, "SlowDown");
    Reply answer = serve_range(request, bytes, "e");
    if (number == 3) {  // cut in the middle
      answer.bytes.resize(answer.bytes.size() / 2);
      answer.then = Reply::kClose;
    }
    return answer;
  });
  BytesSink sink(bytes.size());
  must(store.download("a", bytes.size(), &sink));
  EXPECT_TRUE(as_string(sink.bytes) == bytes);
  ASSERT_EQ(seen().size(), 6u);
  EXPECT_EQ(seen()[1].headers.at("range"), seen()[2].headers.at("range"));
  EXPECT_EQ(seen()[3].headers.at("range"), seen()[4].headers.at("range"));
}

TEST_F(S3Scripted, DetectsAReplacedObject) {
  const std::string bytes(size_t(4 * kMiB), 'x');
  std::atomic<bool> honours{true};
  options_.connections = 1;  // one piece after the other
  options_.multipart_bytes = kMiB;
  options_.retries = 6;  // of no use to a single piece
  Store& store = open([&](const SeenRequest& request, size_t number) {
    const std::string etag = number % 4 < 2 ? "old" : "new";
    if (honours && request.has("if-match") && request.headers.at("if-match") != etag) {
      return error_reply(412, "PreconditionFailed");
    }
    return serve_range(request, bytes, etag);
  });
  BytesSink sink(bytes.size());
  EXPECT_FAILS(store.download("a", bytes.size(), &sink), kUnavailable, "replaced");
  ASSERT_EQ(seen().size(), 3u);
  EXPECT_FALSE(seen()[0].has("if-match"));
  EXPECT_EQ(seen()[1].headers.at("if-match"), "old");
  honours = false;  // a proxy that drops the condition
  EXPECT_FAILS(store.download("a", bytes.size(), &sink), kUnavailable, "replaced");
}

TEST_F(S3Scripted, RejectsWrongRanges) {
  std::atomic<const char*> range{""};
  Store& store = open([&](const SeenRequest&, size_t) {
    return reply(206, std::string(10, 'x'),
                 std::string("etag: \"e\"\r\ncontent-range: ") + range.load() + "\r\n");
  });
  BytesSink sink(10);
  range = "bytes 0-9/10";
  EXPECT_TRUE(store.download("a", 10, &sink).ok());
  for (const char* bad :
       {"bytes 1-10/20", "bytes 0-9/11", "bytes 0-8/10", "bytes 0-9/*", "", "x"}) {
    range = bad;
    EXPECT_FAILS(store.download("a", 10, &sink), kCorruption, "object a") << bad;
  }
}

TEST_F(S3Scripted, WorksWithoutRangesForWholeDownloads) {
  Store& store = open([](const SeenRequest&, size_t) { return reply(200, std::string(10, 'x')); });
  BytesSink sink(10);
  EXPECT_TRUE(store.download("a", 10, &sink).ok());
  EXPECT_EQ(as_string(sink.bytes), "xxxxxxxxxx");
  std::vector<uint8_t> out(5);
  EXPECT_FAILS(store.read("a", 0, out), kUnsupported, "range requests");
  EXPECT_FAILS(store.read("a", 5, out), kUnsupported, "range requests");
}

TEST_F(S3Scripted, VerifiesTheHashOfSmallObjects) {
  std::atomic<const char*> text{"hello"};
  Store& store = open([&](const SeenRequest&, size_t) {
    return reply(200, text.load(),
                 "x-amz-meta-deltawire-sha256: "
                 "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\r\n");
  });
  EXPECT_EQ(*store.get("a", 100), "hello");
  text = "hellp";
  EXPECT_FAILS(store.get("a", 100), kCorruption, "sha-256 expected 2cf24", "object a");
}

// --- uploads

std::string upload_started() {
  return "<InitiateMultipartUploadResult><UploadId>up/1</UploadId></InitiateMultipartUploadResult>";
}

class S3ScriptedUpload : public S3Scripted {
 protected:
  // Uploads in pieces of 5 MiB, one after the other; `piece` and `complete` script the answers.
  Status upload(ScriptedServer::Script piece, Reply complete, uint64_t size = 12 * kMiB) {
    options_.connections = 1;
    options_.multipart_bytes = 5 * kMiB;
    Store& store = open([=](const SeenRequest& request, size_t number) {
      if (request.target.ends_with("?uploads=")) return reply(200, upload_started());
      if (request.method == "PUT") return piece(request, number);
      return request.method == "POST" ? complete : reply(204);
    });
    const std::string bytes(size_t(size), 'x');
    return store.put("a", MemoryBody(bytes));
  }
  std::string methods() {
    std::string all;
    for (const SeenRequest& request : seen()) all += request.method + " ";
    return all;
  }
  static Reply piece_ok(const SeenRequest&, size_t number) {
    return reply(200, "", "etag: \"e" + std::to_string(number) + "\"\r\n");
  }
};

TEST_F(S3ScriptedUpload, UploadsInPieces) {
  must(upload(piece_ok,
              reply(200, "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")));
  ASSERT_EQ(methods(), "POST PUT PUT PUT POST ");
  EXPECT_EQ(seen()[1].target, "/bucket/pre/fix/a?partNumber=1&uploadId=up%2F1");
  EXPECT_EQ(seen()[1].body.size(), 5 * kMiB);
  EXPECT_EQ(seen()[3].body.size(), 2 * kMiB);
  EXPECT_EQ(
      seen()[4].body,
      "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;e1&quot;</ETag>"
      "</Part><Part><PartNumber>2</PartNumber><ETag>&quot;e2&quot;</ETag></Part><Part>"
      "<PartNumber>3</PartNumber><ETag>&quot;e3&quot;</ETag></Part></CompleteMultipartUpload>");
}

TEST_F(S3ScriptedUpload, RetriesAFailedPieceOrAborts) {
  const auto second_fails = [](const SeenRequest& request, size_t number) {
    return number == 2 ? error_reply(503, "SlowDown") : piece_ok(request, number);
  };
  EXPECT_FAILS(upload(second_fails, reply(500)), kUnavailable, "SlowDown", "object a");
  EXPECT_EQ(methods(), "POST PUT PUT DELETE ");
  EXPECT_EQ(seen().back().target, "/bucket/pre/fix/a?uploadId=up%2F1");
  options_.retries = 3;
  must(upload(second_fails,
              reply(200, "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>")));
  ASSERT_EQ(methods(), "POST PUT PUT PUT PUT POST ");
  EXPECT_EQ(seen()[2].target, seen()[3].target);
  EXPECT_TRUE(contains(seen()[5].body, "<PartNumber>2</PartNumber><ETag>&quot;e3&quot;"));
}

// If the answer to the last request was lost, there is no abort: the object may exist.
TEST_F(S3ScriptedUpload, ErrorInASuccessfulAnswerIsAnError) {
  EXPECT_FAILS(upload(piece_ok, error_reply(200, "InvalidPart")), kIo, "InvalidPart");
  EXPECT_EQ(methods(), "POST PUT PUT PUT POST DELETE ");
  for (const Reply& lost : {error_reply(200, "InternalError"), reply(200, "<CompleteMult")}) {
    EXPECT_FAILS(upload(piece_ok, lost), kUnavailable);
    EXPECT_EQ(methods(), "POST PUT PUT PUT POST ");
  }
}

TEST_F(S3ScriptedUpload, ReadsAnEarlyRefusal) {
  Store& store = open([](const SeenRequest&, size_t) { return error_reply(403, "AccessDenied"); });
  const std::string bytes(size_t(8 * kMiB), 'x');
  EXPECT_FAILS(store.put("a", MemoryBody(bytes)), kIo, "AccessDenied");
}

// --- lists

std::string list_page(const std::vector<std::string>& keys, const std::string& next) {
  std::string xml = "<ListBucketResult><IsTruncated>" +
                    std::string(next.empty() ? "false" : "true") + "</IsTruncated>";
  for (const std::string& key : keys) {
    xml += "<Contents><Key>" + key + "</Key><Size>1</Size></Contents>";
  }
  if (!next.empty()) xml += "<NextContinuationToken>" + next + "</NextContinuationToken>";
  return xml + "</ListBucketResult>";
}

TEST_F(S3Scripted, ListsSkipForeignNames) {
  Store& store = open([](const SeenRequest& request, size_t number) {
    EXPECT_TRUE(contains(request.target, "prefix=pre%2Ffix%2Fv"));
    EXPECT_EQ(request.target.find("continuation-token=t%2B1") != std::string::npos, number == 1);
    EXPECT_EQ(request.target.find("start-after=pre%2Ffix%2Fv%2F0") != std::string::npos,
              number == 0);
    return reply(200, number == 0
                          ? list_page({"pre/fix/v/1", "pre/fix/v/2 b", "pre/fix/v/3"}, "t+1")
                          : list_page({"pre/fix/v/4/", "pre/fix/v/5", "pre/fix/v/6"}, ""));
  });
  const auto page = must(store.list("v", "v/0", 3));
  ASSERT_EQ(page.size(), 3u);
  EXPECT_EQ(page[0].name + " " + page[1].name + " " + page[2].name, "v/1 v/3 v/5");
}

TEST_F(S3Scripted, RejectsInconsistentLists) {
  std::vector<std::string> keys;
  std::string next;
  Store& store =
      open([&](const SeenRequest&, size_t) { return reply(200, list_page(keys, next)); });
  const auto fails = [&](std::vector<std::string> now, const std::string& token,
                         const char* phrase) {
    keys = std::move(now);
    next = token;
    return is_failure(store.list("v/", "", 1000).status(), Code::kCorruption, phrase);
  };
  EXPECT_TRUE(fails({"elsewhere"}, "", "another prefix"));
  EXPECT_TRUE(fails({"pre/fix/w"}, "", "another prefix"));
  EXPECT_TRUE(fails({"pre/fix/v/2", "pre/fix/v/1"}, "", "not sorted"));
  EXPECT_TRUE(fails({"pre/fix/v/1", "pre/fix/v/1"}, "", "not sorted"));
  EXPECT_TRUE(fails({"pre/fix/v/1"}, "again", "not sorted"));  // the same page for ever
  EXPECT_TRUE(fails({}, "again", "is empty"));
}

// --- opening

TEST_F(S3Scripted, RejectsInvalidOptions) {
  struct Case {
    const char* phrase;
    void (*spoil)(StoreOptions& options);
    const char *bucket = "bucket", *prefix = "p";
    Code code = Code::kInvalidArgument;
  };
  const auto nothing = [](StoreOptions&) {};
  const Case cases[] = {
      {"endpoint", [](StoreOptions& o) { o.endpoint = "nonsense"; }},
      {"region", [](StoreOptions& o) { o.region = "a/b"; }},
      {"connection", [](StoreOptions& o) { o.connections = 0; }},
      {"pieces", [](StoreOptions& o) { o.multipart_bytes = 0; }},
      {"timeout", [](StoreOptions& o) { o.call_timeout_seconds = 0; }},
      {"bucket", nothing, "b"},
      {"name of an object", nothing, "bucket", "../p"},
      {"/no/ca.pem", [](StoreOptions& o) { o.ca_file = "/no/ca.pem"; }, "bucket", "p",
       Code::kNotFound},
  };
  for (const Case& one : cases) {
    StoreOptions options;
    one.spoil(options);
    EXPECT_TRUE(is_failure(open_s3_store(one.bucket, one.prefix, options), one.code, one.phrase));
  }
}

// Long transfers outlive short-lived keys: the provider is asked again, and the request is repeated
// once.
TEST_F(S3Scripted, RenewsExpiredKeysAndRepeatsTheRequest) {
  TempFolder folder;
  const auto write = [&](const std::string& name) {
    folder.put("keys", R"({"AccessKeyId": ")" + name + R"(", "SecretAccessKey": "S"})");
  };
  environment_.set("AWS_ACCESS_KEY_ID", std::nullopt);
  environment_.set("AWS_SECRET_ACCESS_KEY", std::nullopt);
  environment_.set("AWS_CONFIG_FILE",
                   folder
                       .put("config", "[default]\ncredential_process = cat " +
                                          (folder.path() / "keys").string() + "\n")
                       .string());
  write("OLD");
  Store& store = open([&](const SeenRequest& request, size_t) {
    const bool old = request.headers.at("authorization").find("=OLD/") != std::string::npos;
    if (!old) return reply(200);
    return request.method == "HEAD" ? reply(403) : error_reply(400, "ExpiredToken");
  });
  write("NEW");
  EXPECT_TRUE(store.put("a", MemoryBody("hello")).ok());
  ASSERT_EQ(seen().size(), 2u);
  EXPECT_EQ(seen()[1].body, "hello");
  // Without new keys the server's answer is returned.
  write("OLD");
  Store& again = open([&](const SeenRequest&, size_t) { return error_reply(400, "ExpiredToken"); });
  EXPECT_FAILS(again.put("a", MemoryBody("x")), kIo, "ExpiredToken");
  EXPECT_EQ(seen().size(), 1u);
}

}  // namespace
}  // namespace deltawire::testing
