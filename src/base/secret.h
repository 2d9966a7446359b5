// A string that cannot be logged or formatted by accident.
#pragma once

#include <filesystem>
#include <string>
#include <utility>

#include "deltawire/status.h"

namespace deltawire {

class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string value) : value_(std::move(value)) {}
  bool empty() const noexcept { return value_.empty(); }
  // The only access, so that uses are easy to find.
  const std::string& reveal() const noexcept { return value_; }

 private:
  std::string value_;
};

// The first line of a file; empty if `file` is empty. InvalidArgument for an empty line.
Result<Secret> read_secret(const std::filesystem::path& file);

// Replaces the secret in a peer's text by "***", whether plain, JSON-escaped or URL-encoded.
std::string hide_secret(std::string text, const Secret& secret);

}  // namespace deltawire
