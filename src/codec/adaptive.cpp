// adaptive: for few changes. Nothing is stored but what a range coder makes of the changes, in the
// order of the array; chances are learned on the way. Elements are taken as they are, or as codes
// of four bits: packed formats change a code of a word, not the word.
//
//   payload = view:u8 | count:leb128 | range coder's bytes
#include "codec/adaptive_encode.h"
#include "codec/changes.h"
#include "codec/checks.h"
#include "codec/codec.h"

namespace deltawire {
namespace adaptive {
namespace {

// Calls visit(element, new value) for each changed element of `data`, in order; it may write.
template <class Visit>
Status decode_each(Layout layout, Bytes payload, Bytes data, const Visit& visit) {
  const unsigned width = layout.width;
  if (payload[0] > uint8_t(View::kNibbles)) {
    return bad_payload("adaptive: view", "0 or 1", payload[0]);
  }
  const View view = View(payload[0]);
  payload = payload.subspan(1);
  uint64_t count = 0;
  DW_RETURN_IF_ERROR(take_leb128("adaptive: number of changes", &payload, &count));
  const unsigned per_element = codes_per_element(view, width);
  const uint64_t num_codes = data.size() / width * per_element;
  if (count == 0 || count > num_codes) {
    return bad_payload("adaptive: number of changes", "1 to " + std::to_string(num_codes), count);
  }
  RangeDecoder coder(payload);
  Gaps gaps(num_codes, count);
  return with_view(view, width, [&](auto values) -> Status {
    constexpr unsigned kBits = decltype(values)::kBits;
    constexpr uint64_t kMask = ~uint64_t{0} >> (64 - kBits);
    // The element that is being put together, which starts at `element` and is at `value` now.
    uint64_t next = 0, element = ~uint64_t{0}, value = 0;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t gap = gaps.code(&coder, 0);
      if (gap >= num_codes - next) {
        return bad_payload("adaptive: position of change " + std::to_string(i),
                           "below " + std::to_string(num_codes), "one beyond the array");
      }
      const uint64_t position = next + gap;
      next = position + 1;
      if (position / per_element != element) {
        if (i != 0) visit(element, value);
        element = position / per_element;
        value = load_element(data.data() + element * width, width);
      }
      const unsigned shift = unsigned(position % per_element) * kBits;
      const uint64_t before = value >> shift & kMask;
      const uint64_t after = values.code(&coder, before, 0);
      if (after == before) return bad_payload("adaptive: a change", "another value", "the old one");
      value ^= (before ^ after) << shift;
      if (coder.ran_out()) return bad_payload("adaptive", "more bytes", "the end of the payload");
      if (next == num_codes && i + 1 < count) {
        return bad_payload("adaptive: number of changes", i + 1, count);
      }
    }
    visit(element, value);
    if (!coder.at_end()) return bad_payload("adaptive", "the end of the payload", "more bytes");
    return {};
  });
}

}  // namespace
}  // namespace adaptive

namespace {

class AdaptiveCodec final : public Codec {
 public:
  CodecId id() const noexcept override { return CodecId::kAdaptive; }
  std::string_view name() const noexcept override { return "adaptive"; }
  bool reads_old() const noexcept override { return true; }

  Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                         ThreadPool* pool) const override {
    DW_RETURN_IF_ERROR(check_arrays(layout, old_bytes, new_bytes));
    DW_ASSIGN_OR_RETURN(const std::vector<ChunkChanges> chunks,
                        collect_chunks(layout.width, old_bytes, new_bytes, pool));
    Encoded encoded;
    encoded.num_changed = count_changes(chunks);
    if (encoded.num_changed == 0) return encoded;
    const auto for_each = [&](const auto& visit) {
      for (const ChunkChanges& chunk : chunks) {
        for (size_t i = 0; i < chunk.positions.size(); ++i) {
          const uint64_t position = chunk.base + chunk.positions[i];
          visit(position,
                adaptive::load_element(old_bytes.data() + position * layout.width, layout.width),
                adaptive::load_element(chunk.values.data() + i * layout.width, layout.width));
        }
      }
    };
    encoded.payload =
        adaptive::encode_changes(layout.width, old_bytes.size() / layout.width, for_each);
    return encoded;
  }

  Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool*) const override {
    DW_RETURN_IF_ERROR(check_array(layout, data.size()));
    if (payload.empty()) return {};
    return adaptive::decode_each(layout, payload, data, [&](uint64_t element, uint64_t value) {
      store_element(layout.width, value, data.data() + element * layout.width);
    });
  }

  Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                         ThreadPool*) const override {
    DW_RETURN_IF_ERROR(check_array(layout, old_bytes.size()));
    Changes changes;
    if (payload.empty()) return changes;
    DW_RETURN_IF_ERROR(
        adaptive::decode_each(layout, payload, old_bytes, [&](uint64_t element, uint64_t value) {
          changes.positions.push_back(element);
          changes.values.resize(changes.values.size() + layout.width);
          store_element(layout.width, value,
                        changes.values.data() + changes.values.size() - layout.width);
        }));
    return changes;
  }

 private:
  static void store_element(unsigned width, uint64_t value, uint8_t* to) {
    with_element(width, [&](auto element) { store_le(to, decltype(element)(value)); });
  }
};

}  // namespace

const Codec& adaptive_codec() noexcept {
  static const AdaptiveCodec codec;
  return codec;
}

}  // namespace deltawire
