#include "base/log.h"

#include <nlohmann/json.hpp>

#include "base/secret.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

LogRecord record(LogLevel level, std::string_view event, std::vector<LogField> fields) {
  return {std::chrono::system_clock::time_point(std::chrono::milliseconds(1'767'225'600'042)),
          level, event, std::move(fields)};
}

std::string text_after_time(const LogRecord& r) { return format_log_text(r).substr(9); }

TEST(Log, TextIsOneReadableLine) {
  EXPECT_EQ(
      text_after_time(record(LogLevel::kInfo, "pull.committed",
                             {{"version", 12U}, {"bytes", uint64_t{1} << 63}, {"delta", -3}})),
      "pull committed version=12 bytes=9223372036854775808 delta=-3");
  EXPECT_EQ(text_after_time(
                record(LogLevel::kWarning, "engine.pause_failed",
                       {{"seconds", 0.25}, {"again", true}, {"serving", std::optional<int>()}})),
            "warning: engine pause failed seconds=0.25 again=true serving=none");
}

TEST(Log, NumbersAreRounded) {
  const auto shown = [](double number) {
    const LogRecord record{{}, LogLevel::kInfo, "x", {{"n", number}}};
    const std::string text = format_log_text(record), json = format_log_json(record);
    return text.substr(text.find('=') + 1) + " " + json.substr(json.find("\"n\":") + 4);
  };
  EXPECT_EQ(shown(6.238414870412971), "6.238 6.238}");
  EXPECT_EQ(shown(0.000123456789), "0.0001235 0.0001235}");
  EXPECT_EQ(shown(12345.678), "12346 12346.0}");
  EXPECT_EQ(shown(1794776464.25), "1794776464 1794776464.0}");
  EXPECT_EQ(shown(-2.0 / 3), "-0.6667 -0.6667}");
  EXPECT_EQ(shown(0), "0 0.0}");
  EXPECT_EQ(shown(5e-324), "5e-324 5e-324}");
  EXPECT_EQ(shown(1e300), "1e+300 1e+300}");
}

TEST(Log, TextQuotesValuesWithSpecialCharacters) {
  EXPECT_EQ(text_after_time(record(LogLevel::kInfo, "e",
                                   {{"a", "x y"},
                                    {"b", ""},
                                    {"c", "q\"\\"},
                                    {"d", "l1\nl2\x1b[0m"},
                                    {"e", "s3://b/p"},
                                    {"f", "k=v"}})),
            R"(e a="x y" b="" c="q\"\\" d="l1\nl2\x1b[0m" e=s3://b/p f="k=v")");
}

TEST(Log, TextStartsWithTheTimeOfDay) {
  const std::string line = format_log_text(record(LogLevel::kInfo, "e", {}));
  ASSERT_EQ(line.size(), 10U) << line;
  for (const size_t i : {0, 1, 3, 4, 6, 7}) EXPECT_TRUE(std::isdigit(line[i])) << line;
  EXPECT_EQ(line[2], ':');
  EXPECT_EQ(line[5], ':');
}

TEST(Log, JsonKeepsTypesAndOrder) {
  EXPECT_EQ(
      format_log_json(record(LogLevel::kError, "pull.failed",
                             {{"version", 12},
                              {"seconds", 0.5},
                              {"ok", false},
                              {"serving", std::optional<uint64_t>()},
                              {"error", corruption("part 3")}})),
      R"({"time":"2026-01-01T00:00:00.042Z","level":"error","event":"pull.failed",)"
      R"("version":12,"seconds":0.5,"ok":false,"serving":null,"error":"corruption: part 3"})");
}

TEST(Log, JsonIsValidAndOnOneLine) {
  const auto line = format_log_json(record(
      LogLevel::kInfo, "e", {{"bytes", "\xff\xfe"}, {"line", "a\nb"}, {"nan", std::nan("")}}));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << line;
  EXPECT_EQ(json["line"], "a\nb");
  EXPECT_EQ(json["nan"], "nan");
}

TEST(Log, RejectsSecretsAtCompileTime) {
  static_assert(!std::is_constructible_v<LogValue, Secret>);
}

class LogSinkTest : public ::testing::Test {
 protected:
  void TearDown() override { set_log_sink(LogLevel::kOff, {}); }
  std::vector<std::string> events_;
  LogSink collect() {
    return [this](const LogRecord& r) { events_.emplace_back(r.event); };
  }
};

TEST_F(LogSinkTest, WritesNothingByDefault) {
  ::testing::internal::CaptureStderr();
  log_event(LogLevel::kError, "lost", {{"a", 1}});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_FALSE(log_enabled(LogLevel::kError));
}

TEST_F(LogSinkTest, DropsEventsBelowTheSinkLevel) {
  set_log_sink(LogLevel::kWarning, collect());
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    log_event(level, log_level_name(level));
  }
  EXPECT_EQ(events_, (std::vector<std::string>{"warning", "error"}));
  set_log_sink(LogLevel::kOff, collect());
  log_event(LogLevel::kError, "more");
  EXPECT_EQ(events_.size(), 2U);
}

TEST_F(LogSinkTest, ReceivesEventsOfAllThreads) {
  set_log_sink(LogLevel::kInfo, collect());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 100; ++i) log_event(LogLevel::kInfo, "e", {{"i", i}});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(events_.size(), 400U);
}

TEST(Log, ParsesLevelNames) {
  for (const char* name : {"debug", "info", "warning", "error", "off"}) {
    ASSERT_TRUE(parse_log_level(name).has_value());
    EXPECT_EQ(log_level_name(*parse_log_level(name)), name);
  }
  EXPECT_EQ(parse_log_level("loud"), std::nullopt);
}

TEST(Log, DoesNotLogEventsFromInsideASink) {
  std::vector<std::string> events;
  set_log_sink(LogLevel::kInfo, [&](const LogRecord& record) {
    events.emplace_back(record.event);
    log_event(LogLevel::kError, "caused.by_the_sink");
  });
  log_event(LogLevel::kInfo, "first");
  log_event(LogLevel::kInfo, "second");
  set_log_sink(LogLevel::kOff, {});
  EXPECT_EQ(events, (std::vector<std::string>{"first", "second"}));
}

}  // namespace
}  // namespace deltawire::testing
