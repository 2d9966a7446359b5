// A stream of bytes for several takers, each on a thread of its own: whoever brings the bytes does
// not wait for them to be used.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/bytes.h"

namespace deltawire {

// Holds at most kChunks chunks, 4 MiB, of what not all takers have had. write() and drain() are for
// one thread at a time.
class Tee {
 public:
  // Gets every byte once, in order. Must not throw, and keeps its failures itself.
  using Take = std::function<void(Bytes)>;

  // Without threads, or where the system gives none, write() calls the takers.
  Tee(std::vector<Take> takers, bool threaded);
  ~Tee();  // drops what waits
  Tee(const Tee&) = delete;
  Tee& operator=(const Tee&) = delete;

  // Copies the bytes; waits while the slowest taker is too far behind.
  void write(Bytes bytes);
  // Waits until all takers have had all bytes: what they did is then seen by the caller.
  void drain();

 private:
  static constexpr size_t kChunks = 8, kChunkBytes = size_t{512} << 10;

  void work(size_t taker);
  void pass_on();  // the chunk that is being filled

  const std::vector<Take> takers_;
  std::array<std::vector<uint8_t>, kChunks> chunks_;  // number i is in i % kChunks

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t filled_ = 0;          // chunks that takers may have
  std::vector<uint64_t> taken_;  // by each thread
  bool closed_ = false;
  std::vector<std::thread> threads_;  // of the first takers; the others have none
};

}  // namespace deltawire
