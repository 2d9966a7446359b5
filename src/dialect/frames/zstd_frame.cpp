#include "dialect/frames/zstd_frame.h"

// For the block-level calls, which write into our memory; the others copy all content once more
// from their own window.
#define ZSTD_STATIC_LINKING_ONLY
#define ZSTD_DISABLE_DEPRECATE_WARNINGS
#include <zstd.h>

#include <algorithm>
#include <string>

#include "codec/checks.h"

namespace deltawire {
namespace {

// The limit of zstd's own streams.
constexpr uint64_t kMaxWindowBytes = uint64_t{1} << 27;

Status bad_frame(size_t zstd_error) {
  return bad_payload("zstd frame", "valid data", ZSTD_getErrorName(zstd_error));
}

}  // namespace

Status append_zstd_frame(Bytes content, std::vector<uint8_t>* out) {
  constexpr int kLevel = 1;
  const size_t begin = out->size();
  out->resize(begin + ZSTD_compressBound(content.size()));
  const size_t size = ZSTD_compress(out->data() + begin, out->size() - begin, content.data(),
                                    content.size(), kLevel);
  if (ZSTD_isError(size) != 0) {
    return internal_error(std::string("zstd compression: ") + ZSTD_getErrorName(size));
  }
  out->resize(begin + size);
  out->shrink_to_fit();  // writers hold many
  return {};
}

void ZstdStream::Free::operator()(void* context) const noexcept {
  ZSTD_freeDCtx(static_cast<ZSTD_DCtx*>(context));
}

Status ZstdStream::begin(Bytes frame, uint64_t max_bytes) {
  if (frame.size() < 4 || load_le<uint32_t>(frame.data()) != ZSTD_MAGICNUMBER) {
    return bad_payload("zstd frame", "the magic number 0xfd2fb528", "something else");
  }
  ZSTD_frameHeader header;
  const size_t missing = ZSTD_getFrameHeader(&header, frame.data(), frame.size());
  if (ZSTD_isError(missing) != 0) return bad_frame(missing);
  if (missing != 0) return bad_payload("zstd frame", "a whole header", "a shorter one");
  if (header.dictID != 0) return bad_payload("zstd dictionary", 0, header.dictID);
  content_bytes_.reset();
  if (header.frameContentSize != ZSTD_CONTENTSIZE_UNKNOWN) {
    if (header.frameContentSize > max_bytes) {
      return bad_payload("zstd content size", "at most " + std::to_string(max_bytes),
                         uint64_t{header.frameContentSize});
    }
    content_bytes_ = header.frameContentSize;
  }
  // Small frames state a window as large as their content.
  if (header.windowSize > std::max(kMaxWindowBytes, max_bytes)) {
    return bad_payload("zstd window", "at most " + std::to_string(kMaxWindowBytes),
                       uint64_t{header.windowSize});
  }
  rest_ = frame;
  left_ = max_bytes;
  return start(std::min<uint64_t>(header.windowSize, max_bytes),
               size_t(std::min<uint64_t>(header.blockSizeMax, ZSTD_BLOCKSIZE_MAX)));
}

Status ZstdStream::start(uint64_t window_bytes, size_t block_bytes) {
  if (context_ == nullptr) context_.reset(ZSTD_createDCtx());
  if (context_ == nullptr) return out_of_memory("zstd context");
  auto* context = static_cast<ZSTD_DCtx*>(context_.get());
  if (const size_t error = ZSTD_decompressBegin(context); ZSTD_isError(error) != 0) {
    return internal_error(std::string("zstd: ") + ZSTD_getErrorName(error));
  }
  // As zstd's own streams compute it: a window, a block and the bytes that copies may overrun.
  const size_t needed = ZSTD_decodingBufferSize_min(std::max<uint64_t>(window_bytes, block_bytes),
                                                    ZSTD_CONTENTSIZE_UNKNOWN);
  if (ZSTD_isError(needed) != 0) return bad_frame(needed);
  if (needed > capacity_) {
    window_ = nullptr;  // first, so that both never exist at once
    capacity_ = 0;
    window_ = std::make_unique_for_overwrite<uint8_t[]>(needed);
    capacity_ = needed;
  }
  in_use_ = needed;
  block_bytes_ = block_bytes;
  end_ = 0;
  return {};
}

Result<Bytes> ZstdStream::next() {
  auto* context = static_cast<ZSTD_DCtx*>(context_.get());
  for (;;) {
    const size_t wanted = ZSTD_nextSrcSizeToDecompress(context);
    if (wanted == 0) {
      if (!rest_.empty()) return bad_payload("bytes after the zstd frame", 0, rest_.size());
      return Bytes();
    }
    if (wanted > rest_.size()) return bad_payload("zstd frame", "valid data", "one cut short");
    // A block follows the previous one, or starts at the beginning if it might not fit.
    if (in_use_ - end_ < block_bytes_) end_ = 0;
    const size_t size = ZSTD_decompressContinue(context, window_.get() + end_, in_use_ - end_,
                                                rest_.data(), wanted);
    if (ZSTD_isError(size) != 0) return bad_frame(size);
    rest_ = rest_.subspan(wanted);
    if (size == 0) continue;  // a header, an empty block
    if (size > left_) {
      return bad_payload("zstd content size", "no more than the tensor's", "more");
    }
    left_ -= size;
    const Bytes piece(window_.get() + end_, size);
    end_ += size;
    return piece;
  }
}

}  // namespace deltawire
