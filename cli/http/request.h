// The beginning of an HTTP request: hostile input, read with limits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "cli/http/server.h"

namespace deltawire::cli {

struct RequestHead {
  HttpMessage message;       // without its body
  size_t body_bytes = 0;     // that follow
  std::string_view refusal;  // "400 Bad Request", with `why`; empty: none
  std::string_view why;
};

// `text` ends with the empty line that ends a head. Bodies are of a known length, up to
// `max_body_bytes`; with 0 none is looked for.
RequestHead parse_request_head(std::string_view text, size_t max_body_bytes);

}  // namespace deltawire::cli
