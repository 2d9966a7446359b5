// A memory mapping of a file that cannot kill the process. A page that is missing when it is
// touched (the file was truncated, its disk is full or unreadable) becomes zeros, and the mapping
// is marked as broken. Callers check broken() before they trust what they have read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace deltawire {

// Thread-safe except for moves. The first mapping installs a SIGBUS handler, which passes other
// faults to the handler that was there before.
class Mapping {
 public:
  enum class Access { kRead, kReadWrite };

  Mapping() = default;
  // All `size` bytes of `fd`, shared. On failure data() is null and errno says why.
  Mapping(int fd, size_t size, Access access) noexcept;
  ~Mapping();
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;

  uint8_t* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }
  // Whether bytes have been lost.
  bool broken() const noexcept { return slot_ != nullptr && slot_->broken.load(); }
  // From now on copy_out() reads from the file itself. Keeps a descriptor open unless too many are
  // open already.
  void read_by_descriptor(int fd) noexcept;

  // Read by the signal handler. Never freed, only reused.
  struct Slot {
    std::atomic<uintptr_t> begin{0}, end{0};  // of the mapping; 0: free
    std::atomic<bool> writable{false}, broken{false};
    std::atomic<int> fd{-1};  // to read by; -1: none
    Slot* next = nullptr;
  };

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
  Slot* slot_ = nullptr;
};

// Copies bytes from anywhere. Bytes of a mapping with a descriptor are read from the file, which
// avoids the page faults of a first access.
void copy_out(const uint8_t* from, uint8_t* to, size_t size) noexcept;

// The share of these mapped bytes, from 0 to 1, that is in memory already.
double resident_share(const uint8_t* bytes, size_t size) noexcept;

}  // namespace deltawire
