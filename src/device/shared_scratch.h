// A block of memory from which several threads take parts.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <utility>

namespace deltawire::cuda {

class SharedScratch {
 public:
  explicit SharedScratch(std::span<uint8_t> memory);

  // A part of the memory, returned by the destructor.
  class Part {
   public:
    Part() = default;
    ~Part() { give_back(); }
    Part(Part&& other) noexcept
        : room_(std::exchange(other.room_, nullptr)), memory_(other.memory_) {}
    Part& operator=(Part&& other) noexcept {
      std::swap(room_, other.room_);
      std::swap(memory_, other.memory_);
      return *this;
    }

    bool has_room() const noexcept { return room_ != nullptr; }
    std::span<uint8_t> memory() const noexcept { return memory_; }
    void give_back() noexcept;

   private:
    friend class SharedScratch;
    Part(SharedScratch* room, std::span<uint8_t> memory) : room_(room), memory_(memory) {}
    SharedScratch* room_ = nullptr;
    std::span<uint8_t> memory_;
  };

  // Aligned to 256 bytes if the memory is. Without room if there is none now, or if num_bytes is 0.
  Part try_take(uint64_t num_bytes);
  // Waits for room. For at most the total size, from a thread without a part.
  Part take(uint64_t num_bytes);

 private:
  Part cut(uint64_t num_bytes);
  void join(std::span<uint8_t> memory) noexcept;

  uint8_t* const begin_;
  std::mutex mutex_;
  std::condition_variable given_back_;
  std::map<uint64_t, uint64_t> free_;  // begin -> end
};

}  // namespace deltawire::cuda
