#include "carrier/net/handshake.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstdlib>

#include "base/bytes.h"

namespace deltawire {
namespace {

constexpr std::string_view kMagic = "dwgroup1";
constexpr size_t kPurposeBytes = 16, kCallerBytes = 8, kChallengeBytes = 32;
constexpr size_t kCallBytes = 8 + kPurposeBytes + kCallerBytes + kChallengeBytes;
constexpr char kWelcome = 1, kWrongProof = 2;
constexpr std::string_view kCallerRole = "caller", kAnswererRole = "answerer";

std::string random_challenge() {
  std::string bytes(kChallengeBytes, '\0');
  auto* const data = reinterpret_cast<unsigned char*>(bytes.data());
  if (RAND_bytes(data, int(bytes.size())) != 1) std::abort();  // no randomness: no security
  return bytes;
}

std::string_view text_of(const Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

Status check_magic(std::string_view bytes) {
  const std::string_view theirs = bytes.substr(0, kMagic.size());
  if (theirs == kMagic) return {};
  if (theirs.substr(0, 7) == kMagic.substr(0, 7)) {
    return unsupported("it speaks another version of the protocol");
  }
  return corruption("it does not speak the protocol of deltawire's groups");
}

}  // namespace

Mac hmac_sha256(std::string_view key, std::string_view text) {
  Mac mac{};
  unsigned size = unsigned(mac.size());
  // An empty key is a null pointer to some, which means "the one before".
  const char* const bytes = key.empty() ? "" : key.data();
  if (HMAC(EVP_sha256(), bytes, int(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), mac.data(),
           &size) == nullptr) {
    std::abort();  // no memory inside OpenSSL: nothing may pass for a proof
  }
  return mac;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Handshake::Handshake(Secret secret, std::string_view purpose, Step step)
    : secret_(std::move(secret)), purpose_(purpose), step_(step) {
  purpose_.resize(kPurposeBytes, '\0');
}

Handshake Handshake::calling(Secret secret, std::string_view purpose, uint64_t caller) {
  Handshake handshake(std::move(secret), purpose, Step::kAnswer);
  handshake.caller_ = caller;
  return handshake;
}

Handshake Handshake::answering(Secret secret, std::string_view purpose) {
  return Handshake(std::move(secret), purpose, Step::kCall);
}

std::string Handshake::begin() {
  if (step_ != Step::kAnswer || !said_.empty()) return {};
  char caller[kCallerBytes];
  store_le(caller, caller_);
  said_ = std::string(kMagic) + purpose_ + std::string(caller, kCallerBytes) + random_challenge();
  return said_;
}

size_t Handshake::wants() const noexcept {
  switch (step_) {
    case Step::kCall:
      return kCallBytes;
    case Step::kAnswer:
      return kMagic.size() + kChallengeBytes;
    case Step::kProof:
      return sizeof(Mac);
    case Step::kVerdict:
      return 1 + sizeof(Mac);
    case Step::kDone:
      return 0;
  }
  return 0;
}

Mac Handshake::prove(std::string_view role) const {
  return hmac_sha256(secret_.reveal(), std::string(role) + '\0' + said_);
}

Status Handshake::advance(std::string* received, std::string* reply) {
  while (!done()) {
    // Nonsense is seen at its first bytes: nobody waits for more of it.
    const bool first = step_ == Step::kCall || step_ == Step::kAnswer;
    if (first && received->size() >= kMagic.size()) DW_RETURN_IF_ERROR(check_magic(*received));
    const size_t size = wants();
    if (received->size() < size) return {};
    const std::string bytes = received->substr(0, size);
    received->erase(0, size);
    DW_RETURN_IF_ERROR(take(bytes, reply));
  }
  return {};
}

Status Handshake::take(std::string_view bytes, std::string* reply) {
  switch (step_) {
    case Step::kCall: {
      const std::string_view purpose = bytes.substr(kMagic.size(), kPurposeBytes);
      if (purpose != purpose_) return corruption("it wants something else than is offered here");
      caller_ = load_le<uint64_t>(bytes.data() + kMagic.size() + kPurposeBytes);
      const std::string answer = std::string(kMagic) + random_challenge();
      said_ = std::string(bytes) + answer;
      reply->append(answer);
      step_ = Step::kProof;
      return {};
    }
    case Step::kAnswer:
      said_.append(bytes);
      reply->append(text_of(prove(kCallerRole)));
      step_ = Step::kVerdict;
      return {};
    case Step::kProof: {
      const bool same = equal_in_constant_time(bytes, text_of(prove(kCallerRole)));
      reply->push_back(same ? kWelcome : kWrongProof);
      reply->append(same ? std::string(text_of(prove(kAnswererRole)))
                         : std::string(sizeof(Mac), '\0'));
      if (!same) return invalid_argument("the shared secret does not match");
      step_ = Step::kDone;
      return {};
    }
    case Step::kVerdict:
      if (bytes[0] != kWelcome ||
          !equal_in_constant_time(bytes.substr(1), text_of(prove(kAnswererRole)))) {
        return invalid_argument("the shared secret does not match");
      }
      step_ = Step::kDone;
      return {};
    case Step::kDone:
      break;
  }
  return internal_error("the handshake is over");
}

}  // namespace deltawire
