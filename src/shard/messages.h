// What ranks say to each other around the bytes of a version. All of a fixed size, so that nothing
// a peer says decides how much is read before it was looked at.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "shard/history.h"
#include "shard/shard.h"

namespace deltawire::shard {

// The first exchange of a version, in both directions. Names of states are random and never used
// twice: a version that was tried again is another state.
struct Hello {
  static constexpr size_t kMostBases = 1 + History::kMostVersions;
  static constexpr size_t kBytes = 56 + 8 * kMostBases;
  std::array<uint8_t, 16> plan{};
  uint64_t version = 0;  // of a sender: that is to come; of a receiver: that it holds
  uint64_t state = 0;    // of a sender: that is to come
  // Of a sender: what changes may be against, the newest first; of a receiver: what it holds. Zeros
  // behind.
  std::array<uint64_t, kMostBases> bases{};
  uint64_t slice_bytes = 0;   // of a sender: how boxes are cut
  uint64_t bucket_bytes = 0;  // of a receiver: at most, on this edge
};

// Before the bytes of a round.
struct RoundHead {
  static constexpr size_t kBytes = 48;
  uint64_t round = 0, body_bytes = 0, num_records = 0;
  uint64_t checksum = 0;
  bool last = false, failed = false;  // failed: the sender cannot go on
};

// Before each payload.
struct RecordHead {
  static constexpr size_t kBytes = 56;
  uint64_t item = 0, num_changed = 0, payload_bytes = 0;
  std::array<char, 16> codec{};      // its name, with zeros behind
  std::array<uint8_t, 16> digest{};  // sum128 of the contents after the change
};

// At the end: how a receiver fared, or what a proof came to.
struct Verdict {
  static constexpr size_t kBytes = 512;
  Code code = Code::kOk;
  uint64_t count = 0;
  std::string words;

  Status status() const { return code == Code::kOk ? Status() : Status(code, words); }
  static Verdict of(const Status& status) { return {status.code(), 0, status.message()}; }
};

std::vector<uint8_t> pack(const Hello& hello);
std::vector<uint8_t> pack(const RoundHead& head);
std::vector<uint8_t> pack(const Verdict& verdict);
void append(const RecordHead& head, std::vector<uint8_t>* body);

// Corruption for a malformed message.
Result<Hello> parse_hello(Bytes bytes);
Result<RoundHead> parse_round_head(Bytes bytes);
Result<Verdict> parse_verdict(Bytes bytes);
RecordHead parse_record_head(Bytes bytes);  // kBytes of them; what it says is untrusted

}  // namespace deltawire::shard
