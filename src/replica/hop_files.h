// The parts of a plan on disk, while they are processed.
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
  // `url` is the store's, for messages. `hops` must outlive this.
  HopFiles(std::filesystem::path folder, std::string url, std::span<const Hop> hops)
      : folder_(std::move(folder)), url_(std::move(url)), hops_(hops) {}

  // Creates the empty folders and returns what must be fetched into them. A hop without a base is a
  // checkpoint; its weight files keep their names, and its other files are skipped.
  Result<std::vector<FetchItem>> make() const;

  std::filesystem::path anchor() const { return folder_ / "anchor"; }  // of the hop without a base
  PartFile part(size_t hop, size_t part) const;
  // The deltas of all hops with a base, once their parts have arrived.
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

// The parts of one delta that have arrived, while others are still on their way.

// For a single delta from what is held to the target. One thread.
class EagerParts {
 public:
  // `held`: sorted by name.
  EagerParts(const Target& target, HeldTensors held) : target_(target), held_(std::move(held)) {}

  struct Ready {
    Delta delta;  // the steps point into this
    std::vector<TensorSteps> steps;
  };
  // `part` has been fetched and checked. Returns the entries that patch a whole tensor: they can be
  // decoded at once, and nearly all entries are of this kind. The caller checks that the parts fit
  // together when all have arrived.
  Result<Ready> add(const PartFile& part);

  // Removes the steps that add() has already returned.
  void erase_done(std::vector<TensorSteps>* steps) const;

 private:
  const Target& target_;
  const HeldTensors held_;
  std::set<size_t> done_;  // tensors, by their number in the schema
};

}  // namespace deltawire
