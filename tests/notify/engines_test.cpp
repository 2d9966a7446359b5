// The requests to each kind of engine, and the meaning of its answers.
#include <signal.h>

#include "notify/engine_options.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

using Calls = std::vector<std::string>;

constexpr char kUpdate[] = "POST /update_weights_from_disk";
constexpr char kInfo[] = "GET /model_info";
constexpr char kRpc[] = "POST /collective_rpc";
const Json kPage = "<html>please log in</html>";  // a proxy's, or another server's

Json label(const char* version) { return step(200, {{"weight_version", version}}); }

// A reload to version 12 by a server that accepts everything except for these answers.
struct ReloadCase {
  const char* about;
  std::vector<std::pair<const char*, Json>> answers;
  Weights weights;
  Code code = Code::kOk;
  std::vector<std::string> phrases = {};   // of the failure
  std::vector<std::string> warnings = {};  // a phrase of each
  Calls calls = {};                        // empty: not looked at
  EngineOptions options = quick();
};

void check_reloads(const std::string& kind, const Json& says_yes,
                   const std::vector<ReloadCase>& cases) {
  for (const ReloadCase& one : cases) {
    SCOPED_TRACE(one.about);
    Json script = says_yes;
    for (const auto& [call, answers] : one.answers) script[call] = answers;
    HttpScript server(script);
    const ReloadResult result = engine_at(kind, server, one.options)->reload(kTo12);
    EXPECT_EQ(result.weights, one.weights);
    EXPECT_TRUE(is_failure(result.status, one.code));
    for (const std::string& phrase : one.phrases) {
      EXPECT_TRUE(is_failure(result.status, one.code, server.url(), phrase));
    }
    ASSERT_EQ(result.warnings.size(), one.warnings.size());
    for (size_t i = 0; i < one.warnings.size(); ++i) {
      EXPECT_TRUE(contains(result.warnings[i], one.warnings[i]));
    }
    if (!one.calls.empty()) {
      EXPECT_EQ(server.calls(), one.calls);
    }
  }
}

// Pause, reload and resume with a server that accepts everything; returns its requests.
std::vector<HttpScript::Request> requests_of_a_reload(const std::string& kind, const Json& script,
                                                      const EngineOptions& options = quick()) {
  HttpScript server(script);
  const auto engine = engine_at(kind, server, options);
  EXPECT_TRUE(engine->pause().ok());
  const ReloadResult result = engine->reload(kTo12);
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.weights, Weights::kNew);
  EXPECT_TRUE(result.warnings.empty());
  EXPECT_TRUE(engine->resume().ok());
  return server.requests();
}

Calls calls_of(const std::vector<HttpScript::Request>& requests) {
  Calls calls;
  for (const auto& request : requests) calls.push_back(request.call);
  return calls;
}

TEST(Sglang, PausesReloadsFlushesAndResumes) {
  const auto requests = requests_of_a_reload("sglang", sglang_script());
  ASSERT_EQ(calls_of(requests), (Calls{"POST /pause_generation", kInfo, kUpdate, kInfo,
                                       "POST /flush_cache", "POST /continue_generation"}));
  EXPECT_EQ(requests[0].body, (Json{{"mode", "retract"}}));
  EXPECT_EQ(requests[2].body, Json::parse(R"({"abort_all_requests":false,"flush_cache":false,
                                              "model_path":"/models/local","weight_version":"12"})"));
  EXPECT_EQ(requests[5].body, Json::object());
  EXPECT_EQ(requests[2].headers["Content-Type"], "application/json");
  EXPECT_FALSE(requests[2].headers.contains("Authorization"));
}

TEST(Sglang, SendsTheKeyWithEveryCall) {
  EngineOptions options = quick();
  options.api_key = Secret("s3cr3t");
  for (const auto& request : requests_of_a_reload("sglang", sglang_script(), options)) {
    EXPECT_EQ(request.headers["Authorization"], "Bearer s3cr3t") << request.call;
  }
}

