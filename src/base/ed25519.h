// Ed25519 signatures through OpenSSL.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "deltawire/status.h"

namespace deltawire {

using PrivateKey = std::array<uint8_t, 32>;  // the seed
using PublicKey = std::array<uint8_t, 32>;
using SignatureBytes = std::array<uint8_t, 64>;

Result<PrivateKey> make_private_key();
Result<PublicKey> public_key_of(const PrivateKey& key);
Result<SignatureBytes> sign_ed25519(const PrivateKey& key, std::string_view text);
bool verify_ed25519(const PublicKey& key, std::string_view text, const SignatureBytes& signature);

}  // namespace deltawire
