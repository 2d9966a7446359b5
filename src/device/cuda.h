// Weights on a GPU: compared, coded, hashed and patched where they are. Payloads and digests are
// the CPU's, byte for byte, so that two sides need not agree on where they work.
//
// A build without CUDA has these functions too: they say Unsupported. Work goes to the stream it is
// given; every function says whether it waits for it. All arrays of a call are in a few launches,
// however many there are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "codec/regions.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

struct CUstream_st;

namespace deltawire::cuda {

using Stream = CUstream_st*;  // a cudaStream_t; null is the default stream

struct MarkedFp8;  // of the library's own: src/kernels/cuda/marked.h

// OK where a GPU can be used; else why not: Unsupported (not built in), Device (driver, no device).
Status available();

// Codecs whose changes Context::encode() finds on the device: arrays need not come to the host.
inline bool has_codec(std::string_view codec) noexcept {
  return codec == "auto" || codec == "tight" || codec == "gaps" || codec == "adaptive";
}

// What an array consists of, in elements as codecs see them (format/layout.h); 0: not of matrices.
struct Matrices {
  uint32_t rows = 0, columns = 0;
};

// Contiguous, of any alignment, on the device in use. Not owned.
struct DeviceArray {
  DType dtype = DType::kBF16;
  void* data = nullptr;
  uint64_t size_bytes = 0;
  Matrices matrices = {};
};

// What an array has become. F32 and F16 may stand against BF16: they count as the bf16 that they
// round to, to nearest even, and no rounded copy is made.
struct NewArray {
  DType dtype = DType::kBF16;
  const void* data = nullptr;
};

// A new array seen as an array of dtype `as`: its own, or BF16 where it has F32 or F16.
struct Contents {
  NewArray array;
  DType as = DType::kBF16;
  uint64_t size_bytes = 0;  // as `as`
  Matrices matrices = {};
};

// A box of a tensor, its elements row by row.
struct BoxContents {
  Contents contents;
  Shape shape;  // of the tensor
  Box box;
};

struct Pair {
  DeviceArray before;
  NewArray after;  // of as many elements
};

// The changes of one array, in host memory.
struct Coded {
  std::string codec;
  std::vector<uint8_t> payload;
  uint64_t num_changed = 0;  // elements
  // Of the new array as it was encoded, whatever is written to it meanwhile: if it was asked for.
  std::optional<Digest> new_digest = {};
};

// Digests that encode() makes of new arrays as it reads them, which is nearly free.
enum class NewDigests : uint8_t { kNone, kSum128 };

struct Patch {
  DeviceArray array;
  std::string codec;
  std::span<const uint8_t> payload;  // in host memory; pinned memory is copied faster
  // Of `tight`, in place of `array.data`: what there is of the array. Tiles with changes lie in one
  // region each, or in none. Memory of the regions is the device's.
  std::vector<Region> regions = {};
};

struct ContextOptions {
  // Of device memory, beside the arrays: at least 8 MiB. Tables of `tight` (some 64 KB for each
  // array of a call) are part of it, as far as half of it is enough. On top come more tables, and
  // a single array or payload whose changes alone are larger.
  uint64_t scratch_bytes = uint64_t{256} << 20;
  unsigned threads = 0;  // of the host, for what it has to do; 0: its cores
  // Memory of the device to work on, as the arrays of the calls will be; null: the device in use.
  const void* beside = nullptr;
  uint64_t spare_bytes = uint64_t{512} << 20;  // of host memory, see Context::recycler()
  // Of device memory, beside the scratch: what `tight` payloads were decoded to by check(), and by
  // apply() where the scratch is too small for it, waits there until it may be written. What finds
  // no room is decoded twice. None: a quarter of what is free then. Taken when it is needed, and
  // used again by later calls. As much of host memory, 2 GiB at most, is for what the host decodes.
  std::optional<uint64_t> kept_bytes = {};
};

// Memory, streams and tables, kept from call to call. Of one device: calls go there, whatever
// device their thread uses, and so must their arrays be. One call at a time.
class Context {
 public:
  static Result<Context> create(const ContextOptions& options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  // `tight`, `gaps`, `adaptive` (the host codes what the device has found), or `auto`:
  // the smallest of these as the CPU chooses it, `raw` where none pays. Arrays of other codecs are
  // fetched and coded by the host. Waits.
  Result<std::vector<Coded>> encode(std::string_view codec, std::span<const Pair> pairs,
                                    Stream stream, NewDigests digests = NewDigests::kNone);
  // Takes payloads of encode() that are done with: their memory is used for later ones, which then
  // takes no page faults. From any thread; may be used when the context has gone.
  std::function<void(std::vector<uint8_t>)> recycler() const;

  // Corruption, and nothing is written, unless every payload is sound. `adaptive` is decoded by the
  // host first, which fetches the old arrays. Waits.
  Status apply(std::span<const Patch> patches, Stream stream);
  // The same without a write. What it finds out is kept for apply_checked(): of `tight` what it has
  // decoded, on the device, as far as there is room; else the payloads, in pinned memory. Of codecs
  // without kernels what the host has decoded, up to 2 GiB of its memory. Waits.
  Status check(std::span<const Patch> patches, Stream stream);
  // apply() of what check() has passed, with payloads as they were: what was kept is written, the
  // rest decoded and written on the way. The host reads payloads only if other patches were checked
  // or applied since. After a failure, which is then somebody else's write to the arrays, they hold
  // anything. `digests` get sum128 of what each array holds then where that is known from what was
  // written: of `tight`, if each of its blocks has changes. They are of the bytes in memory, all of
  // them. Waits.
  Status apply_checked(std::span<const Patch> patches, Stream stream,
                       std::vector<std::optional<Digest>>* digests = nullptr);
  // apply_checked() will not come: what check() keeps in host memory for it goes. Not of `tight`,
  // whose memory is used again.
  void forget_checked() noexcept;
  // What is held of device memory beside the scratch: see ContextOptions::kept_bytes.
  uint64_t kept_bytes() const noexcept;
  // sum128 of each. Waits.
  Result<std::vector<Digest>> digests(std::span<const Contents> arrays, Stream stream);
  // What boxes add to the sum128 of their tensors. On the host where rows of a box do not begin at
  // multiples of 512 bytes of the tensor. Waits.
  Result<std::vector<Sums>> sums(std::span<const BoxContents> boxes, Stream stream);
  // Copies bytes out, from `offset` on. Waits.
  Status fetch(const Contents& contents, uint64_t offset, std::span<uint8_t> out, Stream stream);

  struct Impl;

 private:
  friend struct ContextInternals;
  explicit Context(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The state that a publisher compares with, on the device or in pinned host memory. It changes in
// advance() alone.
class DeviceSnapshot {
 public:
  enum class Placement : uint8_t { kDevice, kPinned };

  // The context must outlive it.
  DeviceSnapshot(Context* context, Placement placement);
  ~DeviceSnapshot();
  DeviceSnapshot(DeviceSnapshot&&) noexcept;
  DeviceSnapshot& operator=(DeviceSnapshot&&) noexcept;

  using Slot = uint32_t;
  // Holds a copy. Waits.
  Result<Slot> add(const Contents& contents, Stream stream);
  // The same from host memory.
  Result<Slot> add(std::span<const uint8_t> contents, DType dtype, Matrices matrices = {});
  void remove(Slot slot) noexcept;

  struct Change {
    Slot slot = 0;
    NewArray after;
    const MarkedFp8* marked = nullptr;  // of encode(), in place of `after`: the library's own
  };
  // A snapshot in host memory crosses the bus once, in pieces that are worked on side by side, by
  // several threads and streams, after what `stream` has been given. Waits.
  Result<std::vector<Coded>> encode(std::string_view codec, std::span<const Change> changes,
                                    Stream stream, NewDigests digests = NewDigests::kNone);
  struct Step {
    Slot slot = 0;
    std::string codec;
    std::span<const uint8_t> payload;  // that encode() made of the slot as it is
  };
  // Only elements that changed are written. After a failure the slots of `steps` hold anything.
  Status advance(std::span<const Step> steps, Stream stream);
  // Makes slots on the device what the arrays are, in one pass that reads each array and writes
  // each slot once: faster than advance() while arrays are still what was encoded. Gives sum128 of
  // what was written. After a failure the slots hold anything. Unsupported in host memory. Waits.
  Result<std::vector<Digest>> replace(std::span<const Change> changes, Stream stream);
  // sum128 of what the slots hold. Waits.
  Result<std::vector<Digest>> digests(std::span<const Slot> slots, Stream stream) const;
  // Copies a slot's bytes out. Waits.
  Status read(Slot slot, uint64_t offset, std::span<uint8_t> out, Stream stream) const;

  // Where a slot is; null in host memory, and of a slot that holds nothing.
  uint8_t* data(Slot slot) const noexcept;

  uint64_t device_bytes() const noexcept;
  uint64_t host_bytes() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The device that memory is on; none: it is the host's.
std::optional<int> device_number(const void* memory);
// Bytes that are free on the device of that memory.
Result<uint64_t> free_beside(const void* memory);

// From host memory to the device. Waits.
Status send(std::span<const uint8_t> bytes, void* device, Stream stream);

}  // namespace deltawire::cuda
