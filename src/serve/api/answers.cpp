#include "serve/api/answers.h"

#include <cstdio>
#include <iterator>

#include "store/http_store.h"

namespace deltawire {

HttpReply json_reply(int status, const Json& json) {
  return {.status = status,
          .content_type = "application/json",
          .body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n",
          .headers = {{kStoreHeader, "1"}, {"Cache-Control", "no-store"}}};
}

HttpReply refuse(int status, const std::string& why) {
  return json_reply(status, {{"error", why}});
}

HttpReply failed(const Status& status) {
  switch (status.code()) {
    case Code::kNotFound:
      return refuse(404, status.message());
    case Code::kInvalidArgument:
      return refuse(400, status.message());
    case Code::kUnavailable:
    case Code::kCancelled:
      return refuse(503, status.message());
    default:
      return refuse(500, status.message());
  }
}

Result<std::optional<uint64_t>> number_in(const Parameters& parameters, const char* name) {
  const auto found = parameters.find(name);
  if (found == parameters.end()) return std::optional<uint64_t>();
  uint64_t value = 0;
  if (!parse_number(found->second, &value)) {
    return invalid_argument(std::string(name) + ": not a number");
  }
  return std::optional(value);
}

Result<uint64_t> number_in(const Parameters& parameters, const char* name, uint64_t usual,
                           uint64_t least, uint64_t most) {
  DW_ASSIGN_OR_RETURN(const auto given, number_in(parameters, name));
  const uint64_t value = given.value_or(usual);
  if (value >= least && value <= most) return value;
  return invalid_argument(std::string(name) + ": expected " + std::to_string(least) + " to " +
                          std::to_string(most));
}

std::string plural(uint64_t count, const std::string& one) {
  return std::to_string(count) + " " + one + (count == 1 ? "" : "s");
}

std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double size = double(bytes);
  size_t unit = 0;
  for (; size >= 999.5 && unit + 1 < std::size(kUnits); ++unit) size /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, "%.*f %s",
                unit == 0 || size >= 99.95 ? 0
                : size < 9.995             ? 2
                                           : 1,
                size, kUnits[unit]);
  return text;
}

}  // namespace deltawire
