// Key files. A private key is a file of one line, "deltawire-private HEX", readable by its owner
// alone; a public key "deltawire-public HEX". A file of trusted keys may have several lines, so
// that keys can be replaced; empty lines and those that begin with '#' are passed over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "deltawire/status.h"

namespace deltawire {

// What is added to a chain is signed as what it builds upon, or refused; unless:
enum class KeyChange : uint8_t {
  kNone,
  kNewKey,   // with another key, or for the first time; replicas that do not trust it stop
  kUnsigned  // no more, which stops every replica that trusts a key; not together with `sign`
};

// Key files of `deltawire keygen`; empty: none.
struct Keys {
  std::filesystem::path sign = {};   // a private key: signs what is added
  std::filesystem::path trust = {};  // public keys: records that none of them signed are refused
  KeyChange change = KeyChange::kNone;
};

// Writes a new private key (Ed25519) to `path` (mode 0600) and its public key to `path`.pub;
// returns the public key's hex digits. Conflict when either is there.
Result<std::string> make_key_files(const std::filesystem::path& path);

}  // namespace deltawire
