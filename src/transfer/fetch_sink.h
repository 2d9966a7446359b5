// A file that an object is downloaded into, hashed on the way, beside the threads that bring it.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "deltawire/store.h"
#include "transfer/tee.h"

namespace deltawire {

// Takes an object from front to end, as it arrives, before anybody has checked it. One thread at a
// time, not always the same.
class Follower {
 public:
  virtual ~Follower() = default;
  virtual Status take(std::span<const uint8_t> bytes) = 0;
  virtual Status finish() = 0;  // behind the last byte
};

// Takes pieces in any order from several threads. Pieces that come in order are hashed from memory;
// one that came early is read back when its turn comes; when a piece comes twice, as after a retry,
// the whole file is hashed at the end. With a follower, pieces that come in order go there alone:
// the file has only those that came early.
class FetchSink final : public Sink {
 public:
  // Takes the disk space at once. `received` counts bytes, `stop` ends the download.
  static Result<std::unique_ptr<FetchSink>> create(const std::filesystem::path& path,
                                                   uint64_t size_bytes,
                                                   std::atomic<uint64_t>* received,
                                                   const std::atomic<bool>* stop,
                                                   Follower* follower = nullptr);
  ~FetchSink() override;

  Status write(uint64_t offset, std::span<const uint8_t> bytes) override;
  // The sha-256 of the file as it is now. Once, after the last write().
  Result<Digest> finish();
  // What came of the follower, after finish().
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
