// The results of `deltawire doctor`: one line per check, printed at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/context.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire::cli::doctor {

class Checks {
 public:
  explicit Checks(const Context& context) : context_(context) {}

  // `values`: additional members for --json. `next`: what to do about it.
  void ok(std::string_view what, std::string_view detail, const Json& values = {});
  void warn(std::string_view what, std::string_view detail, std::string_view next,
            const Json& values = {});
  // ok() or warn().
  void judge(bool good, std::string_view what, std::string_view detail, std::string_view next,
             const Json& values = {}) {
    good ? ok(what, detail, values) : warn(what, detail, next, values);
  }
  // With an empty `next`, prints the usual advice for such a failure.
  void fail(std::string_view what, const Status& status, std::string next = {});

  // Prints a summary; returns the exit status of the first failure.
  int finish() const;

 private:
  void add(std::string_view level, std::string_view what, std::string_view detail,
           std::string_view next, Json values);

  const Context& context_;
  Json all_ = Json::array();
  Status first_failure_;
  size_t num_failed_ = 0, num_warned_ = 0;
};

struct Needs {
  std::filesystem::path local;  // a replica's folder; empty: not given
  uint64_t model_bytes = 0;     // 0: not given
};
void check_machine(Checks* checks, const Needs& needs);

struct StoreTarget {
  std::string url;
  StoreOptions options;
  bool read_only = false;  // write no probe
};
void check_store(Checks* checks, const StoreTarget& target);
void check_engine(Checks* checks, const std::string& url, double timeout_seconds);

}  // namespace deltawire::cli::doctor
