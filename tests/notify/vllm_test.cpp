#include "notify/engine_options.h"
#include "test_files.h"

namespace deltawire {
namespace {

using testing::does;
using testing::engine_at;
using testing::HttpScript;
using testing::is_failure;
using testing::Json;
using testing::kTo12;
using testing::quick;
using testing::step;
using testing::steps;
using testing::vllm_script;
using Calls = std::vector<std::string>;

TEST(Vllm, PausesReloadsForgetsAndResumesInItsWords) {
  HttpScript server(vllm_script());
  const auto engine = engine_at("vllm", server);
  ASSERT_TRUE(engine->pause().ok());
  const ReloadResult result = engine->reload(kTo12);
  ASSERT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.weights, Weights::kNew);
  EXPECT_TRUE(result.warnings.empty());
  ASSERT_TRUE(engine->resume().ok());
  EXPECT_EQ(server.calls(),
            (Calls{"POST /pause?mode=keep&clear_cache=false", "POST /collective_rpc",
                   "POST /reset_prefix_cache?reset_running_requests=true",
                   "POST /reset_encoder_cache", "POST /update_weight_version", "POST /resume"}));
  const auto requests = server.requests();
  EXPECT_EQ(requests[1].body, Json::parse(R"({"kwargs":{"weights_path":"/models/local"},
                                              "method":"reload_weights"})"));
  EXPECT_EQ(requests[4].body, (Json{{"new_version", "12"}}));
  EXPECT_TRUE(requests[0].body.is_null());
}

TEST(Vllm, AnOlderServerLacksWhatIsNotNeeded) {
  Json script = vllm_script();
  script.erase("POST /reset_encoder_cache");
  script.erase("POST /update_weight_version");
  HttpScript server(script);
  const ReloadResult result = engine_at("vllm", server)->reload(kTo12);
  EXPECT_TRUE(result.status.ok());
  EXPECT_TRUE(result.warnings.empty());
}

TEST(Vllm, WithoutDevelopmentModeItSaysSo) {
  HttpScript server;
  const auto engine = engine_at("vllm", server, quick(3));
  EXPECT_TRUE(is_failure(engine->pause(), Code::kUnsupported, "POST /pause: HTTP 404",
                         "VLLM_SERVER_DEV_MODE=1"));
  const ReloadResult result = engine->reload(kTo12);
  EXPECT_TRUE(is_failure(result.status, Code::kUnsupported, "POST /collective_rpc"));
  EXPECT_EQ(result.weights, Weights::kOld);
}

// There is no rollback in the server: some weights may be new.
TEST(Vllm, AFailureInsideTheServerLeavesUnknownWeights) {
  Json script = vllm_script();
  script["POST /collective_rpc"] = steps(step(500, "Internal Server Error"));
  HttpScript server(script);
  const ReloadResult result = engine_at("vllm", server, quick(1))->reload(kTo12);
  EXPECT_TRUE(is_failure(result.status, Code::kUnavailable, "HTTP 500", "Internal Server Error"));
  EXPECT_EQ(result.weights, Weights::kUnknown);
  EXPECT_EQ(server.calls(), (Calls{"POST /collective_rpc", "POST /collective_rpc"}));
}

TEST(Vllm, AnEmptyAnswerIsOneOfItsOwn) {
  Json script = vllm_script();
  for (auto& [call, answers] : script.items()) answers = steps(step(200, ""));
  HttpScript server(script);
  const auto engine = engine_at("vllm", server);
  EXPECT_TRUE(engine->pause().ok());
  EXPECT_EQ(engine->reload(kTo12).weights, Weights::kNew);
  EXPECT_TRUE(engine->resume().ok());
}

TEST(Vllm, A200ThatIsNotItsAnswerIsNotBelieved) {
  const Json page = "<html>please log in</html>";
  for (const Json& body : {page, Json("ok"), Json::array({nullptr}), Json{{"status", "ok"}}}) {
    Json script = vllm_script();
    script["POST /collective_rpc"] = steps(step(200, body));
    HttpScript server(script);
    const ReloadResult result = engine_at("vllm", server)->reload(kTo12);
    EXPECT_TRUE(is_failure(result.status, Code::kUnsupported, server.url(),
                           "POST /collective_rpc: HTTP 200, but the answer is not"))
        << body;
    EXPECT_EQ(result.weights, Weights::kUnknown);
    EXPECT_EQ(server.calls(), (Calls{"POST /collective_rpc"}));
  }
  HttpScript server(
      Json{{"POST /pause", steps(step(200, page))}, {"POST /resume", steps(step(200, page))}});
  const auto engine = engine_at("vllm", server);
  EXPECT_TRUE(is_failure(engine->pause(), Code::kUnsupported, "not JSON", "please log in"));
  EXPECT_TRUE(is_failure(engine->resume(), Code::kUnsupported, "not JSON", "please log in"));
}

TEST(Vllm, WhatItCouldNotForgetIsAWarning) {
  Json script = vllm_script();
  script["POST /reset_prefix_cache"] = steps(step(200, {{"success", false}}));
  script["POST /reset_encoder_cache"] = steps(step(409, {{"detail", "busy"}}));
  script["POST /update_weight_version"] = steps(step(422));
  HttpScript server(script);
  const ReloadResult result = engine_at("vllm", server)->reload(kTo12);
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.weights, Weights::kNew);
  ASSERT_EQ(result.warnings.size(), 3U);
  EXPECT_NE(result.warnings[0].find("\"success\": false"), std::string::npos);
  EXPECT_NE(result.warnings[1].find("busy"), std::string::npos);
  EXPECT_NE(result.warnings[2].find("422"), std::string::npos);
}

}  // namespace
}  // namespace deltawire
