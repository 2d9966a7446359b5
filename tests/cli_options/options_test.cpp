// The options that verbs share: what they accept, what they make of it, what they print.
#include <cstdlib>
#include <sstream>

#include "base/log.h"
#include "base/metrics.h"
#include "cli/replica_options.h"
#include "cli/shared_options.h"
#include "servers/http_script.h"
#include "test_files.h"

namespace deltawire::cli {
namespace {

using testing::HttpScript;
using testing::is_failure;

// What is wrong with a command line; empty when it is fine.
std::string parse(Command* app, const std::string& line) {
  std::istringstream words(line);
  return app->parse({std::istream_iterator<std::string>(words), {}}).text;
}

TEST(NotifyOptions, TakeEnginesAndCommandsInOrder) {
  Command app;
  NotifyOptions options;
  add_notify_options(&app, &options);
  const Parsed parsed =
      app.parse({"--notify", "sglang=http://a:1", "--exec", "x y", "--notify", "vllm=http://b:2",
                 "--notify-timeout", "1.5", "--notify-retries", "0"});
  EXPECT_EQ(parsed.text, "");
  EXPECT_EQ(options.limits.timeout_seconds, 1.5);
  EXPECT_EQ(options.limits.retries, 0U);
  auto notifier = must(make_notifier(options));
  EXPECT_EQ(notifier.size(), 3U);
}

TEST(NotifyOptions, WithoutThemThereAreNoEngines) {
  auto notifier = must(make_notifier({}));
  EXPECT_TRUE(notifier.empty());
}

TEST(NotifyOptions, SayWhatIsWrong) {
  for (const char* line : {"--notify-timeout 0", "--notify-timeout -1", "--notify-timeout x",
                           "--notify-retries 101", "--notify-retries -1", "--notify"}) {
    Command app;
    NotifyOptions options;
    add_notify_options(&app, &options);
    EXPECT_NE(parse(&app, line), "") << line;
  }
  NotifyOptions options{.notify = {"sglang=http://a:1", "tgi=http://b:2"}};
  EXPECT_FAILS(make_notifier(options), Code::kInvalidArgument, "engine \"tgi\": expected");
}

TEST(NotifyOptions, TheKeyComesFromTheEnvironment) {
  HttpScript server(HttpScript::Json{{"POST /pause_generation", {{{"status", 200}}}}});
  ::setenv("DELTAWIRE_ENGINE_API_KEY", "s3cr3t", 1);
  auto notifier = make_notifier({.notify = {"sglang=" + server.url()}, .limits = {.retries = 0}});
  ::unsetenv("DELTAWIRE_ENGINE_API_KEY");
  ASSERT_TRUE(notifier.ok());
  const NotifyOutcome outcome = notifier->around({{"run", 2, ""}, 1, true, Identity{"run", 1, ""}},
                                                 [] { return io_error("no patch today"); });
  EXPECT_EQ(server.requests()[0].headers["Authorization"], "Bearer s3cr3t");
  EXPECT_FALSE(contains(to_json(outcome.engines).dump(), "s3cr3t"));
}

TEST(NotifyOptions, OutcomesInJson) {
  EngineOutcome good, bad;
  good.engine = "sglang=http://a:1";
  good.paused = good.reloaded = good.resumed = true;
  good.serving = Identity{"run", 12, ""};
  good.warnings = {"w"};
  bad.engine = "vllm=http://b:2";
  bad.status = unavailable("vllm=http://b:2: no answer");
  EXPECT_EQ(to_json({good, bad}).dump(),
            R"([{"engine":"sglang=http://a:1","serving":12,"paused":true,"reloaded":true,)"
            R"("resumed":true,"reload_seconds":0.0,"warnings":["w"]},)"
            R"({"engine":"vllm=http://b:2","serving":null,"paused":false,"reloaded":false,)"
            R"("resumed":false,"reload_seconds":0.0,"warnings":[],)"
            R"("error":{"code":"unavailable","message":"vllm=http://b:2: no answer"}}])");
}

TEST(NotifyOptions, OutcomesForPeople) {
  EngineOutcome good, bad;
  good.engine = "sglang=http://a:1";
  good.resumed = true;
  good.serving = Identity{"run", 12, ""};
  good.warnings = {"the cache is still there"};
  bad.engine = "vllm=http://b:2";
  ::testing::internal::CaptureStdout();
  say_engines(Context(), {good, bad});
  std::fflush(stdout);
  EXPECT_EQ(
      ::testing::internal::GetCapturedStdout(),
      "engine    sglang=http://a:1: serves version 12\n"
      "          the cache is still there\n"
      "engine    vllm=http://b:2: which version it serves is not known; it may still be paused\n");
}

class LogOptionsTest : public ::testing::Test {
 protected:
  // What two events leave on stderr under a command line.
  std::string events_with(const std::string& line, LogLevel usual = LogLevel::kWarning) {
    Command app;
    LogOptions options;
    add_log_options(&app, &options, usual);
    EXPECT_EQ(parse(&app, line), "");
    ::testing::internal::CaptureStderr();
    start_log(options);
    log_event(LogLevel::kInfo, "pull.committed", {{"version", 12}});
    log_event(LogLevel::kError, "pull.failed", {{"error", io_error("disk\nfull")}});
    set_log_sink(LogLevel::kOff, {});
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogOptionsTest, TheUsualLevelIsTheVerbs) {
  EXPECT_EQ(events_with("").substr(8), " error: pull failed error=\"i/o error: disk\\nfull\"\n");
  EXPECT_TRUE(contains(events_with("", LogLevel::kInfo), " pull committed version=12\n"));
}

TEST_F(LogOptionsTest, LevelsAndFormats) {
  EXPECT_EQ(events_with("--log-level off"), "");
  const std::string json = events_with("--log-level info --log-format json");
  EXPECT_TRUE(contains(json, R"("event":"pull.committed","version":12})"
                             "\n"));
  EXPECT_EQ(std::count(json.begin(), json.end(), '\n'), 2);
}

TEST_F(LogOptionsTest, UnknownNamesAreRefused) {
  for (const char* line : {"--log-level loud", "--log-format xml", "--log-level"}) {
    Command app;
    LogOptions options;
    add_log_options(&app, &options);
    EXPECT_NE(parse(&app, line), "") << line;
  }
}

TEST(MetricsOptions, ServeOnlyWhenAsked) {
  Command app;
  MetricsOptions options;
  add_metrics_options(&app, &options);
  EXPECT_EQ(parse(&app, ""), "");
  auto none = must(start_metrics(options));
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(parse(&app, "--metrics-port 0"), "");
  auto server = must(start_metrics(options));
  EXPECT_NE(server->port(), 0);
  EXPECT_TRUE(contains(metrics().render(), "deltawire_build_info{version=\""));
}

TEST(MetricsOptions, SayWhatIsWrong) {
  for (const char* line : {"--metrics-port 65536", "--metrics-port -1", "--metrics-port x"}) {
    Command app;
    MetricsOptions options;
    add_metrics_options(&app, &options);
    EXPECT_NE(parse(&app, line), "") << line;
  }
  EXPECT_FAILS(start_metrics({.port = 0, .address = "nowhere"}), Code::kInvalidArgument, "nowhere");
}

}  // namespace
}  // namespace deltawire::cli
