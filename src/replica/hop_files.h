// The parts of a route on disk, while they are worked on.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "chain/plan.h"
#include "delta/delta_reader.h"
#include "deltawire/status.h"
#include "transfer/fetch.h"

namespace deltawire {

class HopFiles {
 public:
  // `url`: of the store, for messages. The hops outlive this.
  HopFiles(std::filesystem::path folder, std::string url, std::span<const Hop> hops)
      : folder_(std::move(folder)), url_(std::move(url)), hops_(hops) {}

  // Makes the folders, empty, and says what belongs there. A hop without a base is a checkpoint,
  // whose weights keep their names; what lies beside them there is for engines.
  Result<std::vector<FetchItem>> make() const;

  std::filesystem::path anchor() const { return folder_ / "anchor"; }  // of the hop without a base
  PartFile part(size_t hop, size_t part) const;
  // Of all hops that have a base, when their parts are there.
  Result<std::vector<Delta>> open_deltas() const;

 private:
  std::filesystem::path packed() const { return folder_ / "packed"; }
  std::filesystem::path hop_folder(size_t hop) const {
    return folder_ / ("hop-" + std::to_string(hop));
  }

  const std::filesystem::path folder_;
  const std::string url_;
  const std::span<const Hop> hops_;
};

}  // namespace deltawire
