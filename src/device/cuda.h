// Compares, encodes, hashes and patches weights on a GPU. Payloads and digests are the same as the
// CPU's, byte for byte, so two sides need not use the same hardware.
//
// In a build without CUDA these functions return Unsupported. Work goes to the given stream; every
// function says whether it waits for it. All arrays of a call are processed in a few launches.
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

struct MarkedFp8;  // internal: src/kernels/cuda/marked.h

// OK if a GPU can be used, else the reason: Unsupported (not built in) or Device (driver, no
// device).
Status available();

// Codecs whose changes Context::encode() finds on the device, without copying arrays to the host.
inline bool has_codec(std::string_view codec) noexcept {
  return codec == "auto" || codec == "tight" || codec == "gaps" || codec == "adaptive";
}

// The matrices of an array, in codec elements (format/layout.h). 0: it is not made of matrices.
struct Matrices {
  uint32_t rows = 0, columns = 0;
};

// Contiguous memory of any alignment on the current device. Not owned.
struct DeviceArray {
  DType dtype = DType::kBF16;
  void* data = nullptr;
  uint64_t size_bytes = 0;
  Matrices matrices = {};
};

// The new contents of an array. F32 and F16 can be compared with BF16: they count as rounded to
// nearest even, without a rounded copy.
struct NewArray {
  DType dtype = DType::kBF16;
  const void* data = nullptr;
};

// A new array converted to dtype `as`: its own dtype, or BF16 for F32 and F16.
struct Contents {
  NewArray array;
  DType as = DType::kBF16;
  uint64_t size_bytes = 0;  // after conversion
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
  NewArray after;  // has the same number of elements
};

// The changes of one array, in host memory.
struct Coded {
  std::string codec;
  std::vector<uint8_t> payload;
  uint64_t num_changed = 0;  // elements
  // Digest of the new array exactly as it was encoded, if requested.
  std::optional<Digest> new_digest = {};
};

// Digests that encode() computes of new arrays; nearly free.
enum class NewDigests : uint8_t { kNone, kSum128 };

struct Patch {
  DeviceArray array;
  std::string codec;
  std::span<const uint8_t> payload;  // in host memory; pinned memory is faster
  // For `tight`, instead of `array.data`: the available regions of the array, in device memory. A
  // changed tile must be inside one region or outside of all.
  std::vector<Region> regions = {};
};

struct ContextOptions {
  // Device memory in addition to the arrays, at least 8 MiB. It includes tables of `tight` (some 64
  // KB per array) up to half of it. More tables, and a single array or payload with more changes,
  // take additional memory.
  uint64_t scratch_bytes = uint64_t{256} << 20;
  unsigned threads = 0;  // of the host; 0: one per core
  // Memory on the device to use, as the arrays of later calls; null: the current device.
  const void* beside = nullptr;
  uint64_t spare_bytes = uint64_t{512} << 20;  // of host memory, see Context::recycler()
  // Device memory in addition to the scratch: decoded `tight` payloads wait there after check(), or
  // in apply() if the scratch is too small. Payloads that do not fit are decoded twice. None: a
  // quarter of the free memory. Allocated on demand and reused. The host uses as much for what it
  // decodes, at most 2 GiB.
  std::optional<uint64_t> kept_bytes = {};
};

// Memory, streams and tables, kept between calls. Belongs to one device, whatever device the
// calling thread uses; all arrays must be there. One call at a time.
class Context {
 public:
  static Result<Context> create(const ContextOptions& options = {});
  ~Context();
  Context(Context&&) noexcept;
  Context& operator=(Context&&) noexcept;

  // `tight`, `gaps`, `adaptive` (encoded on the host from changes found on the device), or `auto`:
  // the smallest of these, chosen like on the CPU, or `raw`. For other codecs arrays are fetched
  // and encoded on the host. Waits.
  Result<std::vector<Coded>> encode(std::string_view codec, std::span<const Pair> pairs,
                                    Stream stream, NewDigests digests = NewDigests::kNone);
  // Takes back payloads of encode() to reuse their memory without page faults. Thread-safe; may be
  // called after the context is destroyed.
  std::function<void(std::vector<uint8_t>)> recycler() const;

