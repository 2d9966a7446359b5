// The records of a chain: bytes <-> structs, no I/O. docs/format.md, "The chain", is their
// contract.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/digest.h"
#include "deltawire/manifest.h"
#include "deltawire/status.h"
#include "format/record.h"
#include "format/schema.h"
#include "format/state_digest.h"

namespace deltawire {

// Limits on what is read from a store that is not trusted.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxHopBytes = uint64_t{16} << 20;

// A hop record: another way to reach `version`: from nothing (an anchor) or from an older version
// (a merged delta). It contains the digests of the manifests at both ends, so that a path through
// it needs no manifest in between.
struct HopRecord {
  std::string run;
  uint64_t version = 0;
  std::optional<uint64_t> base;         // none: an anchor, kind full
  Digest manifest;                      // sha-256 of the manifest of `version`
  std::optional<Digest> base_manifest;  // of `base`
  std::string created;
  std::vector<PartRef> parts;
  std::string signed_by = {};  // as in a manifest

  uint64_t part_bytes() const;
};

Result<std::string> serialise_manifest(const Manifest& manifest, const Signer& sign);
Result<std::string> serialise_hop(const HopRecord& hop, const Signer& sign);
// Checks everything that can be checked without other objects: format, canonical form, checksum,
// counts, kind against base, and `trust` when given.
Result<Manifest> parse_manifest(std::string_view json, const Verifier& trust);
Result<HopRecord> parse_hop(std::string_view json, const Verifier& trust);

// The boxes whose digests make up the tensor's digest; null if it is the digest of the tensor's
// bytes.
const std::vector<BoxDigest>* boxes_hashed(const Manifest& manifest, const std::string& tensor);
// The digest of a tensor of `size_bytes` that came in these boxes, which tile it. InvalidArgument
// when their sums are not those of such a tensor.
Result<Digest> boxes_digest(const std::vector<BoxDigest>& boxes, uint64_t size_bytes);
// The state that schema and digests describe; Corruption when the counts differ.
Result<std::vector<TensorState>> states_of(const Schema& schema, const Manifest& manifest);

}  // namespace deltawire
