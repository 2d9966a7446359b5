// POST /pull_weights as slime's branch of SGLang answers it: {"success": ..., "message": ...}, 200
// or 400. Ours adds what was done, and what kind of failure it was.
#pragma once

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/context.h"
#include "cli/http/server.h"
#include "cli/slime/pull_options.h"

namespace deltawire::cli {

class PullEndpoint {
 public:
  // `roots`: paths of requests lie below one of them, symbolic links and ".." followed.
  PullEndpoint(const Context& context, const SlimePullSettings& settings,
               std::vector<std::filesystem::path> roots)
      : context_(context), settings_(settings), roots_(std::move(roots)) {}

  // Any thread, several at a time; pulls into one folder wait for each other.
  HttpAnswer answer(const HttpMessage& message) const;
  static HttpAnswer refuse(std::string_view status, std::string_view why);

 private:
  HttpAnswer pull(const HttpMessage& message) const;
  Result<std::filesystem::path> confined(const std::string& field, const std::string& path) const;

  const Context& context_;
  const SlimePullSettings& settings_;
  const std::vector<std::filesystem::path> roots_;
  mutable std::atomic<size_t> under_way_{0};
};

}  // namespace deltawire::cli
