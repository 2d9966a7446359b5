#include "tensor/json_handler.h"

#include <utility>

#include "tensor/defects.h"
#include "tensor/text.h"

namespace deltawire {

bool JsonHandler::fail(Status status) {
  status_ = std::move(status);
  return false;
}

bool JsonHandler::descend() {
  if (++depth_ <= max_depth_) return true;
  return fail(corruption(std::string(defect::kTooDeep) + ": at most " + std::to_string(max_depth_) +
                         " levels"));
}

bool JsonHandler::end_object() {
  root_closed_ = --depth_ == 0;
  return on_object_end();
}

bool JsonHandler::end_array() {
  --depth_;
  return on_array_end();
}

// The parser's own text is dropped: it quotes the input, of any length and any bytes.
bool JsonHandler::parse_error(size_t position, const std::string&,
                              const nlohmann::detail::exception&) {
  const std::string_view phrase = root_closed_ ? defect::kTrailingBytes : defect::kNotJson;
  return fail(corruption(std::string(phrase) + ": at byte " + std::to_string(position)));
}

Status parse_json_object(std::string_view text, JsonHandler& handler) {
  if (!is_utf8(text)) return corruption(std::string(defect::kNotUtf8));
  // JSON never holds a raw NUL, but the parser takes one for the end of its input.
  if (const size_t at = text.find('\0'); at != text.npos) {
    return corruption(std::string(defect::kNotJson) + ": a zero byte at byte " +
                      std::to_string(at + 1));
  }
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] != '{') return corruption(std::string(defect::kNotObject));
  nlohmann::json_sax<nlohmann::json>& events = handler;
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return std::move(handler.status_);
}

}  // namespace deltawire
