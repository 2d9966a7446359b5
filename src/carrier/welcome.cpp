#include "carrier/welcome.h"

#include <algorithm>

#include "base/bytes.h"

namespace deltawire {
namespace {

constexpr size_t kWelcomeBytes = 16;

}  // namespace

Status check_hello(const HelloWords& words) {
  if (words.name.empty() || words.name.size() > kMaxNameBytes) {
    return invalid_argument("a member's name has 1 to " + std::to_string(kMaxNameBytes) + " bytes");
  }
  if (!std::all_of(words.name.begin(), words.name.end(),
                   [](char c) { return uint8_t(c) >= 0x20 && uint8_t(c) < 0x7f; })) {
    return invalid_argument("a member's name is of printable ASCII characters");
  }
  if (words.hello.size() > kMaxHelloBytes) {
    return invalid_argument("a member's first message has at most " +
                            std::to_string(kMaxHelloBytes) + " bytes");
  }
  return {};
}

std::string write_hello(const HelloWords& words) {
  return char(words.name.size()) + words.name + words.hello;
}

Result<HelloWords> read_hello(const Frame& frame) {
  const size_t size = frame.payload.empty() ? 0 : uint8_t(frame.payload[0]);
  if (frame.kind != FrameKind::kHello || frame.payload.size() < 1 + size) {
    return corruption("no hello");
  }
  HelloWords words{frame.payload.substr(1, size), frame.payload.substr(1 + size)};
  DW_RETURN_IF_ERROR(check_hello(words));
  return words;
}

std::string write_welcome(const WelcomeWords& words) {
  std::string text(kWelcomeBytes, '\0');
  store_le(text.data(), words.id);
  store_le(text.data() + 8, words.silence_seconds);
  return text;
}

Result<WelcomeWords> read_welcome(const Frame& frame) {
  if (frame.kind != FrameKind::kWelcome || frame.payload.size() != kWelcomeBytes) {
    return corruption("no welcome");
  }
  const WelcomeWords words{load_le<uint64_t>(frame.payload.data()),
                           load_le<double>(frame.payload.data() + 8)};
  if (!(words.silence_seconds > 0 && words.silence_seconds < 1e6)) {
    return corruption("a silence of no sensible length");
  }
  return words;
}

}  // namespace deltawire
