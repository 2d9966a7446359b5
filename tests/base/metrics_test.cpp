#include "base/metrics.h"

#include <cmath>

#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST(Metrics, RendersEachKindInOrder) {
  Metrics m;
  m.gauge("b_version", "What \\ it\nis.").set(12);
  m.counter("a_total", "Calls.", {{"call", "put"}, {"code", "ok"}}).add(2.5);
  m.counter("a_total", "Calls.", {{"call", "get"}, {"code", "ok"}}).add();
  const double bounds[] = {0.1, 1};
  Histogram& h = m.histogram("c_seconds", "Time.", bounds, {{"phase", "patch"}});
  for (const double seconds : {0.05, 0.1, 0.5, 7.0}) h.observe(seconds);
  EXPECT_EQ(m.render(),
            "# HELP a_total Calls.\n"
            "# TYPE a_total counter\n"
            "a_total{call=\"get\",code=\"ok\"} 1\n"
            "a_total{call=\"put\",code=\"ok\"} 2.5\n"
            "# HELP b_version What \\\\ it\\nis.\n"
            "# TYPE b_version gauge\n"
            "b_version 12\n"
            "# HELP c_seconds Time.\n"
            "# TYPE c_seconds histogram\n"
            "c_seconds_bucket{phase=\"patch\",le=\"0.1\"} 2\n"
            "c_seconds_bucket{phase=\"patch\",le=\"1\"} 3\n"
            "c_seconds_bucket{phase=\"patch\",le=\"+Inf\"} 4\n"
            "c_seconds_sum{phase=\"patch\"} 7.65\n"
            "c_seconds_count{phase=\"patch\"} 4\n");
}

TEST(Metrics, EscapesLabelsAndFormatsNumbers) {
  Metrics m;
  m.gauge("a", "h").set(std::nan(""));
  m.gauge("b", "h").set(INFINITY);
  m.gauge("c", "h").set(double(uint64_t{123'456'789'012'345}));
  m.gauge("d", "h", {{"path", "a\"b\\c\nd"}}).set(-0.25);
  const std::string text = m.render();
  for (const char* line : {"\na NaN\n", "\nb +Inf\n", "\nc 123456789012345\n",
                           "\nd{path=\"a\\\"b\\\\c\\nd\"} -0.25\n"}) {
    EXPECT_TRUE(contains(text, line)) << line << text;
  }
}

TEST(Metrics, SameNameAndLabelsGiveTheSameCounter) {
  Metrics m;
  m.counter("a_total", "h", {{"x", "1"}}).add();
  m.counter("a_total", "h", {{"x", "1"}}).add();
  EXPECT_EQ(m.counter("a_total", "h", {{"x", "1"}}).value(), 2);
}

TEST(Metrics, RejectsASecondTypeForAName) {
  Metrics m;
  m.counter("a_total", "h").add();
  m.gauge("a_total", "h").set(5);
  EXPECT_EQ(m.render(), "# HELP a_total h\n# TYPE a_total counter\na_total 1\n");
}

TEST(Metrics, AddsUpAcrossThreads) {
  Metrics m;
  const double bounds[] = {0.5};
  in_threads(4, [&](unsigned) {
    for (int i = 0; i < 1000; ++i) {
      m.counter("a_total", "h").add();
      m.histogram("b", "h", bounds).observe(i % 2);
      if (i % 100 == 0) m.render();
    }
  });
  EXPECT_EQ(m.counter("a_total", "h").value(), 4000);
  EXPECT_EQ(m.histogram("b", "h", bounds).count(0), 2000U);
  EXPECT_EQ(m.histogram("b", "h", bounds).sum(), 2000);
}

}  // namespace
}  // namespace deltawire::testing
