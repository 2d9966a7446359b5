#include "dialect/frames/zstd_frame.h"

#include <zstd.h>

#include <string>

#include "codec/checks.h"

namespace deltawire {
namespace {

constexpr int kLevel = 1;

}  // namespace

void ZstdCompressor::Free::operator()(void* context) const noexcept {
  ZSTD_freeCCtx(static_cast<ZSTD_CCtx*>(context));
}

void ZstdDecompressor::Free::operator()(void* context) const noexcept {
  ZSTD_freeDCtx(static_cast<ZSTD_DCtx*>(context));
}

Status ZstdCompressor::append(Bytes content, std::vector<uint8_t>* out) {
  if (context_ == nullptr) context_.reset(ZSTD_createCCtx());
  if (context_ == nullptr) return out_of_memory("zstd context");
  const size_t begin = out->size();
  out->resize(begin + ZSTD_compressBound(content.size()));
  const size_t size =
      ZSTD_compressCCtx(static_cast<ZSTD_CCtx*>(context_.get()), out->data() + begin,
                        out->size() - begin, content.data(), content.size(), kLevel);
  if (ZSTD_isError(size) != 0) {
    return internal_error(std::string("zstd compression: ") + ZSTD_getErrorName(size));
  }
  out->resize(begin + size);
  return {};
}

Status ZstdDecompressor::decompress(Bytes frame, MutableBytes content) {
  if (context_ == nullptr) context_.reset(ZSTD_createDCtx());
  if (context_ == nullptr) return out_of_memory("zstd context");
  const size_t size = ZSTD_decompressDCtx(static_cast<ZSTD_DCtx*>(context_.get()), content.data(),
                                          content.size(), frame.data(), frame.size());
  if (ZSTD_isError(size) != 0) {
    return bad_payload("zstd frame", "valid data", ZSTD_getErrorName(size));
  }
  if (size != content.size()) return bad_payload("zstd content size", content.size(), size);
  return {};
}

Result<uint64_t> zstd_content_size(Bytes frame) {
  // The library would also take legacy frames and skip skippable ones: keep its old parsers out of
  // reach of untrusted bytes.
  if (frame.size() < 4 || load_le<uint32_t>(frame.data()) != ZSTD_MAGICNUMBER) {
    return bad_payload("zstd frame", "the magic number 0xfd2fb528", "something else");
  }
  const size_t frame_size = ZSTD_findFrameCompressedSize(frame.data(), frame.size());
  if (ZSTD_isError(frame_size) != 0) {
    return bad_payload("zstd frame", "valid data", ZSTD_getErrorName(frame_size));
  }
  if (frame_size != frame.size()) {
    return bad_payload("zstd frame size", frame.size(), frame_size);
  }
  const unsigned long long content = ZSTD_getFrameContentSize(frame.data(), frame.size());
  if (content == ZSTD_CONTENTSIZE_UNKNOWN || content == ZSTD_CONTENTSIZE_ERROR) {
    return bad_payload("zstd content size", "a number", "none");
  }
  return uint64_t{content};
}

}  // namespace deltawire
