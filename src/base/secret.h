// A string that must not be seen: it can be used, but neither logged nor formatted by accident.
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
  // The only way to it: easy to search for.
  const std::string& reveal() const noexcept { return value_; }

 private:
  std::string value_;
};

// The first line of a file; empty without one. InvalidArgument when that is empty.
Result<Secret> read_secret(const std::filesystem::path& file);

// Text of somebody who was given the secret, with "***" in its place wherever it stands: as it is,
// as JSON has it or as a URL has it.
std::string hide_secret(std::string text, const Secret& secret);

}  // namespace deltawire
