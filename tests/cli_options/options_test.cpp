// Options shared by several verbs: accepted values, their effect, their output.
#include <cstdlib>
#include <sstream>

#include "base/log.h"
#include "base/metrics.h"
#include "base/next_step.h"
#include "cli/next_step.h"
#include "cli/options.h"
#include "cli/replica_options.h"
#include "cli/table.h"
#include "servers/http_script.h"
#include "test_files.h"

namespace deltawire::cli {
namespace {

using testing::HttpScript;
using testing::is_failure;

// Returns the parse error of a command line; empty when it is valid.
std::string parse(Command* app, const std::string& line) {
  std::istringstream words(line);
  return app->parse({std::istream_iterator<std::string>(words), {}}).text;
}

TEST(NotifyOptions, AcceptEnginesAndCommandsInOrder) {
  Command app;
  NotifyOptions options;
  add_notify_options(&app, &options);
  const Parsed parsed =
      app.parse({"--notify", "sglang=http://a:1", "--exec", "x y", "--notify", "vllm=http://b:2",
                 "--notify-timeout", "1.5", "--notify-retries", "0"});
  EXPECT_EQ(parsed.text, "");
  EXPECT_EQ(options.limits.timeout_seconds, 1.5);
  EXPECT_EQ(options.limits.retries, 0U);
  EXPECT_EQ(must(make_notifier(options)).size(), 3U);
}

TEST(NotifyOptions, NoEnginesByDefault) {
  auto notifier = must(make_notifier({}));
  EXPECT_TRUE(notifier.empty());
}

TEST(NotifyOptions, RejectInvalidValues) {
  for (const char* line : {"--notify-timeout 0", "--notify-timeout -1", "--notify-timeout x",
                           "--notify-retries 101", "--notify-retries -1", "--notify"}) {
    Command app;
    NotifyOptions options;
    add_notify_options(&app, &options);
    EXPECT_NE(parse(&app, line), "") << line;
  }
  NotifyOptions options{.notify = {"sglang=http://a:1", "tgi=http://b:2"}};
  EXPECT_FAILS(make_notifier(options), kInvalidArgument, "engine \"tgi\": expected");
}

TEST(NotifyOptions, ReadTheApiKeyFromTheEnvironment) {
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

TEST(NotifyOptions, OutcomesAsJson) {
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

TEST(NotifyOptions, OutcomesAsText) {
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
  // Returns what two events print to stderr with these options.
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

TEST_F(LogOptionsTest, DefaultLevelDependsOnTheVerb) {
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

TEST_F(LogOptionsTest, RejectsUnknownNames) {
  for (const char* line : {"--log-level loud", "--log-format xml", "--log-level"}) {
    Command app;
    LogOptions options;
    add_log_options(&app, &options);
    EXPECT_NE(parse(&app, line), "") << line;
  }
}

TEST(MetricsOptions, ServeOnlyOnRequest) {
  Command app;
  MetricsOptions options;
  add_metrics_options(&app, &options);
  EXPECT_EQ(parse(&app, ""), "");
  EXPECT_EQ(must(start_metrics(options)), nullptr);
  EXPECT_EQ(parse(&app, "--metrics-port 0"), "");
  EXPECT_NE(must(start_metrics(options))->port(), 0);
  EXPECT_TRUE(contains(metrics().render(), "deltawire_build_info{version=\""));
}

TEST(MetricsOptions, RejectInvalidValues) {
  for (const char* line : {"--metrics-port 65536", "--metrics-port -1", "--metrics-port x"}) {
    Command app;
    MetricsOptions options;
    add_metrics_options(&app, &options);
    EXPECT_NE(parse(&app, line), "") << line;
  }
  EXPECT_FAILS(start_metrics({.port = 0, .address = "nowhere"}), kInvalidArgument, "nowhere");
}

// ---- Option values: numbers, sizes, words.

// Returns the error for `--x TEXT`; empty when it is accepted.
std::string parse_x(Command* app, const std::string& text) {
  return app->parse({"--x", text}).text;
}

TEST(WholeNumber, AcceptsDecimalDigitsInRange) {
  uint64_t value = 7;
  Command app;
  add_whole_number(&app, "-y,--x", &value, "", 0, UINT64_MAX);
  EXPECT_EQ(parse_x(&app, "0"), "");
  EXPECT_EQ(value, 0U);
  EXPECT_EQ(parse_x(&app, "18446744073709551615"), "");
  EXPECT_EQ(value, UINT64_MAX);
  for (const char* bad :
       {"18446744073709551616", "010", "00", "0x10", "-1", "+1", "1.0", "1e3", " 1", "1 ", "ten"}) {
    EXPECT_EQ(parse_x(&app, bad),
              "--x: expected a whole number from 0 to 18446744073709551615, got \"" +
                  std::string(bad) + "\"");
  }
  EXPECT_EQ(value, UINT64_MAX);
}

TEST(Version, AcceptsLeadingZeros) {
  std::optional<uint64_t> value;
  Command app;
  add_version(&app, "--x", &value, "");
  EXPECT_EQ(parse_x(&app, "0000000012"), "");
  EXPECT_EQ(value, 12U);
  EXPECT_EQ(parse_x(&app, "9999999999"), "");
  EXPECT_EQ(value, 9'999'999'999U);
  for (const char* bad : {"10000000000", "-1", "0x10", "1.0", "v12", ""}) {
    EXPECT_EQ(parse_x(&app, bad), "--x: expected the number of a version, 0 to 9999999999, got \"" +
                                      std::string(bad) + "\"");
  }
}

TEST(Seconds, AcceptFractions) {
  double value = 7;
  Command app;
  add_seconds(&app, "--x", &value, "", 0.01, 86400);
  EXPECT_EQ(parse_x(&app, "0.25"), "");
  EXPECT_EQ(value, 0.25);
  EXPECT_EQ(parse_x(&app, "86400"), "");
  EXPECT_EQ(value, 86400);
  for (const char* bad : {"0", "-1", "86401", "nan", "inf", "5s", "", "1e9"}) {
    EXPECT_EQ(parse_x(&app, bad),
              "--x: expected seconds, 0.01 to 86400, got \"" + std::string(bad) + "\"");
  }
  EXPECT_EQ(value, 86400);
}

TEST(WholeNumber, ChecksLimitsInNarrowTypes) {
  unsigned threads = 0;
  Command app;
  add_whole_number(&app, "--x", &threads, "", 1, 1024);
  EXPECT_EQ(parse_x(&app, "1024"), "");
  EXPECT_EQ(threads, 1024U);
  EXPECT_NE(parse_x(&app, "0"), "");
  EXPECT_NE(parse_x(&app, "1025"), "");
  EXPECT_NE(parse_x(&app, "4294967297"), "");  // 1, cut to 32 bits
}

TEST(Share, ChecksItsLimits) {
  double value = 0;
  Command app;
  add_share(&app, "--x", &value, "", 0, 0.5);
  EXPECT_EQ(parse_x(&app, "0.5"), "");
  EXPECT_EQ(parse_x(&app, "1e-3"), "");
  EXPECT_EQ(value, 0.001);
  for (const char* bad : {"0", "-0.1", "0.51", "nan", "inf", "1e999", "0x1p-2", "half", "0.1x"}) {
    EXPECT_EQ(parse_x(&app, bad),
              "--x: expected a number above 0 and at most 0.5, got \"" + std::string(bad) + "\"");
  }
}

TEST(Choice, ErrorsListTheChoices) {
  std::string value;
  Command app;
  add_choice(&app, "--x", &value, "", {"auto", "tight"});
  EXPECT_EQ(parse_x(&app, "tight"), "");
  EXPECT_EQ(value, "tight");
  EXPECT_EQ(parse_x(&app, "Tight"), "--x: expected one of auto, tight, got \"Tight\"");
}

TEST(Units, BMeansBillionsInCountsAndBytesInSizes) {
  const auto count = [](const char* text) { return parse_count(text).value(); };
  const auto bytes = [](const char* text) { return parse_bytes(text).value(); };
  EXPECT_EQ(count("512"), 512U);
  EXPECT_EQ(count("1.5k"), 1500U);
  EXPECT_EQ(count("100M"), 100'000'000U);
  EXPECT_EQ(count("1.7B"), 1'700'000'000U);
  EXPECT_EQ(bytes("512"), 512U);
  EXPECT_EQ(bytes("512B"), 512U);
  EXPECT_EQ(bytes("4kB"), 4000U);
  EXPECT_EQ(bytes("64MiB"), uint64_t{64} << 20);
  EXPECT_EQ(bytes("1G"), 1'000'000'000U);
  for (const char* bad : {"", ".", "B", "1.2.3", "-1", "+1", "0x10", "1e3", "1XB", "1KiBB", "1 MB",
                          "nan", "inf", "99999999999T"}) {
    EXPECT_FALSE(parse_count(bad).ok()) << bad;
    EXPECT_FALSE(parse_bytes(bad).ok()) << bad;
  }
}

TEST(NearestWord, FindsNamesWithAtMostTwoTypos) {
  const std::vector<std::string> words = {"--output", "--codec", "--digest", "diff", "apply"};
  EXPECT_EQ(nearest_word("--outptu", words), "--output");  // two letters swapped: one slip
  EXPECT_EQ(nearest_word("--codc", words), "--codec");
  EXPECT_EQ(nearest_word("--digests", words), "--digest");
  EXPECT_EQ(nearest_word("dif", words), "diff");
  EXPECT_EQ(nearest_word("aply", words), "apply");
  EXPECT_EQ(nearest_word("diff", words), "diff");
  EXPECT_EQ(nearest_word("--threads", words), "");
  EXPECT_EQ(nearest_word("xx", words), "");
  EXPECT_EQ(nearest_word("", words), "");
}

}  // namespace

namespace {

// Returns the options of a command line; writes the parse error to `*error`.
StoreOptions parse(std::vector<std::string> words, std::string* error = nullptr) {
  Command app;
  StoreOptions options;
  add_store_options(&app, &options);
  const Parsed parsed = app.parse(std::move(words));
  if (error != nullptr) {
    *error = parsed.text;
  } else {
    EXPECT_EQ(parsed.text, "");
  }
  return options;
}

std::string complaint(const std::vector<std::string>& words) {
  std::string error;
  parse(words, &error);
  return error;
}

}  // namespace

TEST(StoreOptions, KeepDefaults) {
  const StoreOptions plain, parsed = parse({});
  EXPECT_EQ(parsed.retries, plain.retries);
  EXPECT_EQ(parsed.connections, plain.connections);
  EXPECT_EQ(parsed.call_timeout_seconds, plain.call_timeout_seconds);
  EXPECT_EQ(parsed.max_bytes_per_second, 0u);
  EXPECT_FALSE(parsed.virtual_host);
  EXPECT_FALSE(parsed.wrap);
}

TEST(StoreOptions, AcceptEveryOption) {
  const StoreOptions options =
      parse({"--endpoint", "https://host:9000", "--region", "eu-1", "--virtual-host", "--ca-file",
             "a.pem", "--connections", "4", "--retries", "0", "--rate-limit", "100MB/s",
             "--timeout", "2.5", "--inject", "slow:ms=5,tear:n=1"});
  EXPECT_EQ(options.endpoint, "https://host:9000");
  EXPECT_EQ(options.region, "eu-1");
  EXPECT_TRUE(options.virtual_host);
  EXPECT_EQ(options.ca_file, "a.pem");
  EXPECT_EQ(options.connections, 4u);
  EXPECT_EQ(options.retries, 0u);
  EXPECT_EQ(options.max_bytes_per_second, 100'000'000u);
  EXPECT_EQ(options.call_timeout_seconds, 2.5);
  EXPECT_TRUE(options.wrap);
  EXPECT_EQ(parse({"--rate-limit", "10MiB"}).max_bytes_per_second, uint64_t{10} << 20);
}

TEST(StoreOptions, RejectInvalidValues) {
  EXPECT_TRUE(contains(complaint({"--rate-limit", "fast"}), "\"fast\" is not a size"));
  EXPECT_TRUE(contains(complaint({"--rate-limit", "0"}), "--rate-limit"));
  EXPECT_TRUE(contains(complaint({"--connections", "0"}), "--connections"));
  EXPECT_TRUE(contains(complaint({"--retries", "-1"}), "--retries"));
  EXPECT_TRUE(contains(complaint({"--timeout", "0"}), "--timeout"));
}
namespace {

// ---- Advice for every error.

TEST(NextStep, ExistsForEveryCode) {
  for (int code = int(Code::kInvalidArgument); code <= int(Code::kInternal); ++code) {
    for (const char* verb : {"", "pull", "apply", "import", "export"}) {
      EXPECT_NE(next_step(Status(Code(code), "x: went wrong"), verb), "") << code << " " << verb;
    }
  }
}

TEST(NextStep, IsEmptyWhenTheMessageSaysIt) {
  EXPECT_EQ(next_step(invalid_argument("OLD is required; see deltawire diff --help"), "diff"), "");
  EXPECT_EQ(next_step(unsupported("x: no such kind of store; write s3://B/P"), "pull"), "");
}

TEST(NextStep, NamesTheFailedVerb) {
  EXPECT_EQ(next_step(invalid_argument("the output's name is empty"), "apply"),
            "deltawire apply --help shows what it takes, with examples");
  EXPECT_EQ(next_step(invalid_argument("x"), ""),
            "deltawire --help shows what it takes, with examples");
}

TEST(NextStep, DistinguishesFilesFromChains) {
  const Status cut = corruption("a.safetensors: too short for a header length: 4 bytes");
  EXPECT_EQ(next_step(cut, "publish"), "copy the file again, or save it again");
  const Status part = corruption("store/parts/1/part-00000.safetensors: expected 9 bytes, got 1");
  EXPECT_EQ(next_step(part, "pull"), "deltawire fsck STORE lists all damage");
  // A replica's own file with the same defect is repaired by a pull.
  EXPECT_EQ(next_step(base_mismatch("replica/model.safetensors: header runs past the end"), "pull"),
            "deltawire pull STORE LOCAL, without --no-repair, repairs a replica");
}

TEST(NextStep, AddsCommandsToTheLibrarysAdvice) {
  EXPECT_EQ(next_step(not_found("store: holds no run"), "pull"),
            "check the path; if it is right, publish first: deltawire publish CKPT STORE");
  EXPECT_EQ(deltawire::next_step(not_found("store: holds no run")),
            "check the path; if it is right, publish first");
  // Each row extends one of the library's, found by a message with these words alone.
  for (const std::string_view words : typed_words()) {
    const NextStep* const step = find_next_step(io_error(std::string(words)));
    ASSERT_NE(step, nullptr) << words;
    EXPECT_EQ(step->words, words);
  }
}

TEST(NextStep, DiffersForImportAndExport) {
  const Status cut = corruption("deltas/weight_v000002: too short");
  EXPECT_EQ(next_step(cut, "import"),
            "of SRC: copy the version again; of STORE: deltawire fsck STORE lists it");
  EXPECT_EQ(next_step(not_found("deltas: version 2"), "import"),
            "deltawire inspect SRC lists their versions");
  EXPECT_EQ(next_step(base_mismatch("dst: holds another run"), "export"),
            "export to an empty destination");
  EXPECT_EQ(next_step(out_of_memory("patching"), "import"),
            "repeat it with less: --memory, --threads");
}

}  // namespace
}  // namespace deltawire::cli
