#include "cli/http/request.h"

#include <algorithm>

#include "tensor/text.h"

namespace deltawire::cli {
namespace {

bool is_header(std::string_view name, std::string_view wanted) {
  return std::equal(name.begin(), name.end(), wanted.begin(), wanted.end(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? char(a - 'A' + 'a') : a) == b;
  });
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

RequestHead refused(std::string_view status, std::string_view why) {
  RequestHead head;
  head.refusal = status;
  head.why = why;
  return head;
}

}  // namespace

RequestHead parse_request_head(std::string_view text, size_t max_body_bytes) {
  size_t end = text.find("\r\n");
  const std::string_view line = text.substr(0, end);
  const size_t space = line.find(' '), next = line.find(' ', space + 1);
  if (space == std::string_view::npos || next == std::string_view::npos ||
      !line.substr(next + 1).starts_with("HTTP/1.")) {
    return refused("400 Bad Request", "not HTTP");
  }
  RequestHead head;
  const std::string_view target = line.substr(space + 1, next - space - 1);
  head.message.method = line.substr(0, space);
  head.message.path = target.substr(0, target.find('?'));
  bool has_length = false;
  while (max_body_bytes != 0) {
    const size_t begin = end + 2;
    end = text.find("\r\n", begin);
    if (end == std::string_view::npos || end == begin) break;
    const std::string_view header = text.substr(begin, end - begin);
    const size_t colon = header.find(':');
    if (colon == std::string_view::npos) return refused("400 Bad Request", "not HTTP");
    const std::string_view name = header.substr(0, colon),
                           value = trimmed(header.substr(colon + 1));
    if (is_header(name, "content-type")) head.message.content_type = value;
    if (is_header(name, "transfer-encoding")) {
      return refused("411 Length Required", "a body needs a Content-Length");
    }
    if (!is_header(name, "content-length")) continue;
    uint64_t bytes = 0;
    if (has_length || !parse_number(value, &bytes)) {
      return refused("400 Bad Request", "Content-Length is no number");
    }
    if (bytes > max_body_bytes) return refused("413 Content Too Large", "the body is too large");
    has_length = true;
    head.body_bytes = size_t(bytes);
  }
  return head;
}

}  // namespace deltawire::cli
