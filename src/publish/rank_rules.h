// The rules by which ranks agree on a version: values in, values out, no I/O.
//
// Rank 0 leads, the others report. Each is a small machine: `ask` says what it wants to know or to
// have done next, and the answer goes to the function of that name, which gives the machine's next
// state. with_ranks.cpp asks the store; a test asks a model of one, and explores every order of
// events, with crashes, lost answers, late writes and stale reads.
//
// What holds them together:
//  - An attempt is one publish() of rank 0. It says which step of the training it is of, and only
//    ranks that publish that step report to it: a version never mixes steps.
//  - Every attempt has one end. Committed: the version's manifest names it. Else a record says that
//    it was unchanged or failed, or that the rank 0 that had begun it is no more (superseded).
//    Rank 0 announces no attempt before the one that was announced last has an end.
//  - Whoever does not hear an end fails, and finds out before its next publish where the chain is.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "deltawire/status.h"

namespace deltawire::ranks {

// An attempt that was announced.
struct AttemptSeen {
  std::string id;
  uint64_t step = 0;
  bool full = false;  // whole boxes are wanted
};

enum class Ending : uint8_t {
  kUnchanged,
  kFailed,
  kSuperseded,  // by a rank 0 that was started anew: whoever waits goes on to its attempt
};

// How an attempt ended that made no version.
struct EndSeen {
  Ending ending = Ending::kFailed;
  bool heard_us = false;  // it was decided on what this publish() of this process reported
  std::string why;
};

enum class Pause : uint8_t { kGoOn, kTimedOut, kStopped };

// ---- rank 0

struct Leader {
  enum class Ask : uint8_t {
    kPutEnd,        // of the attempt `about`: how it `ending`ed, and `why`
    kReadBegin,     // the attempt that was announced last
    kReadEnd,       // of the attempt `about`
    kPutBegin,      // announces `attempt`
    kPrepare,       // rank 0's own share
    kReadReport,    // of rank `about_rank`
    kReadManifest,  // of the version
    kPause,
    kDecide,  // all reports are in
    kCommit,
    kOver,
  };
  enum class Verdict : uint8_t { kCommitted, kUnchanged, kFailed };
  // An attempt of this process whose end could not be put, or is not known.
  struct Open {
    std::string attempt;
    uint64_t step = 0;
    std::string why;
  };

  uint64_t version = 0, step = 0;
  unsigned world = 1;
  std::string attempt;
  bool full = false;
  std::optional<Open> open;  // survives the publish

  Ask ask = Ask::kReadBegin;
  std::string about, why;
  uint64_t about_step = 0;  // of the attempt `about`
  Ending ending = Ending::kFailed;
  unsigned about_rank = 0;
  std::set<unsigned> missing;  // ranks without a report
  bool announced = false;      // others may know of `attempt`
  Verdict verdict = Verdict::kFailed;
  Status failure;
};

enum class Decision : uint8_t { kCommit, kUnchanged, kFull };

Leader start_leading(uint64_t version, uint64_t step, unsigned world, std::string attempt,
                     bool full, std::optional<Leader::Open> open);
Leader put_end(Leader leader, const Status& status);
Leader read_begin(Leader leader, const std::optional<AttemptSeen>& seen);
Leader read_end(Leader leader, const std::optional<EndSeen>& end);
Leader put_begin(Leader leader, const Status& status);
Leader prepared(Leader leader);
Leader read_report(Leader leader, bool there);
Leader read_manifest(Leader leader, bool there);
Leader paused(Leader leader, Pause how, double seconds);
Leader decided(Leader leader, Decision decision);
Leader committed(Leader leader);
// The store did not say, and may still let the version appear.
Leader may_be_committed(Leader leader, Status status);
// What was asked for failed. Others hear of it if they know of the attempt.
Leader failed(Leader leader, Status status);

// ---- the others

struct Reporter {
  enum class Ask : uint8_t {
    kReadBegin,
    kReadManifest,
    kReadEnd,  // of the attempt `about`
    kFindEnd,  // of whatever attempt of this step there was
    kReport,   // to `attempt`, in the way it wants
    kPause,
    kOver,
  };
  enum class Verdict : uint8_t {
    kCommitted,
    kUnchanged,
    kFailed,
    kMoved,  // an earlier attempt of this rank has made the version after all: ask for the next
  };
  // The attempt that was announced when this process came: what an earlier one may have left.
  struct Before {
    std::string attempt;
    bool over = false;
  };

  uint64_t version = 0, step = 0;
  unsigned rank = 1;
  std::optional<Before> before;
  std::set<std::string> reported;  // attempts that hold a report of this process

  Ask ask = Ask::kReadBegin;
  std::optional<AttemptSeen> seen;  // in this round of questions
  std::string about;
  std::string attempt;  // that was joined; empty: none
  bool full = false;    // in the way it was joined
  Verdict verdict = Verdict::kFailed;
  Status failure;
};

Reporter start_reporting(uint64_t version, uint64_t step, unsigned rank,
                         std::optional<Reporter::Before> before, std::set<std::string> reported);
Reporter read_begin(Reporter reporter, const std::optional<AttemptSeen>& seen);
// `attempt`: the one that the manifest names, empty when it names none.
Reporter read_manifest(Reporter reporter, const std::optional<std::string>& attempt);
Reporter read_end(Reporter reporter, const std::optional<EndSeen>& end);
Reporter found_end(Reporter reporter, const std::optional<EndSeen>& end);
Reporter reported(Reporter reporter);
Reporter paused(Reporter reporter, Pause how, double seconds);
Reporter failed(Reporter reporter, Status status);

}  // namespace deltawire::ranks
