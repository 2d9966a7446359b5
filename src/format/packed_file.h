// A safetensors file whose tensors are coded: how versions are stored whole. It is a safetensors
// file itself; docs/format.md, section 4, has its bytes. Nothing in it is trusted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "codec/codec.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

struct PackedTensor {
  CodecId codec = CodecId::kRaw;  // or kExponents
  DType dtype = DType::kU8;
  uint64_t begin = 0, size = 0;              // of the payload, in the packed file
  uint64_t plain_begin = 0, plain_size = 0;  // of the bytes, in the plain one
};

struct PackedFile {
  std::string plain_header;  // of the plain file: all that stands before its data
  uint64_t plain_bytes = 0;
  std::vector<PackedTensor> tensors;  // in data order
};

// Fills in the places of the payloads, from their sizes and codecs, and returns all that stands
// before the first one. `names` are those of the tensors.
Result<std::string> serialise_packed_front(const std::vector<std::string>& names, PackedFile* file);

// How much of a packed file parse_packed_front() needs, from its safetensors header, length
// included.
Result<uint64_t> packed_front_bytes(std::string_view header, uint64_t file_bytes);
// All sizes are consistent when it succeeds, and the plain file is at most twice the packed one.
Result<PackedFile> parse_packed_front(std::string_view front, uint64_t file_bytes);
// Parses a complete file.
Result<PackedFile> parse_packed(Bytes file);

// Writes the plain file; `plain` has its size.
Status unpack(const PackedFile& file, Bytes packed, MutableBytes plain, ThreadPool* pool);

}  // namespace deltawire
