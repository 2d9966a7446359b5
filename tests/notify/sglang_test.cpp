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
using testing::sglang_script;
using testing::step;
using testing::steps;
using Calls = std::vector<std::string>;

TEST(Sglang, PausesReloadsFlushesAndResumesInItsWords) {
  HttpScript server(sglang_script());
  const auto engine = engine_at("sglang", server);
  ASSERT_TRUE(engine->pause().ok());
  const ReloadResult result = engine->reload(kTo12);
  ASSERT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.weights, Weights::kNew);
  EXPECT_TRUE(result.warnings.empty());
  ASSERT_TRUE(engine->resume().ok());
  EXPECT_EQ(server.calls(),
            (Calls{"POST /pause_generation", "GET /model_info", "POST /update_weights_from_disk",
                   "GET /model_info", "POST /flush_cache", "POST /continue_generation"}));
  const auto requests = server.requests();
  EXPECT_EQ(requests[0].body, (Json{{"mode", "retract"}}));
  EXPECT_EQ(requests[2].body.dump(), Json::parse(R"({"abort_all_requests":false,"flush_cache":false,
                            "model_path":"/models/local","weight_version":"12"})")
                                         .dump());
  EXPECT_EQ(requests[5].body, Json::object());
  EXPECT_EQ(requests[2].headers["Content-Type"], "application/json");
  EXPECT_FALSE(requests[2].headers.contains("Authorization"));
}

TEST(Sglang, SendsTheKeyWithEveryCall) {
  HttpScript server(sglang_script());
  EngineOptions options = quick();
  options.api_key = Secret("s3cr3t");
  const auto engine = engine_at("sglang", server, options);
  ASSERT_TRUE(engine->pause().ok());
  ASSERT_TRUE(engine->reload(kTo12).status.ok());
  ASSERT_TRUE(engine->resume().ok());
  for (const auto& request : server.requests()) {
    EXPECT_EQ(request.headers["Authorization"], "Bearer s3cr3t") << request.call;
  }
}

TEST(Sglang, ARefusalIsNotRepeatedAndLeavesTheOldWeights) {
  Json script = sglang_script();
  script["POST /update_weights_from_disk"] =
      steps(step(400, {{"success", false}, {"message", "shape of lm_head"}}), step(200));
  script["GET /model_info"] = steps(step(200, {{"weight_version", "11"}}));
  HttpScript server(script);
  const ReloadResult result = engine_at("sglang", server, quick(3))->reload(kTo12);
  EXPECT_TRUE(is_failure(result.status, Code::kInvalidArgument, server.url(),
                         "POST /update_weights_from_disk", "400", "shape of lm_head"));
  EXPECT_EQ(result.weights, Weights::kOld);
  EXPECT_EQ(server.calls(),
            (Calls{"GET /model_info", "POST /update_weights_from_disk", "GET /model_info"}));
}

// What 0.5.23 does when a flush fails after the weights were changed.
TEST(Sglang, A400ThatChangedTheWeightsCountsAsNew) {
  Json script = sglang_script();
  script["POST /update_weights_from_disk"] = steps(step(400, {{"message", "Cache flush failed"}}));
  HttpScript server(script);
  const ReloadResult result = engine_at("sglang", server)->reload(kTo12);
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.weights, Weights::kNew);
  ASSERT_EQ(result.warnings.size(), 1U);
  EXPECT_NE(result.warnings[0].find("Cache flush failed"), std::string::npos);
}

// Another run's version 12 was there before: the label proves nothing.
TEST(Sglang, AnEqualLabelFromBeforeProvesNothing) {
  Json script = sglang_script();
  script["POST /update_weights_from_disk"] = steps(step(400));
  script["GET /model_info"] = steps(step(200, {{"weight_version", "12"}}));
  HttpScript server(script);
  const ReloadResult result = engine_at("sglang", server)->reload(kTo12);
  EXPECT_FALSE(result.status.ok());
  EXPECT_EQ(result.weights, Weights::kUnknown);
}

