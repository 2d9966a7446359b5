// What a snapshot on disk is behind by: the deltas of the versions after the one that it holds, as
// the chain has them. Copies of their parts are kept beside the snapshot, so that they need not be
// fetched; one that is missing or damaged is.
//
// The committed contents of a tensor are then made when they are read: what the snapshot holds,
// with the deltas applied in memory. Parts are checked against their manifests when they are
// opened, manifests against each other. What comes of it is compared with like a snapshot, by
// digest.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "delta/delta_reader.h"
#include "delta/encode_items.h"
#include "deltawire/checkpoint.h"

namespace deltawire {

class SnapshotLog {
 public:
  // More is folded into the snapshot. Each version costs reading about as much as decoding its
  // delta, folding them as much as writing the whole snapshot.
  struct Limits {
    uint64_t versions = 8;
    uint64_t bytes = 0;       // of all parts
    uint64_t slab_bytes = 0;  // that a payload patches, all of which is made at a time
  };

  // `base`: what the snapshot holds. `parts`: the folder of the copies.
  SnapshotLog(VersionRecord base, std::shared_ptr<Store> store, std::filesystem::path parts,
              Limits limits);

  // The version after the last one. Unsupported: it cannot be logged, or would be too much. After
  // an error find() must not be called any more.
  Status add(const VersionRecord& next);
  // When all are added. `held`: the base's files, which outlive what find() returns, as this does.
  Status join(const Checkpoint& held, const Schema& schema);

  bool empty() const noexcept { return deltas_.empty(); }
  // Null: no version has changed it.
  std::shared_ptr<const MadeBytes> find(const std::string& tensor) const;
  // Elements of the tensor that versions have changed, each time counted.
  uint64_t num_changed(const std::string& tensor) const;
  // Names of the copies that belong to it.
  const std::set<std::string>& part_files() const noexcept { return part_files_; }

 private:
  Result<std::vector<PartFile>> fetch_parts(const Manifest& manifest);

  VersionRecord last_;
  std::shared_ptr<Store> store_;
  std::filesystem::path parts_;
  Limits limits_;
  uint64_t bytes_ = 0;
  std::set<std::string> part_files_;
  std::vector<Delta> deltas_;
  std::map<std::string, uint64_t, std::less<>> num_changed_;  // by tensor
  std::map<std::string, std::shared_ptr<const MadeBytes>, std::less<>> tensors_;
};

// The bytes of `made` from `begin` on.
std::shared_ptr<const MadeBytes> made_from(std::shared_ptr<const MadeBytes> made, uint64_t begin,
                                           uint64_t size);

// What the copy of an object is called.
std::string part_file_name(std::string object);

}  // namespace deltawire
