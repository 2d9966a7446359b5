// Text that may have come from outside, made fit for a log: what looks like a secret is replaced.
#pragma once

#include <string>
#include <string_view>

#include "base/secret.h"

namespace deltawire {

// "https://user:pass@host/" becomes "https://***@host/"; the values of Authorization and similar
// headers and of parameters such as X-Amz-Signature become "***".
std::string redact(std::string_view text);

// Text of somebody who was given the secret, with "***" in its place wherever it stands: as it is,
// as JSON has it or as a URL has it.
std::string hide_secret(std::string text, const Secret& secret);

// "authorization", "api_key", "X-Amz-Security-Token", ...: the value of such a name is a secret.
bool names_a_secret(std::string_view name);

}  // namespace deltawire
