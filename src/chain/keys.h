// Key files, signing and trust.
#pragma once

#include <filesystem>
#include <string>

#include "chain/chain.h"
#include "deltawire/keys.h"
#include "deltawire/status.h"

namespace deltawire {

// Signs with the private key in a file. InvalidArgument when anyone but its owner may read it, or
// when it is not a private key.
Result<Signer> make_signer(const std::filesystem::path& private_key);

// Refuses, with Corruption, records that are unsigned, signed by a key that is not in the file, or
// whose signature does not hold: what an untrusted store could have made up is damage.
Result<Verifier> make_verifier(const std::filesystem::path& public_keys);

// Accepts unsigned records and any key, but no signature that does not hold: for fsck without a
// key.
Verifier check_signatures_only();

// For either path that is empty: no signing, no checking; one who signs reads no signature that
// does not hold. InvalidArgument for a publisher that signs with a key which its own readers would
// not trust, and for a change that does not go with the key that is given or missing.
Result<ChainKeys> read_keys(const Keys& files);

// Keeps a chain signed: InvalidArgument unless what `chain` writes is signed with the key of
// `upon`, the version it builds on, or both keys are trusted, or a change of the key is allowed. So
// signing does not end, and replicas do not stop, because of a forgotten flag, and a signing
// publisher never builds on an unauthorised version.
Status check_key(const Chain& chain, const Manifest& upon);
// Whether a hop record that is signed so (empty: not at all) serves the readers of what `chain`
// writes.
bool is_signed_for(const Chain& chain, const std::string& signed_by);

}  // namespace deltawire
