// The first frames of a hub and of a member: structs to bytes and back.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "carrier/frames.h"

namespace deltawire {

inline constexpr std::string_view kHubPurpose = "hub";
// A name and a first message are no place for much: who sends them is not a member yet.
inline constexpr size_t kMaxNameBytes = 128;
inline constexpr size_t kMaxHelloBytes = size_t{64} << 10;

struct HelloWords {
  std::string name;
  std::string hello;
};
std::string write_hello(const HelloWords& words);
Result<HelloWords> read_hello(const Frame& frame);
Status check_hello(const HelloWords& words);  // short, printable

struct WelcomeWords {
  uint64_t id = 0;
  double silence_seconds = 0;
};
std::string write_welcome(const WelcomeWords& words);
Result<WelcomeWords> read_welcome(const Frame& frame);

}  // namespace deltawire
