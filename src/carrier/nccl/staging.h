// Bytes of host memory on their way to NCCL and back: two buckets, pinned and on the device, so
// that one is filled and emptied while the other travels.
#pragma once

#include <array>
#include <vector>

#include "base/thread_pool.h"
#include "carrier/nccl/rounds.h"
#include "kernels/cuda/memory.h"

struct CUevent_st;

namespace deltawire::nccl {

class Event {
 public:
  static Result<Event> create();
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  Status record(cuda::Stream stream);
  Status let_wait(cuda::Stream stream) const;  // what it is given from now on
  Result<bool> passed() const;                 // does not wait

 private:
  explicit Event(CUevent_st* event) : event_(event) {}
  CUevent_st* event_ = nullptr;
};

// One round's place. begin() to drain() and back.
class Bucket {
 public:
  static Result<Bucket> create();

  // Finds a place on the device for each message, and copies what goes out there. `traffic` then
  // waits for it.
  Status begin(const Round& round, unsigned rank, ThreadPool* pool, cuda::Stream up,
               cuda::Stream traffic);
  // Of message i: where NCCL is to read or write.
  uint8_t* place(size_t message) const { return places_[message]; }
  // NCCL has been given all: what comes in is copied to pinned memory after it.
  Status end(cuda::Stream traffic, cuda::Stream down);

  bool is_busy() const { return round_ != nullptr; }
  Result<bool> passed() const { return emptied_.passed(); }  // all of the round is done
  void drain(ThreadPool* pool);  // copies what came in to where it belongs

 private:
  Bucket(Event filled, Event moved, Event emptied)
      : filled_(std::move(filled)), moved_(std::move(moved)), emptied_(std::move(emptied)) {}
  bool comes_in(const Message& message) const;

  Event filled_, moved_, emptied_;
  cuda::Buffer pinned_, device_;
  const Round* round_ = nullptr;
  unsigned rank_ = 0;
  std::vector<uint8_t*> places_;
  std::vector<uint8_t*> staged_;  // pinned memory of each message; null: it lies on the device
};

}  // namespace deltawire::nccl
