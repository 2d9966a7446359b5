// A file mapped into memory that cannot kill the process. Pages that are gone when they are touched
// (the file was cut short, its disk is full or cannot be read) become memory of zeros, and the
// mapping says that it is broken. Whoever is done with the bytes asks before trusting them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace deltawire {

// Thread-safe but for moves. The first one installs a handler of SIGBUS; faults elsewhere go on to
// the handler that was there before.
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
  // Whether bytes were lost so far.
  bool broken() const noexcept { return slot_ != nullptr && slot_->broken.load(); }
  // From now on copy_out() reads from the file itself. Keeps a descriptor open, unless there are
  // many of those already.
  void read_by_descriptor(int fd) noexcept;

  // What the signal handler looks at. Never freed, used again.
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

// Copies bytes from anywhere. Those of a mapping with a descriptor are read from its file: a copy
// without the page faults that a first look at mapped bytes takes.
void copy_out(const uint8_t* from, uint8_t* to, size_t size) noexcept;

// The share of these mapped bytes, 0 ... 1, that is in memory and need not be read from a disk.
double resident_share(const uint8_t* bytes, size_t size) noexcept;

}  // namespace deltawire
