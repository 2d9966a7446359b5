// How two ends of a connection prove to each other that they know the same secret, without sending
// it. Bytes in, bytes out, no I/O: docs/carriers.md has the layout.
//
//   caller   -> answerer   "dwgroup1", what it is for (16), who calls (8), challenge (32)
//   answerer -> caller     "dwgroup1", challenge (32)
//   caller   -> answerer   proof (32)
//   answerer -> caller     verdict (1), proof (32)
//
// A proof is HMAC-SHA-256 by the secret of the role and of all that was said before. The caller
// proves first: who only listens learns nothing to try secrets on.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/secret.h"
#include "deltawire/status.h"

namespace deltawire {

using MacKey = std::array<uint8_t, 32>;
using Mac = std::array<uint8_t, 32>;

Mac hmac_sha256(std::string_view key, std::string_view text);
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept;

class Handshake {
 public:
  // `purpose`, at most 16 bytes, keeps connections of different kinds apart.
  static Handshake calling(Secret secret, std::string_view purpose, uint64_t caller);
  static Handshake answering(Secret secret, std::string_view purpose);

  // What to send first.
  std::string begin();
  // Takes what it needs off the front of `received`, adds what to send to `reply`. Fails for good:
  // InvalidArgument where the secrets differ, Unsupported for another version, Corruption for what
  // is no handshake. What stands in `reply` should then still be sent.
  Status advance(std::string* received, std::string* reply);
  bool done() const noexcept { return step_ == Step::kDone; }
  // How many bytes advance() waits for. Whoever reads no more finds all that follows untouched.
  size_t wants() const noexcept;

  // When it is done.
  uint64_t caller() const noexcept { return caller_; }
  // For messages of either direction, of this connection alone.
  MacKey key_of_caller() const { return prove("messages of the caller"); }
  MacKey key_of_answerer() const { return prove("messages of the answerer"); }

 private:
  enum class Step : uint8_t { kCall, kAnswer, kProof, kVerdict, kDone };
  Handshake(Secret secret, std::string_view purpose, Step step);

  Status take(std::string_view bytes, std::string* reply);
  Mac prove(std::string_view role) const;

  Secret secret_;
  std::string purpose_;  // 16 bytes
  std::string said_;     // by both
  uint64_t caller_ = 0;
  Step step_;
};

}  // namespace deltawire
