// gaps-zstd: the body of `gaps` in one zstd frame; gaps_body.h has the layout.
//
//   payload = header | one zstd frame, content = body
//
// Empty when nothing changed. The header stays outside: it says what the frame's content size must
// be before a byte is allocated for it.
#include "codec/builtin.h"
#include "codec/checks.h"
#include "codec/gaps_body.h"
#include "codec/zstd_frame.h"

namespace deltawire {
namespace {

struct OpenedGaps {
  GapsHeader header;
  std::vector<uint8_t> body;
};

// At most 8 + width bytes per element of the array, 4 + width where it has up to 2^32 of them.
Result<OpenedGaps> open_payload(unsigned width, Bytes payload, uint64_t num_elements) {
  DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(num_elements, &payload));
  DW_ASSIGN_OR_RETURN(const uint64_t content_size, zstd_content_size(payload));
  if (content_size != header.body_bytes(width)) {
    return bad_payload("zstd content size", header.body_bytes(width), content_size);
  }
  OpenedGaps opened{header, std::vector<uint8_t>(content_size)};
  DW_RETURN_IF_ERROR(ZstdDecompressor().decompress(payload, opened.body));
  return opened;
}

class GapsZstdCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kGapsZstd; }
  std::string_view name() const noexcept override { return "gaps-zstd"; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    DW_ASSIGN_OR_RETURN(CollectedGaps gaps, collect_gaps(layout, old_bytes, new_bytes, pool));
    const GapsHeader& header = gaps.header;
    Encoded encoded;
    encoded.num_changed = header.count;
    if (header.count == 0) return encoded;
    std::vector<uint8_t> body(header.body_bytes(layout.width));
    write_gaps_body(header, layout.width, std::move(gaps.chunks), body.data(), pool);
    put_gaps_header(header, &encoded.payload);
    DW_RETURN_IF_ERROR(ZstdCompressor().append(body, &encoded.payload));
    encoded.payload.shrink_to_fit();
    return encoded;
  }

  Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_array(layout, data.size()));
    if (payload.empty()) return {};
    DW_ASSIGN_OR_RETURN(const OpenedGaps opened,
                        open_payload(layout.width, payload, data.size() / layout.width));
    return apply_gaps_body(opened.header, layout.width, opened.body, data, pool);
  }

  Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_array(layout, old_bytes.size()));
    if (payload.empty()) return Changes{};
    const uint64_t num_elements = old_bytes.size() / layout.width;
    DW_ASSIGN_OR_RETURN(const OpenedGaps opened, open_payload(layout.width, payload, num_elements));
    return decode_gaps_body(opened.header, layout.width, opened.body, num_elements, pool);
  }
};

}  // namespace

const Codec& gaps_zstd_codec() noexcept {
  static const GapsZstdCodec codec;
  return codec;
}

}  // namespace deltawire
