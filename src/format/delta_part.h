// A delta part: a valid safetensors file whose U8 tensors are payloads and whose metadata says how
// to decode them. Bytes <-> structs, no I/O. docs/format.md, "The part", is its contract.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "codec/codec.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

inline constexpr std::string_view kDeltaFormat = "delta/1";

// The fields that all entries of a delta share; repeated in every part.
struct DeltaInfo {
  // State digests, xxh3-128. Parts of a chain's version leave `target` empty (size 0): they are
  // uploaded before the last tensor is hashed, and the manifest says where they lead.
  Digest base, target;
  std::vector<std::string> removed;  // tensors of the base that the target does not have

  bool has_target() const noexcept { return target.size != 0; }
};

// How one payload is read. An entry without `old_digest` carries a whole tensor that the base does
// not have, or has in another dtype or shape: its codec is raw.
struct DeltaEntry {
  std::string tensor;
  DType dtype = DType::kU8;
  Shape shape;  // of the tensor
  Box box;
  CodecId codec = CodecId::kRaw;
  uint64_t num_changed = 0;  // elements, as codecs see them
  std::optional<Digest> old_digest;
  Digest new_digest;  // sum128 of the box's contents

  uint64_t box_bytes() const;     // size of the box's contents
  uint64_t num_elements() const;  // elements in the box, as codecs see them
  Layout layout() const;          // of the box's contents
};

// "tight BF16 2048,1024 - 82996 c3e2... 61d5...": codec, dtype, shape, box, changed, old, new; "-"
// where there is none. `entry_name` is the payload's name in the part, see entry_tensor.
std::string format_entry(const DeltaEntry& entry);
Result<DeltaEntry> parse_entry(std::string_view entry_name, std::string_view text);

struct PayloadView {
  DeltaEntry entry;
  Bytes payload;
};

struct DeltaPart {
  DeltaInfo info;
  std::vector<PayloadView> entries;  // payloads point into the parsed file
};

// An entry without its payload: what the header needs of it.
struct EntryRecord {
  DeltaEntry entry;
  uint64_t payload_bytes = 0;
  Digest payload_digest;  // xxh3-128
};

// Everything before the payloads, which follow in order. Its length does not depend on the digests
// in `info`, so a header can be written first and completed later. The part's own checksum covers
// metadata and payloads, so that no flipped bit goes unseen.
Result<std::string> serialise_part_header(const DeltaInfo& info,
                                          const std::vector<EntryRecord>& entries);
//
// kSome: the file has its header and some payloads; the others are zeros, so its checksum cannot be
// checked.
enum class PartContents : uint8_t { kAll, kSome };
Result<DeltaPart> parse_part(Bytes file, PartContents contents = PartContents::kAll);

// The entries of a part in payload order, parsed from its header alone. The part's checksum is not
// checked, so use this for statistics only.
Result<std::vector<EntryRecord>> parse_part_header(std::string_view header, uint64_t part_bytes);

// The index of a delta in several parts: a small JSON file beside them.

inline constexpr std::string_view kDeltaIndexName = "delta.index.json";
inline constexpr uint64_t kMaxDeltaIndexBytes = 64 << 20;

struct DeltaIndexPart {
  std::string name;  // a plain file name
  uint64_t size_bytes = 0;
  Digest sha256;
};

struct DeltaIndex {
  Digest base, target;
  std::vector<DeltaIndexPart> parts;
};

std::string part_name(size_t number);  // "part-00000.safetensors"
std::string serialise_delta_index(const DeltaIndex& index);
Result<DeltaIndex> parse_delta_index(std::string_view json);

}  // namespace deltawire
