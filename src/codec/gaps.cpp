// gaps: distances between changes, then values. The fast one: encoding runs at the speed of the
// diff, applying is a running sum and a store. gaps_body.h has the layout; the payload is header
// and body, and empty when nothing changed.
#include "codec/builtin.h"
#include "codec/checks.h"
#include "codec/gaps_body.h"

namespace deltawire {
namespace {

class GapsCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kGaps; }
  std::string_view name() const noexcept override { return "gaps"; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    DW_ASSIGN_OR_RETURN(CollectedGaps gaps, collect_gaps(layout, old_bytes, new_bytes, pool));
    const GapsHeader& header = gaps.header;
    Encoded encoded;
    encoded.num_changed = header.count;
    if (header.count == 0) return encoded;
    put_gaps_header(header, &encoded.payload);
    const size_t body_at = encoded.payload.size();
    encoded.payload.resize(body_at + header.body_bytes(layout.width));
    write_gaps_body(header, layout.width, std::move(gaps.chunks), encoded.payload.data() + body_at,
                    pool);
    return encoded;
  }

  Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_array(layout, data.size()));
    if (payload.empty()) return {};
    DW_ASSIGN_OR_RETURN(const GapsHeader header,
                        take_gaps_header(data.size() / layout.width, &payload));
    return apply_gaps_body(header, layout.width, payload, data, pool);
  }

  Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_array(layout, old_bytes.size()));
    if (payload.empty()) return Changes{};
    const uint64_t num_elements = old_bytes.size() / layout.width;
    DW_ASSIGN_OR_RETURN(const GapsHeader header, take_gaps_header(num_elements, &payload));
    return decode_gaps_body(header, layout.width, payload, num_elements, pool);
  }
};

}  // namespace

const Codec& gaps_codec() noexcept {
  static const GapsCodec codec;
  return codec;
}

}  // namespace deltawire
