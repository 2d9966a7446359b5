// A file that an object is downloaded into, hashed on the way.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>

#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// Takes pieces in any order from several threads. Pieces that come in order are hashed from memory;
// one that came early is read back when its turn comes; when a piece comes twice, as after a retry,
// the whole file is hashed at the end.
class FetchSink final : public Sink {
 public:
  // Takes the disk space at once. `received` counts bytes, `stop` ends the download.
  static Result<std::unique_ptr<FetchSink>> create(const std::filesystem::path& path,
                                                   uint64_t size_bytes,
                                                   std::atomic<uint64_t>* received,
                                                   const std::atomic<bool>* stop);
  ~FetchSink() override;

  Status write(uint64_t offset, std::span<const uint8_t> bytes) override;
  // The sha-256 of the file as it is now. Once, after the last write().
  Result<Digest> finish();

 private:
  FetchSink() = default;
  Status write_at(uint64_t offset, std::span<const uint8_t> bytes);
  Status hash_file(uint64_t begin, uint64_t end, Hasher* hasher) const;
  Status hash_early_pieces();

  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
  std::atomic<uint64_t>* received_ = nullptr;
  const std::atomic<bool>* stop_ = nullptr;

  std::mutex mutex_;
  Hasher hasher_{DigestKind::kSha256};
  uint64_t hashed_ = 0;                 // bytes from the start
  std::map<uint64_t, uint64_t> early_;  // begin -> end, behind `hashed_`
  bool twice_ = false;
};

}  // namespace deltawire
