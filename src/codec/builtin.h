// The codecs that registry.cpp lists, one function per file of this folder.
#pragma once

#include "codec/codec.h"

namespace deltawire {

const Codec& raw_codec() noexcept;
const Codec& indices_codec() noexcept;
const Codec& gaps_codec() noexcept;
const Codec& gaps_zstd_codec() noexcept;
const Codec& xor_zstd_codec() noexcept;
const Codec& overwrite_zstd_codec() noexcept;
const Codec& tight_codec() noexcept;
const Codec& exponents_codec() noexcept;

}  // namespace deltawire
