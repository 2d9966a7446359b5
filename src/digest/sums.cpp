#include "digest/sums.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "kernels/kernels.h"
#include "kernels/sum_math.h"
#include "kernels/sum_segments.h"

namespace deltawire {
namespace {

using sum128::kWordBytes;

uint8_t known_bytes(size_t begin, size_t count) { return uint8_t(((1U << count) - 1) << begin); }

void add_term(uint64_t position, uint64_t word, std::array<uint64_t, 2>* lanes) {
  for (size_t lane = 0; lane < sum128::kLanes; ++lane) {
    (*lanes)[lane] += sum128::term(lane, position, word);
  }
}

std::string hex_number(uint64_t value) {
  char text[16];
  const auto end = std::to_chars(text, text + sizeof text, value, 16).ptr;
  return {text, end};
}

// Reads a number and then `separator`, or the end.
bool take_hex(std::string_view* text, char separator, uint64_t* value) {
  const char* const end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, *value, 16);
  if (error != std::errc()) return false;
  if (stop != end && (*stop != separator || stop + 1 == end)) return false;
  text->remove_prefix(size_t(stop - text->data()) + (stop != end));
  return true;
}

}  // namespace

// Four rounds, so that every bit of either lane affects every bit of the digest.
Digest finish_sums(std::array<uint64_t, 2> lanes, uint64_t size_bytes) {
  using sum128::kStep;
  using sum128::mix;
  const uint64_t length = mix((sum128::kLengthSeed + kStep) ^ size_bytes);
  uint64_t a = lanes[0] + length, b = lanes[1] + mix(length + kStep);
  b ^= mix(a + kStep);
  a ^= mix(b + 2 * kStep);
  b ^= mix(a + 3 * kStep);
  a ^= mix(b + 4 * kStep);
  Digest digest{DigestKind::kSum128, uint8_t(digest_size(DigestKind::kSum128)), {}};
  store_le(digest.bytes.data(), a);
  store_le(digest.bytes.data() + 8, b);
  return digest;
}

void Sums::add(std::span<const uint8_t> bytes, uint64_t offset) {
  num_bytes_ += bytes.size();
  uint64_t position = offset / kWordBytes;
  // The part of a word that begins before the bytes or ends after them.
  const auto take_edge = [&](size_t begin, size_t count) {
    Edge edge{position, 0, known_bytes(begin, count)};
    uint8_t word[kWordBytes] = {};
    std::memcpy(word + begin, bytes.data(), count);
    edge.word = load_le<uint64_t>(word);
    add_edge(edge);
    bytes = bytes.subspan(count);
    ++position;
  };
  if (const size_t begin = offset % kWordBytes; begin != 0 && !bytes.empty()) {
    take_edge(begin, std::min(bytes.size(), kWordBytes - begin));
  }
  const size_t words = bytes.size() / kWordBytes;
  kernels().sum(bytes.data(), words, position, lanes_.data());
  bytes = bytes.subspan(words * kWordBytes);
  position += words;
  if (!bytes.empty()) take_edge(0, bytes.size());
}

Sums::Edge Sums::joined(const Edge& a, const Edge& b) {
  twice_ |= (a.known & b.known) != 0;
  return {a.position, a.word | b.word, uint8_t(a.known | b.known)};
}

void Sums::add_edge(const Edge& edge) {
  const auto at =
      std::lower_bound(edges_.begin(), edges_.end(), edge.position,
                       [](const Edge& one, uint64_t position) { return one.position < position; });
  if (at == edges_.end() || at->position != edge.position) {
    edges_.insert(at, edge);
    return;
  }
  *at = joined(*at, edge);
  if (at->known != 0xff) return;
  add_term(at->position, at->word, &lanes_);
  edges_.erase(at);
}

void Sums::add(const Sums& other) {
  num_bytes_ += other.num_bytes_;
  twice_ |= other.twice_;
  for (size_t lane = 0; lane < lanes_.size(); ++lane) lanes_[lane] += other.lanes_[lane];
  if (other.edges_.empty()) return;
  // Both lists ascend: one pass, however many words are cut.
  std::vector<Edge> merged;
  merged.reserve(edges_.size() + other.edges_.size());
  auto own = edges_.begin();
  for (const Edge& edge : other.edges_) {
    while (own != edges_.end() && own->position < edge.position) merged.push_back(*own++);
    const bool meet = own != edges_.end() && own->position == edge.position;
    const Edge word = meet ? joined(*own++, edge) : edge;
    if (word.known == 0xff) {
      add_term(word.position, word.word, &lanes_);
    } else {
      merged.push_back(word);
    }
  }
  merged.insert(merged.end(), own, edges_.end());
  edges_ = std::move(merged);
}

void Sums::add_lanes(const std::array<uint64_t, 2>& lanes, uint64_t num_bytes) {
  for (size_t lane = 0; lane < lanes_.size(); ++lane) lanes_[lane] += lanes[lane];
  num_bytes_ += num_bytes;
}

Result<Digest> Sums::finish(uint64_t size_bytes) const {
  if (twice_) return invalid_argument("sums: some bytes were added twice");
  if (num_bytes_ != size_bytes) {
    return invalid_argument("sums: " + std::to_string(num_bytes_) +
                            " bytes were added, the tensor has " + std::to_string(size_bytes));
  }
  std::array<uint64_t, 2> lanes = lanes_;
  for (const Edge& edge : edges_) {
    // Only the last word of a tensor may be short.
    const size_t rest = size_bytes % kWordBytes;
    if (edge.position != size_bytes / kWordBytes || edge.known != known_bytes(0, rest)) {
      return invalid_argument("sums: bytes are missing at " +
                              std::to_string(edge.position * kWordBytes));
    }
    add_term(edge.position, edge.word, &lanes);
  }
  return finish_sums(lanes, size_bytes);
}

