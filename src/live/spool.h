// The newest deltas of a chain on this host: fetched once, read by every engine worker, each of
// which decodes what it holds against its live weights.
//
//   LOCAL/.deltawire/spool/   objects of the chain under their own names; a version is there when
//                             its manifest is
//     parts/.../NAME.ranges   of a part, what the workers of this host hold (live/wanted.h)
//     boxes/VERSION           which workers it is whole for: digests of their layouts, in lines
//
// No version rests on a spool: a worker that misses something in it compares its weights with the
// checkpoint in LOCAL. So nothing here is synced to the disk, and all of it may be removed.
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
  // Versions. Beyond that a worker is faster with the checkpoint.
  uint64_t keep = 4, keep_at_most = 32;
  std::optional<uint64_t> gap = {};  // as of RangedFetch
  Progress progress = {};
};

// Boxes of workers, as texts for add_boxes(), by the sha-256 of these texts.
using WorkerLayouts = std::map<std::string, std::string>;

// The caller is the only one that writes to this spool. One thread, but for store().
class Spool {
 public:
  // Begins with nothing. NotFound when the store holds no run yet.
  static Result<Spool> open(std::shared_ptr<Store> store, std::filesystem::path local,
                            SpoolOptions options = {});

  // Fetches the versions that were published since the last call, oldest first, and removes those
  // that nobody needs. `held`: the version of the checkpoint in LOCAL, if it has one; `needed`: the
  // oldest that a worker serves. Returns the newest; none: nothing was published yet.
  Result<std::optional<Identity>> fetch_new(std::optional<uint64_t> held,
                                            std::optional<uint64_t> needed);

  // From now on only what these workers hold is fetched of parts, of spooled versions too; none:
  // whole parts, as at first. Parts that can be linked from a folder are whole in any case.
  // Corruption: a text is no layout, and nothing has changed.
  Status want(const std::optional<WorkerLayouts>& layouts);
  // Of parts, in ranges.
  uint64_t fetched_bytes() const noexcept { return ranged_->fetched_bytes(); }

  // The chain's store, with what is spooled at hand: LOCAL's replica fetches nothing twice.
  const std::shared_ptr<OverlayStore>& store() const noexcept { return store_; }

 private:
  Spool(Chain chain, std::shared_ptr<OverlayStore> store, std::filesystem::path root,
        SpoolOptions options);

  struct Version {
    Manifest manifest;
    Schema schema;
    std::vector<PartRef> parts;          // that are here
    std::map<std::string, Ranges> have;  // what is here of those that are not whole
    std::set<std::string> covered;       // workers that they are whole for
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
  std::set<std::string> workers_;      // whose boxes these are
  std::optional<Identity> newest_;
};

// ---- the workers' side

// What the name of a part's file ends with when only some of it is there.
inline constexpr const char* kRangesSuffix = ".ranges";

// `layout`: the sha-256 of the text of what a worker holds; empty: all of it.

// The newest version that is there for such a worker; none: no spool, or an empty one.
std::optional<Identity> newest_spooled(const std::filesystem::path& local,
                                       std::string_view layout = {});

// The parts of the deltas that lead from one version to another, in order. NotFound when they are
// not all there for such a worker, or lead from other weights that only have the same number.
Result<std::vector<std::vector<PartFile>>> spooled_deltas(const std::filesystem::path& local,
                                                          const Identity& from, const Identity& to,
                                                          std::string_view layout = {});

// The digests of a version's tensors, by name. NotFound when its manifest is not there; tensors
// whose digests do not add up from sums are left out.
Result<std::map<std::string, Digest>> spooled_digests(const std::filesystem::path& local,
                                                      const Identity& version);

}  // namespace deltawire
