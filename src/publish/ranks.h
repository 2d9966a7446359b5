// The messages that the ranks of a sharded trainer exchange when they publish. The rules are in
// docs/protocol.md, "Ranks".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/publish_options.h"
#include "deltawire/status.h"
#include "publish/ranks_boxes.h"
#include "publish/record.h"

namespace deltawire {

// From rank 0: what to publish, and the base.
struct RankBegin {
  std::string run;
  std::string attempt;  // hex digits, in the names of objects
  std::optional<uint64_t> base;
  std::optional<Digest> base_manifest;  // with `base`
  std::string full_reason;              // why the version is stored whole; empty: it is a delta
};
std::string to_text(const RankBegin& begin);
Result<RankBegin> parse_begin(std::string_view text);

// From the other ranks: what the rank holds and has put.
struct RankReport {
  std::string needs_full;  // why no delta can carry the changes; the other fields are then empty
  uint64_t payload_bytes = 0;
  PublishRecord record;
  BoxesSeal boxes;  // for a version stored whole
};
std::string to_text(const RankReport& report);
Result<RankReport> parse_report(std::string_view text);

// From rank 0: the result.
struct RankOutcome {
  std::string full_reason;  // if set, all ranks report again for a version stored whole
  // digest of the manifest; if neither is set, nothing had changed
  std::optional<Digest> committed;
};
std::string to_text(const RankOutcome& outcome);
Result<RankOutcome> parse_outcome(std::string_view text);

// The exchanges of one rank during one publish(). All ranks make the same exchanges in the same
// order, each with a message or an error. An error of one rank fails the exchange on all ranks.
class RankExchange {
 public:
  RankExchange(const Ranks& ranks, std::optional<uint64_t> step);

  // Returns the messages of all ranks, by rank. Errors: this rank's own error, else that of the
  // lowest failed rank, with its code and name; InvalidArgument, naming ranks, if they are in
  // different exchanges or publish different steps; the error of the group, if the group fails.
  Result<std::vector<std::string>> exchange(std::string_view round, const Result<std::string>& own);
  // Whether all ranks have seen the last failure.
  bool all_know() const noexcept { return all_know_; }

 private:
  const Ranks& ranks_;
  const std::string step_;
  bool all_know_ = false;
};

}  // namespace deltawire