std::string Sums::to_string() const {
  std::string text = hex_number(lanes_[0]) + ":" + hex_number(lanes_[1]) + ":" +
                     hex_number(num_bytes_) + (twice_ ? ":1" : ":0");
  for (const Edge& edge : edges_) {
    text += "," + hex_number(edge.position) + ":" + hex_number(edge.known) + ":" +
            hex_number(edge.word);
  }
  return text;
}

Result<Sums> Sums::parse(std::string_view text) {
  const auto bad = [] { return corruption("sums: not as Sums::to_string() writes them"); };
  Sums sums;
  uint64_t twice = 0, edge_bytes = 0;
  for (uint64_t* number : {&sums.lanes_[0], &sums.lanes_[1], &sums.num_bytes_}) {
    if (!take_hex(&text, ':', number)) return bad();
  }
  if (!take_hex(&text, ',', &twice) || twice > 1) return bad();
  sums.twice_ = twice != 0;
  while (!text.empty()) {
    Edge edge;
    uint64_t known = 0;
    if (!take_hex(&text, ':', &edge.position) || !take_hex(&text, ':', &known) ||
        !take_hex(&text, ',', &edge.word)) {
      return bad();
    }
    const bool ascends = sums.edges_.empty() || sums.edges_.back().position < edge.position;
    if (!ascends || known == 0 || known >= 0xff) return bad();
    edge.known = uint8_t(known);
    edge_bytes += uint64_t(std::popcount(edge.known));
    for (size_t i = 0; i < kWordBytes; ++i) {
      if ((known >> i & 1) == 0 && (edge.word >> (8 * i) & 0xff) != 0) return bad();
    }
    sums.edges_.push_back(edge);
  }
  if (edge_bytes > sums.num_bytes_) return bad();
  return sums;
}

namespace {

using sum128::kLanes;
using sum128::kSegmentWords;
using sum128::kWordBytes;

constexpr size_t kChangesOfATask = 16384;

struct Lanes {
  std::array<uint64_t, kLanes> sums{};
};

constexpr size_t kAhead = 24;  // changes

// The last word may be cut; the missing bytes are zero.
inline uint64_t word_at(Bytes bytes, uint64_t word) {
  const uint8_t* const at = bytes.data() + word * kWordBytes;
  if ((word + 1) * kWordBytes <= bytes.size()) return load_le<uint64_t>(at);
  uint64_t cut = 0;
  std::memcpy(&cut, at, bytes.size() - word * kWordBytes);
  return cut;
}

// Changes [begin, end). Neighbours that share a word are taken together.
template <unsigned kWidth>
void replace_some(Bytes bytes, std::span<const uint64_t> positions, const uint8_t* values,
                  size_t begin, size_t end, Lanes* out) {
  constexpr uint64_t kOfAWord = kWordBytes / kWidth;
  uint64_t segment = UINT64_MAX, keys[kLanes] = {};
  Lanes lanes;
  for (size_t i = begin; i < end;) {
    const uint64_t word = positions[i] / kOfAWord;
    if (word / kSegmentWords != segment) {
      segment = word / kSegmentWords;
      for (size_t lane = 0; lane < kLanes; ++lane) keys[lane] = sum128::segment_key(lane, segment);
    }
    // The words lie far apart, so they are prefetched.
    __builtin_prefetch(bytes.data() + positions[std::min(i + kAhead, end - 1)] * kWidth);
    const uint64_t before_word = word_at(bytes, word);
    uint64_t after_word = before_word;
    for (; i < end && positions[i] / kOfAWord == word; ++i) {
      const unsigned shift = unsigned(positions[i] % kOfAWord) * kWidth * 8;
      constexpr uint64_t kElement = ~uint64_t{0} >> (64 - 8 * kWidth);
      uint64_t value = 0;
      std::memcpy(&value, values + i * kWidth, kWidth);
      after_word = (after_word & ~(kElement << shift)) | value << shift;
    }
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const uint64_t key = sum128::kWordKeys.keys[lane][word % kSegmentWords];
      lanes.sums[lane] +=
          keys[lane] * (sum128::product(after_word, key) - sum128::product(before_word, key));
    }
  }
  *out = lanes;
}

// The first change at or after `at` that begins a word.
size_t word_begin(std::span<const uint64_t> positions, uint64_t of_a_word, size_t at) {
  while (at > 0 && at < positions.size() &&
         positions[at] / of_a_word == positions[at - 1] / of_a_word) {
    ++at;
  }
  return std::min(at, positions.size());
}

}  // namespace

void replace_elements(unsigned width, Bytes bytes, std::span<const uint64_t> positions,
                      Bytes values, ThreadPool* pool, Sums* sums) {
  const size_t tasks = (positions.size() + kChangesOfATask - 1) / kChangesOfATask;
  std::vector<Lanes> found(tasks);
  const uint64_t of_a_word = kWordBytes / width;
  parallel_for(pool, tasks, [&](size_t task, unsigned) {
    const size_t begin = word_begin(positions, of_a_word, task * kChangesOfATask);
    const size_t end = word_begin(positions, of_a_word, (task + 1) * kChangesOfATask);
    const auto replace = width == 1   ? replace_some<1>
                         : width == 2 ? replace_some<2>
                         : width == 4 ? replace_some<4>
                                      : replace_some<8>;
    replace(bytes, positions, values.data(), begin, end, &found[task]);
  });
  for (const Lanes& lanes : found) sums->add_lanes(lanes.sums, 0);
}

}  // namespace deltawire
