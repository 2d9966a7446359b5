// `deltawire bench CASE`: its options, and what each case measures.
#pragma once

#include <string>
#include <vector>

#include "cli/context.h"

namespace deltawire::cli {

struct BenchOptions {
  std::string old_path, new_path;  // checkpoints in place of simulated weights
  std::string params = "500M";     // of the simulation
  double density = 0.012;
  uint64_t seed = 1;
  unsigned repeat = 3;
  std::string folder;  // to work in; empty: the temporary folder
  // codecs
  std::vector<std::string> codecs;  // names of pipelines; empty: all
  bool sizes = false;               // no timing
  // chain
  double rate_megabytes = 100, round_trip_milliseconds = 50;
  std::string store, endpoint;  // one more place
};

// Every codec and what peers do: sizes, speeds, the bound.
Status bench_codecs(const Context& context, const BenchOptions& options);
// From publish() to the replica that holds the version, over several stores; against slime's
// pipeline and a full copy.
Status bench_chain(const Context& context, const BenchOptions& options);

}  // namespace deltawire::cli
