// The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes.
// Pure: bytes in, structs out and back. Files are opened by Checkpoint, written by
// SafetensorsWriter.
//
// Reading trusts nothing. A file is accepted only if every byte of its data belongs to exactly one
// tensor and every tensor's size follows from its dtype and shape; the phrase that names each
// defect is in defects.h. An unknown dtype is Unsupported, every other defect Corruption. All
// functions are thread-safe; memory is bounded by a small multiple of the header's length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

// The limit of the reference implementation, so that each side reads what the other writes.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// A limit of ours, not of the format: keeps a hostile shape small. numpy 2 stops at 64 too.
inline constexpr size_t kMaxRank = 64;
// The key of the header that is not a tensor.
inline constexpr std::string_view kMetadataKey = "__metadata__";

// `__metadata__` in the order of the file; keys are unique.
using Metadata = std::vector<std::pair<std::string, std::string>>;

// The value under `key`, or null. Linear: metadata is short.
const std::string* find_metadata(const Metadata& metadata, std::string_view key) noexcept;

// A tensor of a header and where its bytes are, counted from the start of the data.
struct TensorEntry {
  TensorSpec spec;
  uint64_t begin = 0;
  uint64_t end = 0;
};

struct SafetensorsHeader {
  Metadata metadata;
  std::vector<TensorEntry> entries;  // in data order; empty tensors of one offset in header order
};

// Parses and checks the JSON of a header against a data section of `data_bytes`: for callers that
// hold the header but not the data.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view json, uint64_t data_bytes);

struct SafetensorsView {
  uint64_t data_offset = 0;  // where the data begins: 8 + header length
  Metadata metadata;
  std::vector<TensorView> tensors;  // in data order; their bytes point into the parsed file
};

// Parses a whole file in place. The views live as long as `file`'s bytes do. `header`, where given,
// becomes a copy of all that stands before the data, and is what was parsed: another process may be
// writing to a mapped file.
Result<SafetensorsView> parse_safetensors(Bytes file, std::string* header = nullptr);

// Sum of the tensors' sizes: the length of the data section that follows their header.
Result<uint64_t> data_size_bytes(const std::vector<TensorSpec>& tensors);

// Everything before the data: header length, compact JSON, spaces up to a multiple of 8. The
// tensors' bytes follow in the given order without gaps. Deterministic: metadata keeps its order
// and is left out when empty. InvalidArgument for what parse would refuse: duplicate names or keys,
// text that is not UTF-8, a tensor named `__metadata__`, sizes that overflow, a header over the
// limit. Tensors are aligned to their element size only if the caller puts wide dtypes first.
Result<std::string> serialise_safetensors_header(const std::vector<TensorSpec>& tensors,
                                                 const Metadata& metadata = {});

// The safetensors header's JSON, as written: syntax and types are checked, layout is not.

// Entries come in header order with whatever offsets the file claims. Names and metadata keys are
// unique.
Result<SafetensorsHeader> parse_header_json(std::string_view json);

}  // namespace deltawire
