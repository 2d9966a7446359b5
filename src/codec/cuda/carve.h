// One piece of device memory, cut into typed pieces in turn.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deltawire::cuda {

// Where pieces begin, counted from where the memory does: that has to be so aligned itself.
inline constexpr size_t kCarveAlign = 256;

inline constexpr uint64_t carved_bytes(uint64_t num_bytes) {
  return (num_bytes + kCarveAlign - 1) / kCarveAlign * kCarveAlign;
}

class Carve {
 public:
  explicit Carve(uint8_t* begin) : at_(begin) {}  // null: only to learn the size

  template <class T>
  T* take(size_t count) {
    T* const piece = reinterpret_cast<T*>(at_ + size_);
    size_ += carved_bytes(count * sizeof(T));
    return piece;
  }
  size_t size() const { return size_; }

 private:
  uint8_t* at_;
  size_t size_ = 0;
};

}  // namespace deltawire::cuda
