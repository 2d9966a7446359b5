// Base64 (RFC 4648, padded) through OpenSSL.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deltawire {

std::string base64_encode(std::string_view bytes);
// Nothing when the text is not the one encoding of some bytes.
std::optional<std::string> base64_decode(std::string_view text);

}  // namespace deltawire