TEST(Sglang, MapsAnswersToErrors) {
  const Json old = steps(label("11"));
  const Json refusal = {{"success", false}, {"message", "shape of lm_head"}};
  std::vector<ReloadCase> cases = {
      {.about = "a refusal is not repeated and leaves the old weights",
       .answers = {{kUpdate, steps(step(400, refusal), step(200))}, {kInfo, old}},
       .weights = Weights::kOld,
       .code = Code::kInvalidArgument,
       .phrases = {kUpdate, "400", "shape of lm_head"},
       .calls = {kInfo, kUpdate, kInfo},
       .options = quick(3)},
      {.about = "a 200 without success is a refusal",
       .answers = {{kUpdate, steps(step(200, refusal))}, {kInfo, old}},
       .weights = Weights::kOld,
       .code = Code::kInvalidArgument,
       .phrases = {"\"success\": false", "lm_head"}},
      {.about = "0.5.23, where a flush failed after the weights were changed",
       .answers = {{kUpdate, steps(step(400, {{"message", "Cache flush failed"}}))}},
       .weights = Weights::kNew,
       .warnings = {"Cache flush failed"}},
      {.about = "another run's version 12 was there before: the label proves nothing",
       .answers = {{kUpdate, steps(step(400))}, {kInfo, steps(label("12"))}},
       .weights = Weights::kUnknown,
       .code = Code::kInvalidArgument},
      {.about = "a 200 without the new label is not believed",
       .answers = {{kInfo, old}},
       .weights = Weights::kUnknown,
       .code = Code::kCorruption,
       .phrases = {"weight_version \"11\", not \"12\""}},
      {.about = "a failed flush is a warning",
       .answers = {{"POST /flush_cache", steps(step(400, "Flush cache failed.\n"))}},
       .weights = Weights::kNew,
       .warnings = {"Flush cache failed."}},
      {.about = "no answer",
       .answers = {{kUpdate, steps(does("hang"))}, {kInfo, old}},
       .weights = Weights::kUnknown,
       .code = Code::kUnavailable,
       .phrases = {"no answer in 1.5 s"},
       .options = quick(0, 1.5)},
      {.about = "no answer, but the label is the new one",
       .answers = {{kUpdate, steps(does("hang"))}},
       .weights = Weights::kNew,
       .warnings = {"no answer in 1.5 s"},
       .options = quick(0, 1.5)},
  };
  for (const Json& info : {step(404), step(200, "not json"), step(200, {1}),
                           step(200, {{"weight_version", nullptr}})}) {
    cases.push_back({"a server without labels is believed", {{kInfo, steps(info)}}, Weights::kNew});
  }
  for (const Json& body : {kPage, Json("ok"), Json(""), Json::array({1}), Json{{"status", "ok"}}}) {
    cases.push_back(
        {.about = "a 200 that is not its answer is not believed",
         .answers = {{kUpdate, steps(step(200, body))}, {kInfo, steps(step(200, body))}},
         .weights = Weights::kUnknown,
         .code = Code::kUnsupported,
         .phrases = {std::string(kUpdate) + ": HTTP 200", "not SGLang's"}});
  }
  check_reloads("sglang", sglang_script(), cases);
}

TEST(Vllm, PausesReloadsResetsCachesAndResumes) {
  const auto requests = requests_of_a_reload("vllm", vllm_script());
  ASSERT_EQ(calls_of(requests),
            (Calls{"POST /pause?mode=keep&clear_cache=false", kRpc,
                   "POST /reset_prefix_cache?reset_running_requests=true",
                   "POST /reset_encoder_cache", "POST /update_weight_version", "POST /resume"}));
  EXPECT_EQ(requests[1].body, Json::parse(R"({"kwargs":{"weights_path":"/models/local"},
                                              "method":"reload_weights"})"));
  EXPECT_EQ(requests[4].body, (Json{{"new_version", "12"}}));
  EXPECT_TRUE(requests[0].body.is_null());
  Json silent = vllm_script();  // an empty answer is one of its own
  for (auto& [call, answers] : silent.items()) answers = steps(step(200, ""));
  requests_of_a_reload("vllm", silent);
}

TEST(Vllm, ReportsMissingDevelopmentMode) {
  HttpScript server;
  const auto engine = engine_at("vllm", server, quick(3));
  EXPECT_FAILS(engine->pause(), kUnsupported, "POST /pause: HTTP 404", "VLLM_SERVER_DEV_MODE=1");
  const ReloadResult result = engine->reload(kTo12);
  EXPECT_FAILS(result.status, kUnsupported, kRpc);
  EXPECT_EQ(result.weights, Weights::kOld);
}

