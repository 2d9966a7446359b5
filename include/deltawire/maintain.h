// Work on a chain that needs no trainer: merged deltas, anchors, the proof of every version.
//
// Needs nothing but the chain, any number of publishers and replicas may be at work meanwhile, and
// it may be killed at any instant. What is added is signed with the chain's key;
// InvalidArgument when that is not how the version that it is for is signed, unless keys change.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/chain.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"

namespace deltawire {

struct WorkOptions {
  // Where states are kept meanwhile, as large as the model each; empty: the system's folder for
  // temporary files.
  std::filesystem::path folder = {};
  unsigned threads = 0;  // 0: one per core
  Progress progress = {};
  bool plain_files = false;  // as PublishOptions has it: for anchors
};

// ---- merged deltas: a late replica fetches one instead of many

struct CompactOptions {
  std::vector<uint64_t> spans = {4, 16, 64};  // merged deltas begin and end at multiples of these
  uint64_t from = 0;
  std::optional<uint64_t> upto;  // none: the head
  std::string codec = "auto";
  uint64_t part_bytes = uint64_t{64} << 20;
  uint64_t memory_limit = uint64_t{2} << 30;
  WorkOptions work;
};

struct MergedDelta {
  uint64_t base = 0, version = 0;
  uint64_t bytes = 0;           // of it
  uint64_t separate_bytes = 0;  // of the versions that it spans
  bool written = false;
  std::string skipped;  // why it was not made
  double seconds = 0;
};

struct CompactReport {
  std::string run;
  std::vector<MergedDelta> merged;  // made or skipped, in order; not those that were there before
  uint64_t num_there = 0;           // those
  double seconds = 0;
};

// Shorter spans first: they make the way for the longer ones. What was made before a failure stays.
Result<CompactReport> compact_chain(const Chain& chain, const CompactOptions& options);

// ---- anchors

struct AnchorReport {
  std::string run;
  uint64_t version = 0;
  bool written = false;  // false: it was stored whole already, every byte of it checked
  uint64_t bytes = 0, num_files = 0;
  double seconds = 0;
};

// Stores a version (none: the head) whole.
Result<AnchorReport> make_anchor(const Chain& chain, std::optional<uint64_t> version,
                                 const WorkOptions& options);

// ---- fsck

struct FsckOptions {
  // Only look whether parts are there, with their size: nothing is read but records.
  bool quick = false;
  // `folder` holds one state of the model meanwhile; empty: it is in memory.
  WorkOptions work;
};

// Checks a whole chain: every record and link, every object, and, unless `quick`, that every
// version decodes to the digests that its manifest promises. Signatures must be valid and, if
// trusted keys are given, made by one of them. Fails only if the store fails: the report lists the
// defects of the chain. A chain that is published to, or collected, meanwhile may show what is
// under way as a warning.
Result<FsckReport> fsck_chain(const Chain& chain, const FsckOptions& options = {});

}  // namespace deltawire
