// Three properties of every codec. A payload of arbitrary bytes gives Corruption or a wrong array,
// and nothing worse. Any two arrays round-trip, with the same payload on every kernel target. A
// part of an array is patched as it is in the whole.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "codec/changes.h"
#include "codec/codec.h"
#include "codec/regions.h"
#include "kernels/kernels.h"

namespace deltawire {
namespace {

using Blob = std::vector<uint8_t>;

void require(bool condition, const Codec& codec, std::string_view what) {
  if (condition) return;
  std::fprintf(stderr, "%s: %s\n", std::string(codec.name()).c_str(), std::string(what).c_str());
  std::abort();
}

// Reads numbers from the front of the input; zeros after its end.
class Input {
 public:
  explicit Input(Bytes bytes) : bytes_(bytes) {}
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  uint16_t word() {
    const uint16_t low = byte();
    return uint16_t(low | byte() << 8);
  }
  Bytes take(size_t size) {
    const Bytes taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }
  Bytes rest() const { return bytes_; }

 private:
  Bytes bytes_;
};

Layout choose_layout(uint8_t choice) {
  constexpr Layout kLayouts[] = {{1, 3, 0x0f}, {2, 7, 0xff},  {4, 23, 0xff}, {8, 55, 0xff},
                                 {1, 0, 0xff}, {2, 10, 0x1f}, {4, 24, 0xff}, {8, 0, 0x01}};
  return kLayouts[choice % 8];
}

// Mostly small, so that runs are quick; sometimes more than one segment.
size_t choose_size(uint8_t choice, uint16_t word) {
  constexpr uint16_t kLimits[] = {8, 70, 70, 300, 300, 300, 2000, 40000};
  return word % kLimits[choice % 8];
}

// Repeats a few input bytes to fill a large array.
Blob fill(Bytes seed, size_t size) {
  Blob bytes(size);
  if (seed.empty()) return bytes;
  for (size_t at = 0; at < size; at += seed.size()) {
    std::memcpy(bytes.data() + at, seed.data(), std::min(seed.size(), size - at));
  }
  return bytes;
}

Blob patched(const Codec& codec, Layout layout, const Blob& old_bytes, const Changes& changes) {
  Blob data = old_bytes;
  require(scatter_changes(layout.width, changes, data, nullptr).ok(), codec, "decode is unsound");
  return data;
}

// The middle of the array, held alone, must become that of `new_bytes`. Damage elsewhere in the
// payload may go unnoticed: `sound` says whether all of it could be applied.
void try_region(const Codec& codec, Layout layout, Bytes payload, const Blob& old_bytes,
                const Blob& new_bytes, bool sound) {
  const size_t n = old_bytes.size() / layout.width;
  if (n == 0) return;
  const size_t columns = layout.columns == 0 ? n : layout.columns, rows = n / columns;
  Region region{rows / 3, columns / 4, rows - rows / 3, (columns + 1) / 2, nullptr, 0};
  const size_t row_bytes = region.columns * layout.width;
  const auto part_of = [&](const Blob& array) {
    Blob part;
    for (size_t row = 0; row < region.rows; ++row) {
      const auto at =
          array.begin() + ptrdiff_t(((region.row + row) * columns + region.column) * layout.width);
      part.insert(part.end(), at, at + ptrdiff_t(row_bytes));
    }
    return part;
  };
  Blob held = part_of(old_bytes);
  region.data = held.data();
  region.stride = ptrdiff_t(row_bytes);
  const ReadOld read_old = [&](size_t begin, MutableBytes out) -> Status {
    std::memcpy(out.data(), old_bytes.data() + begin * layout.width, out.size());
    return {};
  };
  const Status status =
      codec.apply_to_regions(layout, n, payload, std::span(&region, 1), read_old, nullptr);
  if (sound) {
    require(status.ok() && held == part_of(new_bytes), codec, "a part is not as in the whole");
  } else {
    require(status.ok() || status.code() == Code::kCorruption, codec, status.to_string());
  }
}

void try_payload(const Codec& codec, Layout layout, Bytes payload, const Blob& old_bytes) {
  const Blob copy(payload.begin(), payload.end());  // so that reading past its end is seen
  Blob data = old_bytes;
  const Status status = codec.apply(layout, copy, data, nullptr);
  const auto changes = codec.decode(layout, copy, old_bytes, nullptr);
  require(status.ok() == changes.ok(), codec, "apply and decode disagree");
  try_region(codec, layout, copy, old_bytes, data, status.ok());
  if (!status.ok()) return require(status.code() == Code::kCorruption, codec, status.to_string());
  require(patched(codec, layout, old_bytes, *changes) == data, codec, "decode is not apply");
}

Encoded encode(const Codec& codec, Layout layout, const Blob& old_bytes, const Blob& new_bytes) {
  auto encoded = codec.encode(layout, old_bytes, new_bytes, nullptr);
  require(encoded.ok(), codec, encoded.status().to_string());
  return std::move(encoded).value();
}

void round_trip(const Codec& codec, Layout layout, const Blob& old_bytes, const Blob& new_bytes) {
  static const std::string best(available_kernels().front()->name);
  force_kernels("scalar");
  const Encoded reference = encode(codec, layout, old_bytes, new_bytes);
  Blob by_scalar = old_bytes;
  require(codec.apply(layout, reference.payload, by_scalar, nullptr).ok(), codec, "apply, scalar");
  require(by_scalar == new_bytes, codec, "scalar round trip");
  force_kernels(best);
  const Encoded encoded = encode(codec, layout, old_bytes, new_bytes);
  require(encoded.payload == reference.payload, codec, "targets give different payloads");
  require(encoded.num_changed == reference.num_changed, codec, "targets count differently");
  Blob by_best = old_bytes;
  require(codec.apply(layout, encoded.payload, by_best, nullptr).ok(), codec, "apply");
  require(by_best == new_bytes, codec, "round trip");
  const auto changes = codec.decode(layout, encoded.payload, old_bytes, nullptr);
  require(changes.ok(), codec, "decode");
  require(changes->positions.size() == encoded.num_changed, codec, "num_changed");
  require(patched(codec, layout, old_bytes, *changes) == new_bytes, codec, "decode round trip");
  try_region(codec, layout, encoded.payload, old_bytes, new_bytes, true);
}

// Each record of the input skips a gap and changes one element.
Blob change(Input input, Layout layout, const Blob& old_bytes) {
  Blob bytes = old_bytes;
  const size_t n = bytes.size() / layout.width;
  for (size_t at = 0; !input.rest().empty(); ++at) {
    at += input.byte() % 2 == 0 ? input.byte() : input.word();
    if (at >= n) break;
    for (size_t i = 0; i < layout.width; ++i) bytes[at * layout.width + i] ^= input.byte();
  }
  return bytes;
}

void fuzz(Bytes bytes) {
  Input input(bytes);
  const uint8_t mode = input.byte();
  const uint8_t shape = input.byte();
  Layout layout = choose_layout(shape);
  size_t num_elements = choose_size(shape / 8, input.word());
  if (mode >= 128) {  // matrices; now and then large enough for an encoder to tile them
    const bool large = mode >= 252;
    layout.rows = large ? 300U + input.byte() : 1U + input.byte() % 80;
    layout.columns = large ? 1000U + input.byte() : 1U + input.byte();
    num_elements = size_t{layout.rows} * layout.columns * (large ? 1 : 1 + shape % 3);
  }
  const Blob old_bytes = fill(input.take(input.byte()), num_elements * layout.width);
  const Codec& codec = *all_codecs()[mode / 2 % all_codecs().size()];
  if (mode % 2 == 0) return try_payload(codec, layout, input.rest(), old_bytes);
  round_trip(codec, layout, old_bytes, change(input, layout, old_bytes));
}

}  // namespace
}  // namespace deltawire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  deltawire::fuzz({data, size});
  return 0;
}
