#pragma once

#include <string>

#include "deltawire/digest.h"
#include "status.h"

namespace deltawire::python {

inline DigestKind digest_kind(const std::string& name) {
  const auto kind = parse_digest_kind(name);
  if (!kind) {
    throw StatusError(invalid_argument(
        "digest \"" + name + "\" is not known; known: sum128, xxh3-128, blake3, adler32, sha-256"));
  }
  return *kind;
}

}  // namespace deltawire::python
