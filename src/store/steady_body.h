// Bytes that somebody else may write to, a trainer or another process, given out as if nobody did.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "deltawire/store.h"

namespace deltawire {

// Gives the same bytes however often they are read, in any order, from any thread; or Io, once they
// differ from what was given before. So whatever was computed from it,
// digests of a tensor and the objects that were put, agrees. Remembers 16 bytes per 128 KiB.
class SteadyBody final : public Body {
 public:
  // `what` names it in messages.
  SteadyBody(std::shared_ptr<const Body> inner, std::string what);
  uint64_t size() const noexcept override { return inner_->size(); }
  Status read(uint64_t offset, MutableBytes out) const override;

 private:
  struct Print {
    uint64_t words[2] = {0, 0};
    bool operator==(const Print&) const = default;
  };
  // Fills `out` with a chunk and holds it against what was given before.
  Status read_chunk(uint64_t chunk, MutableBytes out) const;
  Result<Bytes> cached_chunk(uint64_t chunk) const;

  const std::shared_ptr<const Body> inner_;
  const std::string what_;
  const uint64_t id_;  // no other body of this process has it
  mutable std::mutex mutex_;
  mutable std::vector<Print> prints_;
  mutable std::vector<bool> known_;
};

}  // namespace deltawire
