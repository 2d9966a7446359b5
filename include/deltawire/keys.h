// Key files. A private key is a file of one line, "deltawire-private HEX", readable by its owner
// alone; a public key "deltawire-public HEX". A file of trusted keys may have several lines, so
// that keys can be replaced; empty lines and those that begin with '#' are passed over.
#pragma once

#include <filesystem>
#include <string>

#include "deltawire/status.h"

namespace deltawire {

// Writes a new private key (Ed25519) to `path` (mode 0600) and its public key to `path`.pub;
// returns the public key's hex digits. Conflict when either is there.
Result<std::string> make_key_files(const std::filesystem::path& path);

}  // namespace deltawire
