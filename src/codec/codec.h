// A codec turns the change of one array into bytes and back. It sees raw elements, never a dtype or
// a file: `Layout` says how wide an element is and which of its bits make its class key.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "digest/sums.h"

namespace deltawire {

// Of this process only: on disk a codec is its name, which is pinned for ever.
enum class CodecId : uint8_t {
  kRaw,
  kGaps,
  kTight,
  kExponents,
  kAdaptive,
};

// How to look at raw elements. The key is (element >> key_shift) & key_mask: the exponent of a
// float, the top bits of an integer. key_mask is at most 0xff.
struct Layout {
  uint8_t width = 1;  // bytes per element: 1, 2, 4 or 8
  uint8_t key_shift = 0;
  uint8_t key_mask = 0xff;
  // An array that consists of matrices, row-major and one after the other; 0: of elements in order.
  uint32_t rows = 0, columns = 0;

  bool operator==(const Layout&) const = default;
};

// Absolute changes: positions strictly ascending, values packed in the array's own width.
struct Changes {
  std::vector<uint64_t> positions;
  std::vector<uint8_t> values;
};

struct Encoded {
  std::vector<uint8_t> payload;
  uint64_t num_changed = 0;
};

// Hashers of sum128 that are fed a codec's arrays while it works on them, which they share with it:
// bytes are in cache then, and hashing is nearly free.
struct Hashers {
  Hasher* old_bytes = nullptr;
  Hasher* new_bytes = nullptr;
};

// Arrays that others may write to while they are encoded. Each block of such an array is copied
// once, and what is coded and hashed is the copy.
struct ChangingArrays {
  bool old_bytes = false, new_bytes = false;
  // Set: adds what the arrays are worth as the bytes from `begin` on of a larger one.
  SharedSums* old_sums = nullptr;
  SharedSums* new_sums = nullptr;
  uint64_t begin = 0;

  bool any() const { return old_bytes || new_bytes; }
};

// Reads the old elements from number `begin` on, as many as `out` takes: from a checkpoint that
// still has the old version, or from a neighbour.
using ReadOld = std::function<Status(size_t begin, MutableBytes out)>;
struct Region;

// Stateless and thread-safe. `old_bytes` and `new_bytes` have the same size, a multiple of the
// width, and need no alignment. Payloads are untrusted: a bad one gives Corruption, never a crash;
// memory spent on one is bounded by the array's own size.
class Codec {
 public:
  virtual ~Codec() = default;
  virtual CodecId id() const noexcept = 0;
  virtual std::string_view name() const noexcept = 0;

  virtual Result<Encoded> encode(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                 ThreadPool* pool) const = 0;
  // The same, feeding `hashers`.
  virtual Result<Encoded> encode_hashed(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                        const Hashers& hashers, ThreadPool* pool) const;
  // Patches `data`, which holds the old array, in place. After an error its content is undefined:
  // callers patch a copy, or use decode() and keep a redo record.
  virtual Status apply(Layout layout, Bytes payload, MutableBytes data, ThreadPool* pool) const = 0;
  // The same; `patched`, a hasher of sum128, is fed the new array.
  virtual Status apply_hashed(Layout layout, Bytes payload, MutableBytes data, Hasher* patched,
                              ThreadPool* pool) const;
  // The same as absolute pairs, with nothing written.
  virtual Result<Changes> decode(Layout layout, Bytes payload, Bytes old_bytes,
                                 ThreadPool* pool) const = 0;
  // The same; `sums` become those of the old array, as a whole tensor.
  virtual Result<Changes> decode_summed(Layout layout, Bytes payload, Bytes old_bytes,
                                        ThreadPool* pool, Sums* sums) const;
  // Patches the parts of an array of n elements that are held (regions.h), in place. What is not
  // held and is needed comes from `read_old`, which may be empty; then such a payload is
  // Unsupported, and nothing is written. `tight` in tiles needs nothing but the tiles that a region
  // cuts.
  virtual Status apply_to_regions(Layout layout, size_t n, Bytes payload,
                                  std::span<const Region> regions, const ReadOld& read_old,
                                  ThreadPool* pool) const;
  // Which bytes of a payload apply_to_regions() reads, in order; ranges less than `gap` bytes apart
  // are one. Found from the first front_bytes() of the payload, or all of a shorter one. The other
  // bytes may be anything: they need not be fetched.
  virtual uint64_t front_bytes(Layout layout, size_t n) const;
  virtual Result<std::vector<ByteRange>> wanted_bytes(Layout layout, size_t n, Bytes front,
                                                      uint64_t payload_bytes,
                                                      std::span<const Region> regions,
                                                      uint64_t gap) const;

 protected:
  // Whether new values depend on old ones.
  virtual bool reads_old() const noexcept { return false; }
};

std::span<const Codec* const> all_codecs() noexcept;  // ordered by id
const Codec* find_codec(CodecId id) noexcept;         // nullptr when unknown
const Codec* find_codec(std::string_view name) noexcept;

// The codecs that codec.cpp lists, one function per file of this folder.
const Codec& raw_codec() noexcept;
const Codec& gaps_codec() noexcept;
const Codec& tight_codec() noexcept;
const Codec& exponents_codec() noexcept;
const Codec& adaptive_codec() noexcept;

// `tight` of arrays of more than one block that others may write to. Payloads are
// those that tight_codec() would make of the copies.
Result<Encoded> encode_tight_changing(Layout layout, Bytes old_bytes, Bytes new_bytes,
                                      const Hashers& hashers, const ChangingArrays& changing,
                                      ThreadPool* pool);

}  // namespace deltawire
