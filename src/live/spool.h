// The newest deltas of a chain on this host. They are fetched once; every engine worker reads them
// and decodes its share against its live weights.
//
//   LOCAL/.deltawire/spool/   objects of the chain under their own names; a version is complete
//   when
//                             its manifest is there
//     parts/.../NAME.ranges   the ranges of a part that the workers of this host need (wanted.h)
//     boxes/VERSION           the workers that these are complete for: digests of layouts, in lines
//
// The spool is only a cache: a worker that misses something compares its weights with the
// checkpoint in LOCAL. So nothing is synced, and everything may be deleted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "delta/delta_reader.h"
#include "deltawire/digest.h"
#include "deltawire/progress.h"
#include "deltawire/replica.h"
#include "deltawire/status.h"
#include "format/schema.h"
#include "live/wanted.h"
#include "store/forwarding_store.h"

namespace deltawire {

// ---- the host's side

struct SpoolOptions {
  Accept accept = {};
  // In versions. Beyond `keep_at_most` a worker is faster with the checkpoint.
  uint64_t keep = 4, keep_at_most = 32;
  std::optional<uint64_t> gap = {};  // see RangedFetch
  Progress progress = {};
};

// The boxes of workers: texts for add_boxes(), by their sha-256.
using WorkerLayouts = std::map<std::string, std::string>;

// Only the caller may write to this spool. One thread, except for store().
class Spool {
 public:
  // Starts with an empty spool. NotFound if the store holds no run yet.
  static Result<Spool> open(std::shared_ptr<Store> store, std::filesystem::path local,
                            SpoolOptions options = {});

  // Fetches versions published since the last call, oldest first, and removes unneeded ones.
  // `held`: the version of the checkpoint in LOCAL, if any. `needed`: the oldest version that a
  // worker serves. Returns the newest version; none: nothing was published yet.
  Result<std::optional<Identity>> fetch_new(std::optional<uint64_t> held,
                                            std::optional<uint64_t> needed);

  // From now on fetches only the ranges that these workers need, also for versions already spooled.
  // None: whole parts, which is the initial setting. Parts that can be hard-linked are always
  // whole. Corruption if a text is not a layout; the setting then stays as it was.
  Status want(const std::optional<WorkerLayouts>& layouts);
  // Bytes fetched as ranges.
  uint64_t fetched_bytes() const noexcept { return ranged_->fetched_bytes(); }

  // The chain's store, which serves spooled objects locally, so that the replica in LOCAL does not
  // fetch them again.
  const std::shared_ptr<OverlayStore>& store() const noexcept { return store_; }

 private:
  Spool(Chain chain, std::shared_ptr<OverlayStore> store, std::filesystem::path root,
        SpoolOptions options);

  struct Version {
    Manifest manifest;
    Schema schema;
    std::vector<PartRef> parts;          // that are spooled
    std::map<std::string, Ranges> have;  // the spooled ranges of incomplete parts
    std::set<std::string> covered;       // workers that the ranges are complete for
  };

  Status add(uint64_t version, bool with_parts);
  bool link(const PartRef& object);
  Status fetch_objects(const std::vector<PartRef>& objects);
  Status fetch_parts(uint64_t version, Version* own);
  Status fetch_ranges(uint64_t version, Version* own);
  Status complete();
  void prune(std::optional<uint64_t> held, std::optional<uint64_t> needed);

  Chain chain_;
  std::shared_ptr<OverlayStore> store_;
  std::filesystem::path root_;
  SpoolOptions options_;
  std::unique_ptr<RangedFetch> ranged_;
  std::map<uint64_t, Version> versions_;
  std::optional<WantedBoxes> wanted_;  // none: whole parts
  std::set<std::string> workers_;      // the workers of `wanted_`
  std::optional<Identity> newest_;
};

// ---- the workers' side

// The suffix of files that hold only some ranges of a part.
inline constexpr const char* kRangesSuffix = ".ranges";

// `layout`: the sha-256 of the worker's layout text; empty: the worker holds everything.

// The newest version that is complete for the worker; none: there is none.
std::optional<Identity> newest_spooled(const std::filesystem::path& local,
                                       std::string_view layout = {});

// The parts of the deltas that lead from one version to another, in order. NotFound if they are not
// all complete for the worker, or if `from` has another manifest than the version of that number.
Result<std::vector<std::vector<PartFile>>> spooled_deltas(const std::filesystem::path& local,
                                                          const Identity& from, const Identity& to,
                                                          std::string_view layout = {});

// The digests of a version's tensors, by name. NotFound if its manifest is not spooled. Tensors
// whose digests are not additive are left out.
Result<std::map<std::string, Digest>> spooled_digests(const std::filesystem::path& local,
                                                      const Identity& version);

}  // namespace deltawire
