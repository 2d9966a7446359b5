// What `deltawire doctor` has found: a line for each check, printed as soon as it is known.
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

  // `values`: more for machines. `next`: what to do about it.
  void ok(std::string_view what, std::string_view detail, const Json& values = {});
  void warn(std::string_view what, std::string_view detail, std::string_view next,
            const Json& values = {});
  // Empty `next`: what helps with such a failure in general.
  void fail(std::string_view what, const Status& status, std::string next = {});

  // Says how many failed; gives the exit status, that of the first failure.
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
  std::filesystem::path local;  // a replica's folder; empty: none was named
  uint64_t model_bytes = 0;     // 0: no model was named
};
void check_machine(Checks* checks, const Needs& needs);

struct StoreTarget {
  std::string url;
  StoreOptions options;
  bool read_only = false;  // put no probe
};
void check_store(Checks* checks, const StoreTarget& target);
void check_engine(Checks* checks, const std::string& url, double timeout_seconds);

}  // namespace deltawire::cli::doctor
