// What a bench found, and its two forms: tables for people, one object for machines.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/context.h"
#include "lab/bench/bandwidth.h"
#include "lab/bench/bound.h"
#include "lab/bench/data.h"
#include "lab/bench/measure.h"

namespace deltawire::cli {

struct BenchRow {
  std::string name;
  uint64_t payload_bytes = 0;
  std::vector<Speed> speeds;  // one thread, then all; empty when only sizes were asked for
  std::string unsupported;    // why there is no result
};

struct BenchReport {
  const BenchData* data = nullptr;
  unsigned threads = 1, repeat = 1;  // repeat: at least
  Bound bound;
  std::optional<uint64_t> file_bytes;  // of a whole delta on disk, made with `auto`
  std::vector<Bandwidth> bandwidths;   // one thread, then all
  std::vector<BenchRow> codecs;        // without digests
  std::vector<BenchRow> pipelines;     // the peers', and ours with a digest
};

nlohmann::ordered_json to_json(const BenchReport& report);
void say_report(const BenchReport& report, const Context& context);

}  // namespace deltawire::cli
