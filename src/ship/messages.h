// What publisher and replicas say to each other through a hub: a JSON object and bytes behind it.
// docs/carriers.md lists the messages. A peer's words are hostile until they are checked.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "deltawire/status.h"

namespace deltawire {

inline constexpr unsigned kShipProtocol = 1;
inline constexpr uint64_t kMaxHeadBytes = uint64_t{8} << 20;  // of a message's JSON
inline constexpr uint64_t kAskBytes = uint64_t{4} << 20;      // the most that one answer carries
inline constexpr uint64_t kMaxPutBytes = uint64_t{64} << 10;  // of what a replica may put

// Every wait is finite.
Status check_ship_seconds(double seconds);

class Message {
 public:
  Message() : head_(nlohmann::json::object()) {}
  explicit Message(nlohmann::json head, std::string body = {})
      : head_(std::move(head)), body_(std::move(body)) {}

  static Message of(nlohmann::json head) { return Message(std::move(head)); }
  // Corruption for a malformed message.
  static Result<Message> parse(std::string_view bytes);
  std::string serialise() const;

  bool has(const char* key) const { return head_.contains(key); }
  // None: not there, or of another type, or negative.
  std::optional<uint64_t> number(const char* key) const;
  std::optional<std::string> text(const char* key) const;
  bool flag(const char* key) const;
  const nlohmann::json& head() const noexcept { return head_; }
  const std::string& body() const noexcept { return body_; }
  std::string take_body() { return std::move(body_); }

 private:
  nlohmann::json head_;
  std::string body_;
};

// A failure as an answer, and back.
nlohmann::json answer_json(uint64_t ask, const Status& status);
Status status_of(const Message& answer);

}  // namespace deltawire
