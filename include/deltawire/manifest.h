// The contents of a chain's records, as values without a store. docs/format.md, "The chain", is
// their contract.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Identifies a version that is held, served or requested. A version number alone identifies
// nothing: a store may be replaced by one of another run, and a publisher may reuse a number that
// the store has lost.
struct Identity {
  std::string run;
  uint64_t version = 0;
  std::string manifest;  // sha-256 of the version's manifest, hex

  bool operator==(const Identity&) const = default;
};

// "version 4 of run 1a2b3c4d"
inline std::string to_string(const Identity& identity) {
  constexpr size_t kShownDigits = 8;
  return "version " + std::to_string(identity.version) + " of run " +
         identity.run.substr(0, kShownDigits);
}

// None of nothing.
inline std::optional<uint64_t> version_of(const std::optional<Identity>& identity) {
  return identity ? std::optional(identity->version) : std::nullopt;
}

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

// Names, dtypes and shapes of a version's tensors, sorted by name. Versions that have the same
// share one object: schemas/<sha-256>.json.
struct Schema {
  std::vector<TensorSpec> tensors;

  bool operator==(const Schema&) const = default;
};

// The layout of a version's bytes in the store.
enum class VersionKind : uint8_t {
  kDelta,  // delta parts, onto `base`
  kFull,   // the files of a checkpoint directory: safetensors (packed or plain), index, config, ...
};

// A tensor that was published in boxes by several ranks has a digest per box.
struct BoxDigest {
  Box box;
  Digest digest;  // of the box's contents
  // What the box adds to its tensor. All boxes of a tensor have them, or
  // none: those of older versions.
  std::optional<Sums> sums = {};
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
  std::string origin;     // of another project's version: where it was imported from

  std::vector<PartRef> parts;
  std::vector<SideFile> files;  // all that the version has beside its weights, by name
  PartRef schema;
  // Post-state digests, sum128, of all tensors, in the order of the schema. For a tensor in `boxes`
  // that have no sums it is a digest of the digests of those.
  std::vector<Digest> digests;
  std::map<std::string, std::vector<BoxDigest>> boxes;  // by tensor
  Digest state;  // state digest, xxh3-128, over schema and digests

  uint64_t chain_bytes = 0;            // parts of all versions 0 ... version
  uint64_t anchor = 0;                 // newest version stored whole when this was committed
  uint64_t anchor_bytes = 0;           // its size
  uint64_t elements = 0, changed = 0;  // compared and changed
  uint64_t milliseconds = 0;           // that publishing took
  std::string codec;                   // asked for: "auto", "tight", ...
  // How the weights were quantised before they were published: JSON from the quantiser. Part of the
  // run's identity; empty: they are what the trainer has.
  std::string quantization = {};
  // Set by reading: the public key that the record says it is signed with, hex digits; empty: none.
  // True as far as what read it checks signatures.
  std::string signed_by = {};

  uint64_t part_bytes() const;
};

// One record and the digest that links to it carry.
struct VersionRecord {
  Manifest manifest;
  Digest digest;  // sha-256

  Identity identity() const { return {manifest.run, manifest.version, digest.hex()}; }
};

}  // namespace deltawire