TEST(Vllm, MapsAnswersToErrors) {
  std::vector<ReloadCase> cases = {
      {.about = "an older server lacks what is not needed",
       .answers = {{"POST /reset_encoder_cache", steps(step(404))},
                   {"POST /update_weight_version", steps(step(404))}},
       .weights = Weights::kNew},
      {.about = "there is no rollback in the server: some weights may be new",
       .answers = {{kRpc, steps(step(500, "Internal Server Error"))}},
       .weights = Weights::kUnknown,
       .code = Code::kUnavailable,
       .phrases = {"HTTP 500", "Internal Server Error"},
       .calls = {kRpc, kRpc},
       .options = quick(1)},
      {.about = "what it could not forget is a warning",
       .answers = {{"POST /reset_prefix_cache", steps(step(200, {{"success", false}}))},
                   {"POST /reset_encoder_cache", steps(step(409, {{"detail", "busy"}}))},
                   {"POST /update_weight_version", steps(step(422))}},
       .weights = Weights::kNew,
       .warnings = {"\"success\": false", "busy", "422"}},
  };
  for (const Json& body : {kPage, Json("ok"), Json::array({nullptr}), Json{{"status", "ok"}}}) {
    cases.push_back({.about = "a 200 that is not its answer is not believed",
                     .answers = {{kRpc, steps(step(200, body))}},
                     .weights = Weights::kUnknown,
                     .code = Code::kUnsupported,
                     .phrases = {std::string(kRpc) + ": HTTP 200, but the answer is not"},
                     .calls = {kRpc}});
  }
  check_reloads("vllm", vllm_script(), cases);
}

TEST(Engines, UnexpectedAnswerToPauseIsAFailure) {
  struct Case {
    const char *kind, *pause, *resume;
  };
  for (const Case one : {Case{"sglang", "POST /pause_generation", "POST /continue_generation"},
                         Case{"vllm", "POST /pause", "POST /resume"}}) {
    HttpScript server(
        Json{{one.pause, steps(step(200, kPage))}, {one.resume, steps(step(200, kPage))}});
    const auto engine = engine_at(one.kind, server);
    EXPECT_FAILS(engine->pause(), kUnsupported, "not JSON", "please log in");
    EXPECT_FAILS(engine->resume(), kUnsupported, "not JSON", "please log in");
  }
}

ReloadResult run(const std::string& command, const EngineOptions& options = quick()) {
  auto engine = make_engine("exec=" + command, options);
  EXPECT_TRUE((*engine)->pause().ok());
  ReloadResult result = (*engine)->reload(kTo12);
  EXPECT_TRUE((*engine)->resume().ok());
  return result;
}

TEST(Exec, RunsOnceWithTheVersionInItsEnvironment) {
  const TempFolder folder;
  const std::string out = (folder.path() / "out").string();
  const ReloadResult result =
      run("echo \"$DELTAWIRE_PHASE $DELTAWIRE_RUN $DELTAWIRE_VERSION $DELTAWIRE_PATH\" >> " + out);
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.weights, Weights::kNew);
  EXPECT_EQ(testing::read_file(out), "reload run-7 12 /models/local\n");
}

TEST(Exec, DoesNotRetryFailures) {
  const TempFolder folder;
  const std::string out = (folder.path() / "out").string();
  for (const bool ignored : {false, true}) {  // a program may ignore SIGCHLD
    const auto before = ::signal(SIGCHLD, ignored ? SIG_IGN : SIG_DFL);
    const ReloadResult result = run("echo x >> " + out + "; exit 3", quick(5));
    ::signal(SIGCHLD, before);
    EXPECT_FAILS(result.status, kConflict, "exec=echo x", "status 3");
    EXPECT_EQ(result.weights, Weights::kOld);
  }
  EXPECT_EQ(testing::read_file(out), "x\nx\n");
}

