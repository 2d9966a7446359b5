// What the server's answers are made of.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"
#include "deltawire/status.h"
#include "http/http_server.h"

namespace deltawire {

using Json = nlohmann::json;

HttpReply json_reply(int status, const Json& json);
HttpReply refuse(int status, const std::string& why);
HttpReply failed(const Status& status);

// A parameter of a request; none: not given. InvalidArgument, naming it, when it is no number, or
// outside.
using Parameters = std::map<std::string, std::string>;
Result<std::optional<uint64_t>> number_in(const Parameters& parameters, const char* name);
Result<uint64_t> number_in(const Parameters& parameters, const char* name, uint64_t usual,
                           uint64_t least, uint64_t most);

std::string size_text(uint64_t bytes);                       // "91.2 kB"
std::string plural(uint64_t count, const std::string& one);  // "1 version", "2 versions"

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}
inline Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace deltawire
