// The records of a chain: bytes <-> structs, no I/O. docs/format.md, "The chain", is their
// contract.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/box.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"
#include "format/record.h"
#include "format/schema.h"
#include "format/state_digest.h"

namespace deltawire {

// Limits on what is read from a store that is not trusted.
inline constexpr uint64_t kMaxManifestBytes = uint64_t{64} << 20;
inline constexpr uint64_t kMaxEdgeBytes = uint64_t{16} << 20;

// An object that a record vouches for.
struct PartRef {
  std::string name;  // of the object in the store
  uint64_t size_bytes = 0;
  Digest sha256;

  bool operator==(const PartRef&) const = default;
};

// A file beside the weights: a configuration, a tokenizer. Its bytes are an object that versions
// share: the one that first had them put it, the next ones go on naming it.
struct SideFile {
  std::string name;  // in the checkpoint's folder
  uint64_t size_bytes = 0;
  Digest sha256;
  std::string attempt;  // that put the object: "0000000012-9f3c…"

  bool operator==(const SideFile&) const = default;
};

// How a version's bytes are laid out in the store.
enum class VersionKind : uint8_t {
  kDelta,  // delta parts, onto `base`
  kFull,   // the files of a checkpoint directory: safetensors, index, config, tokenizer, ...
};

// A tensor that was published in boxes by several ranks has a digest per box.
struct BoxDigest {
  Box box;
  Digest digest;
  bool operator==(const BoxDigest&) const = default;
};

// The commit record of a version; a version exists if and only if its manifest does.
struct Manifest {
  std::string run;  // 32 hex digits
  uint64_t version = 0;
  std::optional<uint64_t> base;  // none: full
  std::optional<Digest> parent;  // sha-256 of the manifest of version - 1; none for version 0
  VersionKind kind = VersionKind::kDelta;
  std::string reason;     // when full: "seed", "mode", "dense: ...", "schema", ...
  std::string created;    // "2026-11-15T05:36:24Z"
  std::string publisher;  // "host:pid", for people
  std::string attempt;    // of the ranks that published it together; empty: one publisher alone

  std::vector<PartRef> parts;
  std::vector<SideFile> files;  // all that the version has beside its weights, by name
  PartRef schema;
  DigestKind digest_kind = DigestKind::kXxh3_128;
  // Post-state digests of all tensors, in the order of the schema. For a tensor in `boxes` it is
  // boxes_digest() of those.
  std::vector<Digest> digests;
  std::map<std::string, std::vector<BoxDigest>> boxes;  // by tensor
  Digest state;  // state digest, xxh3-128, over schema and digests

  uint64_t chain_bytes = 0;            // parts of all versions 0 ... version
  uint64_t anchor = 0;                 // newest version stored whole when this was committed
  uint64_t anchor_bytes = 0;           // its size
  uint64_t elements = 0, changed = 0;  // compared and changed
  uint64_t milliseconds = 0;           // that publishing took
  std::string codec;                   // asked for: "auto", "tight", ...
  // Set by reading: the public key that the record says it is signed with, hex digits; empty: none.
  // True as far as what read it checks signatures.
  std::string signed_by = {};

  uint64_t part_bytes() const;
};

// A shortcut: another way to reach `version`: from nothing (an anchor) or from an older version (a
// merged delta). Vouches for the manifests at both ends, so that a path through it needs none of
// those between.
struct Edge {
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
Result<std::string> serialise_edge(const Edge& edge, const Signer& sign);
// Checks everything that can be checked without other objects: format, canonical form, checksum,
// counts, kind against base, and `trust` when given.
Result<Manifest> parse_manifest(std::string_view json, const Truster& trust);
Result<Edge> parse_edge(std::string_view json, const Truster& trust);

Digest boxes_digest(const std::vector<BoxDigest>& boxes);
// The state that schema and digests describe; Corruption when the counts differ.
Result<std::vector<TensorState>> states_of(const Schema& schema, const Manifest& manifest);

}  // namespace deltawire
