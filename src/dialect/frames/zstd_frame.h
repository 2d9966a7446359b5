// Single zstd frames with a known content size: the only use codecs make of zstd.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "deltawire/status.h"

namespace deltawire {

// Holds zstd's working memory; one per worker.
class ZstdCompressor {
 public:
  // Appends `content` as one level-1 frame that carries its content size and no checksum (a delta
  // carries digests of its own).
  Status append(Bytes content, std::vector<uint8_t>* out);

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };
  std::unique_ptr<void, Free> context_;
};

class ZstdDecompressor {
 public:
  // Fills `content` exactly, or Corruption. `frame` must have passed zstd_content_size().
  Status decompress(Bytes frame, MutableBytes content);

 private:
  struct Free {
    void operator()(void* context) const noexcept;
  };
  std::unique_ptr<void, Free> context_;
};

// The content size that a frame claims, read before anything is allocated for it. Corruption unless
// `frame` is exactly one ordinary frame (no legacy version, no skippable or second frame behind it)
// that states its content size.
Result<uint64_t> zstd_content_size(Bytes frame);

}  // namespace deltawire