TEST(Exec, KilledCommandHasUnknownStatus) {
  ReloadResult result = run("sleep 1000", quick(0, 0.1));
  EXPECT_FAILS(result.status, kUnavailable, "did not finish within 0.1 s");
  EXPECT_EQ(result.weights, Weights::kUnknown);
  EngineOptions options = quick();
  options.cancelled = [] { return true; };
  result = run("sleep 1000", options);
  EXPECT_FAILS(result.status, kCancelled, "exec=sleep 1000", "on request");
  EXPECT_EQ(result.weights, Weights::kUnknown);
}

std::string name_of(std::string_view spec) {
  auto engine = make_engine(spec, {});
  return engine.ok() ? (*engine)->name() : engine.status().to_string();
}

TEST(EngineSpec, NamesKindAndUrl) {
  EXPECT_EQ(name_of("sglang=http://10.0.0.7:30000"), "sglang=http://10.0.0.7:30000");
  EXPECT_EQ(name_of("sglang=http://10.0.0.7:30000/"), "sglang=http://10.0.0.7:30000");
  EXPECT_EQ(name_of("vllm=https://gpu-3.example/replica/a/"),
            "vllm=https://gpu-3.example/replica/a");
  EXPECT_EQ(name_of("vllm=http://[::1]:8000"), "vllm=http://[::1]:8000");
  EXPECT_EQ(name_of("exec=systemctl reload x=y"), "exec=systemctl reload x=y");
}

TEST(EngineSpec, ErrorsNameTheMistake) {
  const auto failure = [](std::string_view spec) { return make_engine(spec, {}).status(); };
  const Code bad = Code::kInvalidArgument;
  EXPECT_TRUE(is_failure(failure(""), bad, "sglang=URL, vllm=URL or exec=COMMAND"));
  EXPECT_TRUE(is_failure(failure("http://host:1"), bad, "\"http\"", "sglang=URL"));
  EXPECT_TRUE(is_failure(failure("tgi=http://host:1"), bad, "\"tgi\"", "sglang=URL"));
  EXPECT_TRUE(is_failure(failure("sglang"), bad, "\"sglang=\" is missing: a URL"));
  EXPECT_TRUE(is_failure(failure("exec="), bad, "a command"));
  EXPECT_TRUE(is_failure(failure("sglang=host:30000"), bad, "http:// or https://"));
  EXPECT_TRUE(is_failure(failure("sglang=ftp://host"), bad, "http:// or https://"));
  EXPECT_TRUE(is_failure(failure("sglang=http://"), bad, "no host"));
  EXPECT_TRUE(is_failure(failure("sglang=http://:80"), bad, "no host"));
  EXPECT_TRUE(is_failure(failure("sglang=http:///x"), bad, "no host"));
  for (const char* port : {"", "0", "65536", "80x", "-1", "99999999999999"}) {
    EXPECT_TRUE(is_failure(failure(std::string("vllm=http://host:") + port), bad, "port")) << port;
  }
  EXPECT_TRUE(is_failure(failure("vllm=http://host/?a=b"), bad, "path prefix"));
  EXPECT_TRUE(is_failure(failure("vllm=http://host/#x"), bad, "path prefix"));
  EXPECT_TRUE(is_failure(failure("vllm=http://ho st"), bad, "character"));
  EXPECT_TRUE(is_failure(failure("vllm=http://host\r\nX: y"), bad, "character"));
}

TEST(EngineSpec, RejectsPasswordsWithoutRepeatingThem) {
  for (const char* spec : {"sglang=http://user:hunter2@host:1", "other=http://user:hunter2@host:1",
                           "http://user:hunter2@host:1"}) {
    const Status status = make_engine(spec, {}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_FALSE(contains(status.message(), "hunter2"));
  }
}

TEST(EngineSpec, RejectsKeysThatBreakTheHeader) {
  for (const std::string key :
       {"abc\n", "abc\r\nX-Admin: 1", "a\tb", " abc", "abc ", "a\x7f", "a\xc3\xa4"}) {
    for (const char* spec : {"sglang=http://h:1", "vllm=http://h:1"}) {
      const Status status = make_engine(spec, {.api_key = Secret(key)}).status();
      EXPECT_FAILS(status, kInvalidArgument, "DELTAWIRE_ENGINE_API_KEY");
      EXPECT_FALSE(contains(status.message(), "abc"));
    }
  }
}

}  // namespace
}  // namespace deltawire::testing
