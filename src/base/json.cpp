#include "base/json.h"

namespace deltawire {
namespace {

template <typename Json>
std::string text_of(const Json& json, JsonStyle style) {
  using OnError = typename Json::error_handler_t;
  return json.dump(style.indent, ' ', style.ascii,
                   style.replace_bytes ? OnError::replace : OnError::strict);
}

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  return nlohmann::json::parse(text, nullptr, false);
}

std::string string_in(const nlohmann::json& json, const char* key) {
  if (!json.is_object()) return {};
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string json_text(const nlohmann::json& json, JsonStyle style) { return text_of(json, style); }

std::string json_text(const nlohmann::ordered_json& json, JsonStyle style) {
  return text_of(json, style);
}

}  // namespace deltawire
