// What ranks of a sharded trainer tell each other through the store. docs/format.md, "Ranks".
//
// Where the run is signed so are these: every rank has the key, and takes a record that is unsigned
// or signed by another for corrupt. Each record says which attempt of which version of which run it
// belongs to, so that none can be put in another's place.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "publish/rank_rules.h"
#include "publish/record.h"

namespace deltawire {

// Which publish a record belongs to.
struct RankAttempt {
  std::string run;
  uint64_t version = 0;
  std::string attempt;  // hex digits
  uint64_t step = 0;    // of the training
  unsigned world = 1;

  bool operator==(const RankAttempt&) const = default;
};

// pending/VERSION/begin.json: rank 0 says how a version is to be published. The next attempt
// replaces it.
struct RankBegin {
  RankAttempt of;
  bool full = false;   // boxes are wanted whole, not what changed
  std::string reason;  // when full
};

// What a rank's boxes object holds, block by block.
struct BoxesSeal {
  uint64_t size_bytes = 0;
  std::vector<Digest> blocks;  // sha-256 of each kBoxesBlockBytes, the last one shorter
};
inline constexpr uint64_t kBoxesBlockBytes = uint64_t{1} << 20;

// pending/VERSION-ATTEMPT/rank-00003.json, or rank-00003.full.json: what one rank has put.
struct RankReport {
  RankAttempt of;
  unsigned rank = 0;
  bool full = false;
  std::string nonce;       // of this publish() of this process
  std::string publisher;   // "host:pid"
  std::string failure;     // why it cannot take part; all else is empty then
  std::string needs_full;  // why its changes cannot be told as a delta
  uint64_t payload_bytes = 0;
  PublishRecord record;
  BoxesSeal boxes;  // when full
};

// pending/VERSION-ATTEMPT/done.json: how an attempt ended that made no version.
struct RankDone {
  RankAttempt of;
  ranks::Ending ending = ranks::Ending::kFailed;
  std::string failure;              // unless unchanged
  std::vector<std::string> nonces;  // of the reports that it was decided on, by rank
};

std::string begin_name(uint64_t version);
std::string pending_folder(uint64_t version, std::string_view attempt);  // with its '/'
std::string report_name(const RankAttempt& of, unsigned rank, bool full);
std::string boxes_name(const RankAttempt& of, unsigned rank);
std::string done_name(uint64_t version, std::string_view attempt);

Result<std::string> serialise_begin(const RankBegin& begin, const Signer& sign);
Result<RankBegin> parse_begin(std::string_view json, const Verifier& trust);
Result<std::string> serialise_report(const RankReport& report, const Signer& sign);
Result<RankReport> parse_report(std::string_view json, const Verifier& trust);
Result<std::string> serialise_done(const RankDone& done, const Signer& sign);
Result<RankDone> parse_done(std::string_view json, const Verifier& trust);

// Corruption, with both values, when a record says that it belongs elsewhere than it was found.
Status check_belongs(const RankAttempt& got, const RankAttempt& expected);
Status check_report(const RankReport& report, const RankAttempt& expected, unsigned rank,
                    bool full);

}  // namespace deltawire
