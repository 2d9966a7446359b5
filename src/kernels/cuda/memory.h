// Memory of a GPU and of the host it can reach, streams, and copies between them. Plain C++: no
// CUDA header is needed to include this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "deltawire/status.h"

struct CUstream_st;

namespace deltawire::cuda {

using Stream = CUstream_st*;  // a cudaStream_t; null is the default stream

// Why a GPU cannot be used here: no driver, no device. OK if one can.
Status check_device();

Result<int> num_devices();
// Which device calls of this thread go to. A new thread begins with the first.
Result<int> current_device();
// The device whose memory this is; none if it is no device's own.
std::optional<int> device_of(const void* memory) noexcept;
// They go to another until this is gone.
class UseDevice {
 public:
  explicit UseDevice(int device) noexcept;
  ~UseDevice();
  UseDevice(const UseDevice&) = delete;
  UseDevice& operator=(const UseDevice&) = delete;

 private:
  int before_ = -1;  // to be gone back to; -1: nothing to do
};

struct DeviceInfo {
  std::string name;
  int multiprocessors = 0, driver = 0, runtime = 0;  // versions as 1000 x major + 10 x minor
  int capability = 0;                                // 10 x major + minor
  size_t total_bytes = 0, free_bytes = 0;
};
Result<DeviceInfo> device_info();

Result<uint64_t> free_memory();  // of the device in use, in bytes

enum class Place : uint8_t { kDevice, kPinned };

// Owns a piece of memory. What a stream still does with it must be over before it goes.
class Buffer {
 public:
  Buffer() = default;
  static Result<Buffer> allocate(Place place, size_t num_bytes);
  ~Buffer();
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(place_, other.place_);
    return *this;
  }

  template <class T = uint8_t>
  T* data() const noexcept {
    return static_cast<T*>(data_);
  }
  size_t size() const noexcept { return size_; }
  Place place() const noexcept { return place_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
  Place place_ = Place::kDevice;
};

// Kernels of urgent streams come first where both wait for room on the device.
enum class Urgency : uint8_t { kPlain, kUrgent };

class OwnedStream {
 public:
  static Result<OwnedStream> create(Urgency urgency = Urgency::kPlain);
  ~OwnedStream();
  OwnedStream(OwnedStream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  OwnedStream& operator=(OwnedStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  Stream get() const noexcept { return stream_; }

 private:
  explicit OwnedStream(Stream stream) : stream_(stream) {}
  Stream stream_ = nullptr;
};

// To or from the device, or within it. Host memory that is not pinned has been read when this
// returns; pinned memory must stay until wait(), and so must whatever is written to.
Status copy(void* to, const void* from, size_t num_bytes, Stream stream);
// The same of `rows` rows of `row_bytes` each, whose begins are `to_stride` and `from_stride` bytes
// apart.
Status copy_rows(void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes,
                 size_t rows, Stream stream);
Status fill_zero(void* device, size_t num_bytes, Stream stream);
Status wait(Stream stream);
// `later` goes on only when `earlier` has done what it was given so far.
Status order_after(Stream later, Stream earlier);

}  // namespace deltawire::cuda
