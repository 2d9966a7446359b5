#include "notify/http.h"

#include "notify/engine_options.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

size_t num_calls(const HttpScript& server) { return server.calls().size(); }

TEST(Http, RetriesTransientFailures) {
  const std::vector<Json> passing = {step(500), step(502),     step(503),     step(429),
                                     step(408), does("reset"), does("close"), does("cut")};
  for (const Json& first : passing) {
    HttpScript server(Json{{"POST /x", steps(first, step(200, {{"a", 1}}))}});
    const auto reply = EngineClient(server.url(), quick(1)).post("/x", "{}");
    ASSERT_TRUE(reply.ok()) << first << reply.status().to_string();
    EXPECT_EQ(reply->text, R"({"a": 1})");
    EXPECT_EQ(num_calls(server), 2U) << first;
  }
}

TEST(Http, DoesNotRetryRefusals) {
  for (const int status : {301, 400, 401, 403, 404, 405, 409, 422, 501}) {
    HttpScript server(Json{{"POST /x", steps(step(status), step(200))}});
    const auto reply = must(EngineClient(server.url(), quick(5)).post("/x", "{}"));
    EXPECT_EQ(reply.status, status);
    EXPECT_EQ(num_calls(server), 1U) << status;
  }
}

TEST(Http, ReportsTheLastFailureAfterAllAttempts) {
  HttpScript server(Json{{"GET /x", steps(step(503, {{"detail", "loading"}}))}});
  const EngineClient client(server.url(), quick(2));
  EXPECT_FAILS(client.get("/x"), kUnavailable, "GET /x: HTTP 503", "loading");
  EXPECT_EQ(num_calls(server), 3U);
}

TEST(Http, TimesOutWithoutAnAnswer) {
  HttpScript server(Json{{"POST /x", steps(does("hang"))}});
  const EngineClient client(server.url(), quick(1, 0.5));
  EXPECT_FAILS(client.post("/x", "{}"), kUnavailable, "POST /x", "no answer in 0.5 s");
  while (num_calls(server) < 2) std::this_thread::yield();  // it notes them on its own threads
  EXPECT_EQ(num_calls(server), 2U);
}

// The server has received the request and never answers.
TEST(Http, StopsWhenCancelled) {
  HttpScript server(Json{{"POST /x", steps(does("hang"))}});
  EngineOptions options = quick(5, 600);
  options.cancelled = [&] { return num_calls(server) == 1; };
  const EngineClient client(server.url(), options);
  EXPECT_FAILS(client.post("/x", "{}"), kCancelled, "POST /x", "stopped on request");
  EXPECT_EQ(num_calls(server), 1U);
  EXPECT_FAILS(client.get("/y"), kCancelled, "GET /y");
  EXPECT_EQ(num_calls(server), 1U);
}

TEST(Http, StopsWhenCancelledBetweenAttempts) {
  HttpScript server(Json{{"POST /x", steps(step(503))}});
  EngineOptions options = quick(5);
  options.limits.backoff_seconds = 600;
  options.cancelled = [&] { return num_calls(server) == 1; };
  const EngineClient client(server.url(), options);
  EXPECT_FAILS(client.post("/x", "{}"), kCancelled, "POST /x");
  EXPECT_EQ(num_calls(server), 1U);
}

TEST(Http, SendsTheLastPostAfterCancellation) {
  HttpScript server(
      Json{{"POST /x", steps(step(503), step(200))}, {"POST /y", steps(does("hang"))}});
  EngineOptions options = quick(1, 600);
  options.cancelled = [] { return true; };
  const EngineClient client(server.url(), options);
  const auto reply = must(client.post_despite_stop("/x", "{}"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_FAILS(client.post_despite_stop("/y", "{}"), kCancelled, "POST /y",
               "no answer within 5 s of the request to stop");
}

TEST(Http, HidesAKeyThatTheServerEchoes) {
  const std::string key = "sk-a/b\"c";
  EngineOptions options = quick();
  options.api_key = Secret(key);
  for (const int status : {200, 400, 503}) {
    HttpScript server(Json{
        {"POST /x",
         steps(step(status, "bad key " + key + R"( "sk-a/b\"c" "sk-a\/b\"c" k=sk-a%2Fb%22c)"))}});
    const auto reply = EngineClient(server.url(), options).post("/x", "{}");
    const std::string text = reply.ok() ? reply->text : reply.status().to_string();
    EXPECT_FALSE(contains(text, "sk-a"));
    EXPECT_TRUE(contains(text, "***"));
  }
}

TEST(Http, MissingServerIsUnavailable) {
  HttpScript server;
  server.stop();
  EXPECT_FAILS(EngineClient(server.url(), quick(1)).get("/x"), kUnavailable, "GET /x");
}

TEST(Http, FollowsNoRedirectWithAKey) {
  HttpScript other;
  HttpScript server(Json{{"POST /x", steps(step(307))}});
  EngineOptions options = quick();
  options.api_key = Secret("s3cr3t");
  EXPECT_EQ(EngineClient(server.url(), options).post("/x", "{}")->status, 307);
  EXPECT_EQ(num_calls(other), 0U);
}

TEST(Http, QuotesOnlyTheBeginningOfALongAnswer) {
  HttpScript server(Json{{"GET /x", steps(step(400, std::string(1 << 20, 'y')))}});
  const auto reply = must(EngineClient(server.url(), quick()).get("/x"));
  EXPECT_EQ(reply.text.size(), size_t{1} << 20);
  EXPECT_LT(EngineClient::failure("GET", "/x", reply).message().size(), 400U);
}

TEST(Http, RejectsAnswersOverTheLimit) {
  HttpScript server(Json{{"GET /x", steps(step(400, std::string(9 << 20, 'y')))}});
  EXPECT_FAILS(EngineClient(server.url(), quick()).get("/x"), kCorruption,
               "larger than 8388608 bytes");
}

TEST(Http, EscapesControlCharactersInAnswers) {
  const HttpAnswer reply{400, {}, "bad\nkey\r\nnext\x1b[31m"};
  const Status status = EngineClient::failure("POST", "/x?mode=keep", reply);
  EXPECT_EQ(status.message(), "POST /x: HTTP 400: bad?key??next?[31m");
}

}  // namespace
}  // namespace deltawire::testing
