// How a store is to lie: the text after --inject, read. docs/testing.md has the grammar.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "store/store_metrics.h"

namespace deltawire {

enum class FaultKind : uint8_t {
  kFail,         // nothing is done; fails with `code`
  kUnavailable,  // nothing is done; fails with Unavailable, as after a 5xx
  kSlow,         // waits first
  kTear,         // stores the first half, says that all is well
  kLost,         // says that all is well; gone after a crash
  kDuplicate,    // done, but says Unavailable: the answer was lost
  kTwice,        // done twice; the second answer counts
  kLate,         // says Unavailable, and is done some calls later
  kStaleList,    // does not list what happened lately
  kFlip,         // one bit of what is read is wrong
};

struct Fault {
  FaultKind kind = FaultKind::kFail;
  // When. All that are given must hold; nothing given: at every call that the fault applies to.
  uint64_t n = 0;      // at the n-th such call only; 0: not given
  double p = 1;        // with this probability,
  uint64_t seed = 1;   // drawn from this seed
  uint64_t times = 0;  // so many times at most; 0: no limit
  // To what.
  std::string name;     // names (of a listing: prefixes) that begin so
  uint32_t operations;  // bit i: StoreOperation(i)
  // How.
  Code code = Code::kIo;
  double seconds = 0;  // slow; stale-list: hides what is younger
  uint64_t calls = 0;  // late, stale-list

  bool applies_to(StoreOperation operation) const noexcept {
    return (operations >> unsigned(operation) & 1) != 0;
  }
};

// "unavailable:p=0.1:seed=3,slow:ms=50,tear:n=4". InvalidArgument names what is wrong.
Result<std::vector<Fault>> parse_faults(std::string_view spec);

}  // namespace deltawire
