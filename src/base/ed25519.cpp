#include "base/ed25519.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <memory>

#include "base/text.h"

namespace deltawire {
namespace {

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;
using Context = std::unique_ptr<EVP_MD_CTX, FreeContext>;

Status failed(const char* what) { return internal_error(std::string("OpenSSL: cannot ") + what); }

}  // namespace

Result<PrivateKey> make_private_key() {
  PrivateKey key;
  if (RAND_priv_bytes(key.data(), int(key.size())) != 1) return failed("get randomness");
  return key;
}

Result<PublicKey> public_key_of(const PrivateKey& key) {
  const Key own(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()));
  PublicKey result;
  size_t size = result.size();
  if (!own || EVP_PKEY_get_raw_public_key(own.get(), result.data(), &size) != 1) {
    return failed("derive the public key");
  }
  return result;
}

Result<SignatureBytes> sign_ed25519(const PrivateKey& key, std::string_view text) {
  const Key own(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()));
  const Context context(EVP_MD_CTX_new());
  SignatureBytes signature;
  size_t size = signature.size();
  if (!own || !context ||
      EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, own.get()) != 1 ||
      EVP_DigestSign(context.get(), signature.data(), &size, text_bytes(text).data(),
                     text.size()) != 1) {
    return failed("sign");
  }
  return signature;
}

bool verify_ed25519(const PublicKey& key, std::string_view text, const SignatureBytes& signature) {
  const Key own(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, key.data(), key.size()));
  const Context context(EVP_MD_CTX_new());
  return own && context &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, own.get()) == 1 &&
         EVP_DigestVerify(context.get(), signature.data(), signature.size(),
                          text_bytes(text).data(), text.size()) == 1;
}

}  // namespace deltawire
