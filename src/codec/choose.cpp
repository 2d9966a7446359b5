#include "codec/choose.h"

#include "codec/codec.h"
#include "codec/exponents.h"
#include "codec/tight_format.h"

namespace deltawire {

// The least that gaps could take: two bytes and a value each.
bool gaps_may_be_smaller(uint64_t num_changed, uint64_t tight_bytes, Layout layout) noexcept {
  return num_changed * (2 + uint64_t{layout.width}) < tight_bytes;
}

// Integers may be packed codes, which only `adaptive` tells from each other. For few changes of one
// byte, tables and states of `tight` weigh too much. It is not parallel: beyond a million changes
// it would take too long.
bool adaptive_may_be_smaller(uint64_t num_changed, Layout layout) noexcept {
  constexpr uint64_t kMostChanges = uint64_t{1} << 20, kFewChanges = 2048;
  const bool integers = layout.key_shift == 8 * (layout.width - 1);
  const uint64_t limit = integers ? kMostChanges : layout.width == 1 ? kFewChanges : 0;
  return num_changed != 0 && num_changed < limit;
}

namespace {

// `tight` has had its turn; do the others do better?
Result<Choice> improve(Encoded tight, Layout layout, Bytes old_bytes, Bytes new_bytes,
                       ThreadPool* pool) {
  Choice best{CodecId::kTight, std::move(tight)};
  const uint64_t num_changed = best.encoded.num_changed;
  if (num_changed == 0) return best;

  const auto try_codec = [&](const Codec& codec) -> Status {
    DW_ASSIGN_OR_RETURN(Encoded other, codec.encode(layout, old_bytes, new_bytes, pool));
    if (other.payload.size() < best.encoded.payload.size()) best = {codec.id(), std::move(other)};
    return {};
  };
  if (gaps_may_be_smaller(num_changed, best.encoded.payload.size(), layout)) {
    DW_RETURN_IF_ERROR(try_codec(gaps_codec()));
  }
  if (adaptive_may_be_smaller(num_changed, layout)) {
    DW_RETURN_IF_ERROR(try_codec(adaptive_codec()));
  }
  if (best.encoded.payload.size() >= new_bytes.size()) {
    DW_ASSIGN_OR_RETURN(best.encoded, raw_codec().encode(layout, old_bytes, new_bytes, pool));
    best.codec = CodecId::kRaw;
    best.encoded.num_changed = num_changed;
  }
  return best;
}

}  // namespace

Result<Choice> encode_smallest(Layout layout, Bytes old_bytes, Bytes new_bytes, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(Encoded tight, tight_codec().encode(layout, old_bytes, new_bytes, pool));
  return improve(std::move(tight), layout, old_bytes, new_bytes, pool);
}

Result<Choice> encode_smallest_hashed(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                      const Hashers& hashers, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(Encoded tight,
                      tight_codec().encode_hashed(layout, old_bytes, new_bytes, hashers, pool));
  return improve(std::move(tight), layout, old_bytes, new_bytes, pool);
}

Result<Choice> encode_whole_array(Layout layout, Bytes array, bool raw, ThreadPool* pool) {
  Choice choice{CodecId::kExponents, {{}, array.size() / layout.width}};
  if (!raw && exponents::form_of(layout)) {
    DW_ASSIGN_OR_RETURN(choice.encoded.payload,
                        exponents::encode_array(layout, array, nullptr, pool));
    if (choice.encoded.payload.size() < array.size()) return choice;
  }
  choice.codec = CodecId::kRaw;
  choice.encoded.payload.assign(array.begin(), array.end());
  return choice;
}

Result<std::optional<Encoded>> encode_changing(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                               const Hashers& hashers,
                                               const ChangingArrays& changing, bool only_tight,
                                               ThreadPool* pool) {
  std::optional<Encoded> made;
  if (new_bytes.size() / layout.width <= size_t{1} << tight::kBlockLog2) return made;
  DW_ASSIGN_OR_RETURN(made,
                      encode_tight_changing(layout, old_bytes, new_bytes, hashers, changing, pool));
  if (!only_tight && (gaps_may_be_smaller(made->num_changed, made->payload.size(), layout) ||
                      adaptive_may_be_smaller(made->num_changed, layout) ||
                      made->payload.size() >= new_bytes.size())) {
    made.reset();
  }
  return made;
}

}  // namespace deltawire
