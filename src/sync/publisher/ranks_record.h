// What ranks of a sharded trainer tell each other through the store. docs/format.md, "Ranks".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "sync/publisher/record.h"

namespace deltawire {

// pending/VERSION/begin.json: rank 0 says how a version is to be published. A later attempt
// replaces it.
struct RankBegin {
  std::string run;
  uint64_t version = 0;
  std::string attempt;
  unsigned world = 1;
  bool full = false;   // boxes are wanted whole, not what changed
  std::string reason;  // when full
};

// pending/VERSION-ATTEMPT/rank-00003.json: what one rank has put.
struct RankReport {
  unsigned rank = 0;
  std::string nonce;       // of this publish() of this process
  std::string publisher;   // "host:pid"
  std::string failure;     // why it cannot take part; all else is empty then
  std::string needs_full;  // why its changes cannot be told as a delta
  uint64_t payload_bytes = 0;
  PublishRecord record;
};

// pending/VERSION-ATTEMPT/done.json: how an attempt ended that made no version.
struct RankDone {
  bool unchanged = false;           // nothing had changed on any rank
  std::string failure;              // else
  std::vector<std::string> nonces;  // of the reports that it was decided on, by rank
};

std::string begin_name(uint64_t version);
std::string pending_folder(uint64_t version, std::string_view attempt);  // with its '/'
std::string report_name(uint64_t version, std::string_view attempt, unsigned rank);
std::string boxes_name(uint64_t version, std::string_view attempt, unsigned rank);
std::string done_name(uint64_t version, std::string_view attempt);

std::string serialise_begin(const RankBegin& begin);
Result<RankBegin> parse_begin(std::string_view json);
std::string serialise_report(const RankReport& report);
Result<RankReport> parse_report(std::string_view json);
std::string serialise_done(const RankDone& done);
Result<RankDone> parse_done(std::string_view json);

}  // namespace deltawire
