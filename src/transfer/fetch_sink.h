// A file that receives a download and is hashed meanwhile, on separate threads.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// Passes a stream of bytes to several takers, each on its own thread, so that the writer need not
// wait for them.

// Buffers at most kChunks chunks, 4 MiB, that not all takers have consumed. write() and drain() are
// for one thread at a time.
class Tee {
 public:
  // Gets every byte once, in order. Must not throw, and must remember its own failures.
  using Take = std::function<void(Bytes)>;

  // If `threaded` is false or no threads are available, write() calls the takers.
  Tee(std::vector<Take> takers, bool threaded);
  ~Tee();  // drops what waits
  Tee(const Tee&) = delete;
  Tee& operator=(const Tee&) = delete;

  // Copies the bytes; waits while the slowest taker is too far behind.
  void write(Bytes bytes);
  // Waits until all takers have consumed all bytes; their effects are then visible to the caller.
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

// Consumes an object from front to end while it arrives, before it is verified. Called by one
// thread at a time, not always the same.
class Follower {
 public:
  virtual ~Follower() = default;
  virtual Status take(std::span<const uint8_t> bytes) = 0;
  virtual Status finish() = 0;  // behind the last byte
};

// Accepts pieces in any order from several threads. Pieces in order are hashed from memory; an
// early piece is read back in its turn; if a piece comes twice, as after a retry, the whole file is
// hashed at the end. With a follower, pieces in order go only to it, and the file holds only the
// early ones.
class FetchSink final : public Sink {
 public:
  // Reserves the disk space at once. `received` counts bytes; `stop` ends the download.
  static Result<std::unique_ptr<FetchSink>> create(const std::filesystem::path& path,
                                                   uint64_t size_bytes,
                                                   std::atomic<uint64_t>* received,
                                                   const std::atomic<bool>* stop,
                                                   Follower* follower = nullptr);
  ~FetchSink() override;

  Status write(uint64_t offset, std::span<const uint8_t> bytes) override;
  // The sha-256 of the file as it is now. Once, after the last write().
  Result<Digest> finish();
  // The result of the follower, after finish().
  Status followed();

 private:
  FetchSink() = default;
  Status write_at(uint64_t offset, Bytes bytes);
  Status read_file(uint64_t begin, uint64_t end, const std::function<void(Bytes)>& take) const;
  Status use_early_pieces();
  Status keep(uint64_t offset, Bytes bytes);
  Status follow(uint64_t offset, Bytes bytes);
  void follow_on(Bytes bytes);
  Status follower_status();

  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
  std::atomic<uint64_t>* received_ = nullptr;
  const std::atomic<bool>* stop_ = nullptr;

  std::mutex mutex_;
  uint64_t used_ = 0;                   // bytes from the start that were hashed, or soon will be
  std::map<uint64_t, uint64_t> early_;  // begin -> end, behind `used_`
  bool twice_ = false;

  Hasher hasher_{DigestKind::kSha256};
  Follower* follower_ = nullptr;
  std::mutex follower_mutex_;
  Status followed_;
  std::optional<Tee> tee_;  // to the hasher and the follower; the last to be made
};

}  // namespace deltawire