  // Corruption, without any write, if a payload is bad. `adaptive` is decoded by the host, which
  // fetches the old arrays. Waits.
  Status apply(std::span<const Patch> patches, Stream stream);
  // Checks without writing. Keeps the results for apply_checked(): decoded `tight` payloads on the
  // device if there is room, else the payloads in pinned memory; for codecs without kernels what
  // the host has decoded, up to 2 GiB. Waits.
  Status check(std::span<const Patch> patches, Stream stream);
  // Applies what check() has passed, with the same payloads. Writes what was kept and decodes the
  // rest. The host reads payloads again only if other patches were checked or applied since. After
  // a failure, caused by another writer, the arrays are undefined. `digests` get the sum128 of
  // arrays for which it follows from the write: those of `tight` with changes in every block.
  // Waits.
  Status apply_checked(std::span<const Patch> patches, Stream stream,
                       std::vector<std::optional<Digest>>* digests = nullptr);
  // Drops what check() keeps in host memory, because apply_checked() will not be called. Memory of
  // `tight` is reused instead.
  void forget_checked() noexcept;
  // Device memory held in addition to the scratch; see ContextOptions::kept_bytes.
  uint64_t kept_bytes() const noexcept;
  // sum128 of each. Waits.
  Result<std::vector<Digest>> digests(std::span<const Contents> arrays, Stream stream);
  // What boxes add to the sum128 of their tensors. Computed on the host if rows do not begin at
  // multiples of 512 bytes of the tensor. Waits.
  Result<std::vector<Sums>> sums(std::span<const BoxContents> boxes, Stream stream);
  // Copies bytes to the host, from `offset` on. Waits.
  Status fetch(const Contents& contents, uint64_t offset, std::span<uint8_t> out, Stream stream);
  // Copies host memory to the device. Waits.
  Status send(std::span<const uint8_t> bytes, void* to, Stream stream);

  struct Impl;

 private:
  friend struct ContextInternals;
  explicit Context(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The state that a publisher compares with, on the device or in pinned host memory. Only advance()
// and replace() change it.
class DeviceSnapshot {
 public:
  enum class Placement : uint8_t { kDevice, kPinned };

  // The context must outlive it.
  DeviceSnapshot(Context* context, Placement placement);
  ~DeviceSnapshot();
  DeviceSnapshot(DeviceSnapshot&&) noexcept;
  DeviceSnapshot& operator=(DeviceSnapshot&&) noexcept;

  using Slot = uint32_t;
  // Adds a copy. Waits.
  Result<Slot> add(const Contents& contents, Stream stream);
  // The same from host memory.
  Result<Slot> add(std::span<const uint8_t> contents, DType dtype, Matrices matrices = {});
  void remove(Slot slot) noexcept;

  struct Change {
    Slot slot = 0;
    NewArray after;
    const MarkedFp8* marked = nullptr;  // of encode(), instead of `after`: internal
  };
  // A snapshot in host memory crosses the bus once, in pieces that several threads and streams
  // process in parallel, after earlier work on `stream`. Waits.
  Result<std::vector<Coded>> encode(std::string_view codec, std::span<const Change> changes,
                                    Stream stream, NewDigests digests = NewDigests::kNone);
  struct Step {
    Slot slot = 0;
    std::string codec;
    std::span<const uint8_t> payload;  // made by encode() from the current slot
  };
  // Writes only changed elements. After a failure the slots of `steps` are undefined.
  Status advance(std::span<const Step> steps, Stream stream);
  // Copies the arrays into slots on the device and returns the sum128 of what was written. Needs
  // one pass: faster than advance() while the arrays are unchanged since encode(). After a failure
  // the slots are undefined. Unsupported in host memory. Waits.
  Result<std::vector<Digest>> replace(std::span<const Change> changes, Stream stream);
  // sum128 of what the slots hold. Waits.
  Result<std::vector<Digest>> digests(std::span<const Slot> slots, Stream stream) const;
  // Copies a slot's bytes out. Waits.
  Status read(Slot slot, uint64_t offset, std::span<uint8_t> out, Stream stream) const;

  // The memory of a slot; null in host memory and for empty slots.
  uint8_t* data(Slot slot) const noexcept;

  uint64_t device_bytes() const noexcept;
  uint64_t host_bytes() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The device of this memory; none: it is host memory.
std::optional<int> device_number(const void* memory);
// Free bytes on the device of this memory.
Result<uint64_t> free_beside(const void* memory);

}  // namespace deltawire::cuda
