// JSON to text and back. The templates are instantiated only here, because they are slow to
// compile.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace deltawire {

// Discarded (`is_discarded()`, neither object nor array) if `text` is not JSON.
nlohmann::json parse_json(std::string_view text);

// The text of this member; "" where `json` is not an object that has one.
std::string string_in(const nlohmann::json& json, const char* key);

struct JsonStyle {
  int indent = -1;             // -1: all in one line
  bool ascii = false;          // write \u1234 for what is not ASCII
  bool replace_bytes = false;  // write U+FFFD for bytes that are not UTF-8 instead of throwing
};
std::string json_text(const nlohmann::json& json, JsonStyle style = {});
std::string json_text(const nlohmann::ordered_json& json, JsonStyle style = {});

}  // namespace deltawire
