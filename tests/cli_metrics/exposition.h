// A strict reader of the Prometheus text format: every line must be valid.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace deltawire::testing {

struct Exposition {
  std::map<std::string, std::string> types;  // family -> counter, gauge, histogram
  std::map<std::string, double> samples;     // name{labels} as written -> value
  std::string problem;                       // empty: every line was understood
};

namespace exposition_detail {

// "a_bucket" belongs to the family "a" if that is a histogram.
inline std::string family_of(const Exposition& out, const std::string& name) {
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string family = name.substr(0, name.size() - suffix.size());
    const auto found = out.types.find(family);
    if (found != out.types.end() && found->second == "histogram") return family;
  }
  return name;
}

inline bool parse_value(const std::string& text, double* value) {
  if (text == "NaN") return (*value = std::nan("")), true;
  if (text == "+Inf") return (*value = INFINITY), true;
  if (text == "-Inf") return (*value = -INFINITY), true;
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  return std::regex_match(text, std::regex(R"(-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?)")) &&
         *end == '\0';
}

}  // namespace exposition_detail

inline Exposition parse_exposition(const std::string& text) {
  using namespace exposition_detail;
  static const std::regex help(R"(# HELP ([a-zA-Z_:][a-zA-Z0-9_:]*) ([^\\]|\\\\|\\n)+)");
  static const std::regex type(R"(# TYPE ([a-zA-Z_:][a-zA-Z0-9_:]*) (counter|gauge|histogram))");
  static const std::regex sample(
      R"re(([a-zA-Z_:][a-zA-Z0-9_:]*)(\{[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\["\\n])*"(?:,[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\["\\n])*")*\})? (\S+))re");
  Exposition out;
  std::set<std::string> helped, closed;
  std::string current;  // families may not be interleaved
  const auto wrong = [&](const std::string& why, const std::string& line) {
    if (out.problem.empty()) out.problem = why + ": " + line;
  };
  if (!text.empty() && text.back() != '\n') wrong("no newline at the end", text);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (std::regex_match(line, match, help)) {
      if (!helped.insert(match[1]).second) wrong("a second HELP", line);
    } else if (std::regex_match(line, match, type)) {
      if (!out.types.emplace(match[1], match[2]).second) wrong("a second TYPE", line);
      if (helped.count(match[1]) == 0) wrong("TYPE without HELP", line);
    } else if (std::regex_match(line, match, sample)) {
      const std::string family = family_of(out, match[1]);
      if (out.types.count(family) == 0) wrong("a sample without TYPE", line);
      if (family != current && !closed.insert(family).second) wrong("family comes again", line);
      current = family;
      if (out.types[family] == "counter" && !family.ends_with("_total")) wrong("not _total", line);
      double value = 0;
      if (!parse_value(match[3], &value)) wrong("not a number", line);
      if (!out.samples.emplace(match[1].str() + match[2].str(), value).second) wrong("twice", line);
    } else {
      wrong("not a line of the format", line);
    }
  }
  return out;
}

}  // namespace deltawire::testing
