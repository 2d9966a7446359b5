// The live feed: how engine workers of a host follow its replica. The replica
// (ReplicaOptions::feed) decodes a version once and keeps what it wrote into its files, positions
// and values, beside them. Each worker reads that, picks out its own part of every tensor, and
// writes it into its live weights: no worker has a copy of the model, and none talks to the store.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/digest.h"
#include "deltawire/manifest.h"
#include "deltawire/status.h"
#include "deltawire/tensor.h"

namespace deltawire {

// A step of the replica, in the feed.
struct FeedStep {
  Identity to;
  // None: nothing is known but where it leads, and a worker has to read the checkpoint.
  std::optional<Identity> from;
  Manifest manifest;  // of `to`
  std::filesystem::path folder;
  std::vector<std::string> parts;  // in it
};

// Steps of a feed, by version. Those that are being removed, or that a later release wrote, are
// left out. NotFound when LOCAL has no feed.
Result<std::vector<FeedStep>> read_feed(const std::filesystem::path& local);

// The steps that lead from one version to another, in order; NotFound when they are not all there,
// or when they lead from other weights that only have the same number.
Result<std::vector<FeedStep>> steps_between(const std::vector<FeedStep>& steps,
                                            const Identity& from, const Identity& to);

// The digests of the tensors of the version that a step leads to, by name; `schema` is that of the
// checkpoint. BaseMismatch when they are not its tensors; Unsupported when its digests do not add
// up.
Result<std::map<std::string, Digest>> feed_digests(const FeedStep& step, const Schema& schema);

}  // namespace deltawire
