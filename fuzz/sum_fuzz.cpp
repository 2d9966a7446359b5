// sum128, differentially: every kernel target gives the terms of the scalar reference for any words
// at any position, and the pieces of an array, added in any order, give the digest of the whole.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "kernels/kernels.h"
#include "kernels/sum_math.h"

namespace deltawire {
namespace {

using Blob = std::vector<uint8_t>;
using Lanes = std::array<uint64_t, sum128::kLanes>;

void require(bool condition, const Kernels& target, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s: %s\n", std::string(target.name).c_str(), what);
  std::abort();
}

// Reads numbers from the front of the input; zeros after its end.
class Input {
 public:
  explicit Input(Bytes bytes) : bytes_(bytes) {}
  uint64_t number(size_t num_bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < num_bytes && !bytes_.empty(); ++i, bytes_ = bytes_.subspan(1)) {
      value |= uint64_t{bytes_.front()} << (8 * i);
    }
    return value;
  }
  Bytes take(size_t size) {
    const Bytes taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  Bytes bytes_;
};

// Repeats a few input bytes to fill a large array. `shift` unaligns it, and it ends where its
// memory ends, so that a read past the end is detected.
Blob fill(Bytes seed, size_t size, size_t shift) {
  Blob bytes(size + shift);
  for (size_t at = 0; !seed.empty() && at < bytes.size(); at += seed.size()) {
    std::memcpy(bytes.data() + at, seed.data(), std::min(seed.size(), bytes.size() - at));
  }
  return bytes;
}

// The definition, word by word, without any kernel code.
Lanes by_definition(Bytes words, uint64_t position, Lanes lanes) {
  for (size_t i = 0; i * 8 < words.size(); ++i) {
    uint64_t word = 0;
    for (size_t byte = 0; byte < 8; ++byte) word |= uint64_t{words[i * 8 + byte]} << (8 * byte);
    for (size_t lane = 0; lane < lanes.size(); ++lane) {
      lanes[lane] += sum128::term(lane, position + i, word);
    }
  }
  return lanes;
}

// Every target, in one pass and in two pieces, starting with sums that are not zero.
void check_kernels(Bytes words, uint64_t position, size_t cut, Lanes before) {
  const size_t count = words.size() / 8;
  const Lanes expected = by_definition(words.first(count * 8), position, before);
  for (const Kernels* const target : available_kernels()) {
    Lanes lanes = before;
    target->sum(words.data(), count, position, lanes.data());
    require(lanes == expected, *target, "sum is not the definition's");
    lanes = before;
    target->sum(words.data() + cut * 8, count - cut, position + cut, lanes.data());
    target->sum(words.data(), cut, position, lanes.data());
    require(lanes == expected, *target, "sums of two cuts do not add up");
  }
}

struct Piece {
  size_t begin, end;
};

std::vector<Piece> cut_up(Input* input, size_t size) {
  std::vector<size_t> cuts = {0, size};
  for (uint64_t left = input->number(1) % 12; left > 0; --left) {
    cuts.push_back(size_t(input->number(2) % (size + 1)));
  }
  std::sort(cuts.begin(), cuts.end());
  std::vector<Piece> pieces;
  for (size_t i = 1; i < cuts.size(); ++i) pieces.push_back({cuts[i - 1], cuts[i]});
  for (size_t i = pieces.size(); i > 1; --i) {  // in any order
    std::swap(pieces[i - 1], pieces[size_t(input->number(1) % i)]);
  }
  return pieces;
}

// The array through everything that adds: hashers that are given positions, sums that are joined,
// sums sent as text. Every target gives the same digest.
void check_cuts(Bytes bytes, const std::vector<Piece>& pieces, bool travel) {
  Digest expected;
  for (const Kernels* const target : available_kernels()) {
    force_kernels(target->name);
    const Digest whole = digest_of(DigestKind::kSum128, bytes);
    if (expected.size == 0) expected = whole;
    require(whole == expected, *target, "targets give different digests");
    Hasher hasher(DigestKind::kSum128);
    Sums joined;
    for (const Piece& piece : pieces) {
      const Bytes own = bytes.subspan(piece.begin, piece.end - piece.begin);
      hasher.update_at(own, piece.begin);
      Sums sums;
      sums.add(own, piece.begin);
      if (travel) {
        const Result<Sums> parsed = Sums::parse(sums.to_string());
        require(parsed.ok() && *parsed == sums, *target, "sums do not survive their text");
        joined.add(*parsed);
      } else {
        joined.add(sums);
      }
    }
    require(hasher.finish() == expected, *target, "a hasher fed in places differs");
    const Result<Digest> finished = joined.finish(bytes.size());
    require(finished.ok() && *finished == expected, *target, "sums of pieces differ");
    require(bytes.empty() || !joined.finish(bytes.size() - 1).ok(), *target,
            "a wrong length is not noticed");
  }
  force_kernels(available_kernels().front()->name);
}

void fuzz(Bytes bytes) {
  Input input(bytes);
  const uint64_t mode = input.number(1);
  constexpr size_t kLimits[] = {9, 70, 600, 600, 1100, 1100, 5000, 20000};
  const size_t size = size_t(input.number(2)) % kLimits[mode % 8];
  const size_t shift = size_t(mode / 8 % 8);
  // Small positions, those around segments, and any word of a tensor of up to 2^64 bytes.
  const uint64_t position = input.number((mode & 64) != 0 ? 8 : 2) % (uint64_t{1} << 61);
  const Lanes before = {input.number(8), input.number(1)};
  const std::vector<Piece> pieces = cut_up(&input, size);
  const size_t cut = size_t(input.number(2)) % (size / 8 + 1);
  const Blob memory = fill(input.take(SIZE_MAX), size, shift);
  const Bytes array = Bytes(memory).subspan(shift);
  check_kernels(array, position, cut, before);
  check_cuts(array, pieces, (mode & 128) != 0);
}

}  // namespace
}  // namespace deltawire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  deltawire::fuzz({data, size});
  return 0;
}
