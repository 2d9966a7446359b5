// The parts of a plan on disk, while they are worked on.
#pragma once

#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "chain/plan.h"
#include "delta/delta_reader.h"
#include "deltawire/status.h"
#include "replica/tensors.h"
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
  Result<std::vector<Delta>> open_deltas(ThreadPool* pool) const;

 private:
  std::filesystem::path packed() const { return folder_ / "packed"; }
  std::filesystem::path hop_folder(size_t hop) const {
    return folder_ / ("hop-" + std::to_string(hop));
  }

  const std::filesystem::path folder_;
  const std::string url_;
  const std::span<const Hop> hops_;
};

// The parts of one delta that are there already, while the others still arrive.

// For the one delta between what is held and the target. One thread.
class EagerParts {
 public:
  // `held`: sorted by name.
  EagerParts(const Target& target, HeldTensors held) : target_(target), held_(std::move(held)) {}

  struct Ready {
    Delta delta;  // what the steps point into
    std::vector<TensorSteps> steps;
  };
  // `part` has been fetched and checked. Entries that patch a whole tensor, as nearly all do, stand
  // by themselves: they can be decoded now. Whether parts fit together is the caller's to check
  // when all are there.
  Result<Ready> add(const PartFile& part);

  // Leaves only steps that were not ready before.
  void erase_done(std::vector<TensorSteps>* steps) const;

 private:
  const Target& target_;
  const HeldTensors held_;
  std::set<size_t> done_;  // tensors, by their number in the schema
};

}  // namespace deltawire
