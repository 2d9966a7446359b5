// When a version of theirs is complete, where its files do not tell.
#pragma once

#include <optional>
#include <string>

#include "dialect/dialect.h"
#include "transfer/upload_queue.h"

namespace deltawire {

// One version after the other, as each is looked at again and again.
class Settling {
 public:
  // Without a change for so long it is complete; 0: at once; infinity: never.
  explicit Settling(double seconds) : seconds_(seconds) {}

  // Whether the version can be taken. Otherwise waits_for() says why not.
  bool is_over(const ForeignInfo& info);
  const std::string& waits_for() const noexcept { return waits_for_; }
  void forget_reason() noexcept { waits_for_.clear(); }

 private:
  struct Seen {
    std::string fingerprint;
    double since = 0;
  };
  const double seconds_;
  const PublishClock clock_;
  std::optional<Seen> seen_;
  std::string waits_for_;
};

}  // namespace deltawire
