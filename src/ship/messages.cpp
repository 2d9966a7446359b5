#include "ship/messages.h"

#include <cstring>

#include "base/json.h"

namespace deltawire {
namespace {

constexpr size_t kHeadSizeBytes = sizeof(uint32_t);
constexpr size_t kMaxErrorBytes = 4096;  // of a message that a peer words

bool is_failure(uint64_t code) {
  return code >= uint64_t(Code::kInvalidArgument) && code <= uint64_t(Code::kInternal);
}

}  // namespace

Status check_ship_seconds(double seconds) {
  constexpr double kMost = 1e6;
  if (seconds > 0 && seconds <= kMost) return {};
  return invalid_argument("a timeout of " + std::to_string(seconds) +
                          " seconds: it must be above 0 and at most 1000000");
}

Result<Message> Message::parse(std::string_view bytes) {
  if (bytes.size() < kHeadSizeBytes) return corruption("a message without a head");
  const uint64_t size = load_le<uint32_t>(bytes.data());
  bytes.remove_prefix(kHeadSizeBytes);
  if (size > bytes.size() || size > kMaxHeadBytes) {
    return corruption("a message whose head has " + std::to_string(size) + " bytes");
  }
  nlohmann::json head = parse_json(bytes.substr(0, size));
  if (!head.is_object()) return corruption("a message whose head is no JSON object");
  return Message(std::move(head), std::string(bytes.substr(size)));
}

std::string Message::serialise() const {
  const std::string head = json_text(head_, {.replace_bytes = true});
  std::string out(kHeadSizeBytes, '\0');
  store_le(out.data(), uint32_t(head.size()));
  return out + head + body_;
}

std::optional<uint64_t> Message::number(const char* key) const {
  const auto found = head_.find(key);
  if (found == head_.end() || !found->is_number_unsigned()) return {};
  return found->get<uint64_t>();
}

std::optional<std::string> Message::text(const char* key) const {
  const auto found = head_.find(key);
  if (found == head_.end() || !found->is_string()) return {};
  return found->get<std::string>();
}

bool Message::flag(const char* key) const {
  const auto found = head_.find(key);
  return found != head_.end() && found->is_boolean() && found->get<bool>();
}

nlohmann::json answer_json(uint64_t ask, const Status& status) {
  nlohmann::json json = {{"answer", ask}};
  if (!status.ok()) {
    json["code"] = uint64_t(status.code());
    json["message"] = status.message();
  }
  return json;
}

Status status_of(const Message& answer) {
  if (!answer.has("code")) return {};
  const uint64_t code = answer.number("code").value_or(0);
  return Status(is_failure(code) ? Code(code) : Code::kInternal,
                answer.text("message").value_or("").substr(0, kMaxErrorBytes));
}

}  // namespace deltawire
