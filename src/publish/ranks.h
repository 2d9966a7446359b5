// What ranks of a sharded trainer tell each other when they publish, and how. docs/protocol.md,
// "Ranks", has the rules.
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

// Of rank 0: what is to be published, and upon what.
struct RankBegin {
  std::string run;
  std::string attempt;  // hex digits, in the names of objects
  std::optional<uint64_t> base;
  std::optional<Digest> base_manifest;  // with `base`
  std::string full_reason;              // why the version is stored whole; empty: it is a delta
};
std::string to_text(const RankBegin& begin);
Result<RankBegin> parse_begin(std::string_view text);

// Of the other ranks: what one holds and has put.
struct RankReport {
  std::string needs_full;  // why its changes are no delta; all else is empty then
  uint64_t payload_bytes = 0;
  PublishRecord record;
  BoxesSeal boxes;  // of a version that is stored whole
};
std::string to_text(const RankReport& report);
Result<RankReport> parse_report(std::string_view text);

// Of rank 0: what became of the reports.
struct RankOutcome {
  std::string full_reason;          // set: no delta, all report once more for a whole version
  std::optional<Digest> committed;  // digest of the manifest; neither: nothing had changed
};
std::string to_text(const RankOutcome& outcome);
Result<RankOutcome> parse_outcome(std::string_view text);

// The exchanges of one publish() of one rank. All ranks make the same ones in the same order, each
// with what it has to say or why it cannot: a failure of one rank is a failure of the exchange on
// all of them.
class RankExchange {
 public:
  RankExchange(const Ranks& ranks, std::optional<uint64_t> step);

  // What all ranks say, by rank. This rank's own failure, or else that of the lowest rank that
  // failed, with its code and name. InvalidArgument, naming ranks, when they are in different
  // exchanges, or publish different steps. What the group fails with, when it fails.
  Result<std::vector<std::string>> exchange(std::string_view round, const Result<std::string>& own);
  // Whether the last failure was one that all ranks have seen.
  bool all_know() const noexcept { return all_know_; }

 private:
  const Ranks& ranks_;
  const std::string step_;
  bool all_know_ = false;
};

}  // namespace deltawire
