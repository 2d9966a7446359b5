// Uploads a large body with one thread producing it, one hashing it and the store's thread sending
// it.
#pragma once

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// Like HashingBody, for a body that is slow to produce. A store that reads in order gets prefetched
// pieces; other reads go to the body itself.
class ReadAhead final : public Body {
 public:
  explicit ReadAhead(const Body& body);
  ~ReadAhead() override;
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  uint64_t size() const noexcept override { return body_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override;
  // When nothing reads it any more.
  Result<Digest> sha256();

 private:
  static constexpr uint64_t kPieceBytes = uint64_t{1} << 20, kPieces = 6;

  void fill();
  void hash();
  uint64_t piece_bytes(uint64_t piece) const {
    return std::min(kPieceBytes, size() - piece * kPieceBytes);
  }
  void stop();

  const Body& body_;
  const uint64_t num_pieces_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::array<std::vector<uint8_t>, kPieces> pieces_;
  uint64_t filled_ = 0, hashed_ = 0;  // pieces
  mutable uint64_t taken_ = 0;        // bytes, in order
  Status failure_;
  bool stopping_ = false;
  Hasher hasher_;
  std::vector<std::thread> threads_;  // two, or none
};

}  // namespace deltawire
