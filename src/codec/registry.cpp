// Every codec by its id and its name.
#include <array>

#include "codec/builtin.h"

namespace deltawire {

std::span<const Codec* const> all_codecs() noexcept {
  static const std::array<const Codec*, 5> codecs = {
      &raw_codec(), &gaps_codec(), &tight_codec(), &exponents_codec(), &adaptive_codec(),
  };
  return codecs;
}

const Codec* find_codec(CodecId id) noexcept {
  for (const Codec* codec : all_codecs()) {
    if (codec->id() == id) return codec;
  }
  return nullptr;
}

const Codec* find_codec(std::string_view name) noexcept {
  for (const Codec* codec : all_codecs()) {
    if (codec->name() == name) return codec;
  }
  return nullptr;
}

}  // namespace deltawire