TEST(Sglang, A200WithoutTheNewLabelIsNotBelieved) {
  Json script = sglang_script();
  script["GET /model_info"] = steps(step(200, {{"weight_version", "11"}}));
  HttpScript server(script);
  const ReloadResult result = engine_at("sglang", server)->reload(kTo12);
  EXPECT_TRUE(is_failure(result.status, Code::kCorruption, "weight_version \"11\", not \"12\""));
  EXPECT_EQ(result.weights, Weights::kUnknown);
}

TEST(Sglang, AServerWithoutLabelsIsBelieved) {
  for (const Json& info : {steps(step(404)), steps(step(200, "not json")), steps(step(200, {1})),
                           steps(step(200, {{"weight_version", nullptr}}))}) {
    Json script = sglang_script();
    script["GET /model_info"] = info;
    HttpScript server(script);
    const ReloadResult result = engine_at("sglang", server)->reload(kTo12);
    EXPECT_TRUE(result.status.ok()) << info << result.status.to_string();
    EXPECT_EQ(result.weights, Weights::kNew);
  }
}

// A proxy's page, or another server: nobody has said that the weights were loaded.
TEST(Sglang, A200ThatIsNotItsAnswerIsNotBelieved) {
  const Json page = "<html>please log in</html>";
  for (const Json& body : {page, Json("ok"), Json(""), Json::array({1}), Json{{"status", "ok"}}}) {
    Json script = sglang_script();
    script["POST /update_weights_from_disk"] = steps(step(200, body));
    script["GET /model_info"] = steps(step(200, body));
    HttpScript server(script);
    const ReloadResult result = engine_at("sglang", server)->reload(kTo12);
    EXPECT_TRUE(is_failure(result.status, Code::kUnsupported, server.url(),
                           "POST /update_weights_from_disk: HTTP 200", "not SGLang's"))
        << body;
    EXPECT_EQ(result.weights, Weights::kUnknown);
  }
  HttpScript server(Json{{"POST /pause_generation", steps(step(200, page))},
                         {"POST /continue_generation", steps(step(200, page))}});
  const auto engine = engine_at("sglang", server);
  EXPECT_TRUE(is_failure(engine->pause(), Code::kUnsupported, "not JSON", "please log in"));
  EXPECT_TRUE(is_failure(engine->resume(), Code::kUnsupported, "not JSON", "please log in"));
}

TEST(Sglang, A200WithoutSuccessIsARefusal) {
  Json script = sglang_script();
  script["POST /update_weights_from_disk"] =
      steps(step(200, {{"success", false}, {"message", "shape of lm_head"}}));
  script["GET /model_info"] = steps(step(200, {{"weight_version", "11"}}));
  HttpScript server(script);
  const ReloadResult result = engine_at("sglang", server)->reload(kTo12);
  EXPECT_TRUE(is_failure(result.status, Code::kInvalidArgument, "\"success\": false", "lm_head"));
  EXPECT_EQ(result.weights, Weights::kOld);
}

TEST(Sglang, AFailedFlushIsAWarning) {
  Json script = sglang_script();
  script["POST /flush_cache"] = steps(step(400, "Flush cache failed.\n"));
  HttpScript server(script);
  const ReloadResult result = engine_at("sglang", server)->reload(kTo12);
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.weights, Weights::kNew);
  ASSERT_EQ(result.warnings.size(), 1U);
  EXPECT_NE(result.warnings[0].find("Flush cache failed."), std::string::npos);
}

TEST(Sglang, NoAnswerToTheReloadIsUnknownUnlessTheLabelTells) {
  Json script = sglang_script();
  script["POST /update_weights_from_disk"] = steps(does("hang"));
  script["GET /model_info"] = steps(step(200, {{"weight_version", "11"}}));
  HttpScript server(script);
  ReloadResult result = engine_at("sglang", server, quick(0, 1.5))->reload(kTo12);
  EXPECT_TRUE(is_failure(result.status, Code::kUnavailable, "no answer in 1.5 s"));
  EXPECT_EQ(result.weights, Weights::kUnknown);

  script["GET /model_info"] = sglang_script()["GET /model_info"];
  server.load(script);
  result = engine_at("sglang", server, quick(0, 1.5))->reload(kTo12);
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.weights, Weights::kNew);
}

}  // namespace
}  // namespace deltawire
