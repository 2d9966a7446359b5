// JSON to text and back. Here, and nowhere else, the templates that do it are made: they take
// longer to compile than all that uses them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace deltawire {

// Discarded (`is_discarded()`, no object, no array) where `text` is no JSON.
nlohmann::json parse_json(std::string_view text);

struct JsonStyle {
  int indent = -1;             // -1: all in one line
  bool ascii = false;          // write \u1234 for what is not ASCII
  bool replace_bytes = false;  // write U+FFFD for bytes that are no UTF-8; without it they throw
};
std::string json_text(const nlohmann::json& json, JsonStyle style = {});
std::string json_text(const nlohmann::ordered_json& json, JsonStyle style = {});

}  // namespace deltawire
