// The state of a Mirror between two steps.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/folder.h"
#include "chain/chain.h"
#include "chain/names.h"
#include "deltawire/mirror.h"
#include "mirror/copy_objects.h"
#include "mirror/starting_point.h"
#include "replica/beat.h"

namespace deltawire {

// The bytes of a version's record, and the parsed record.
struct ReadVersion {
  std::string text;
  VersionRecord record;
};
// NotFound if the chain does not have the version, or no longer.
Result<ReadVersion> read_whole_version(const Chain& chain, uint64_t version);
// All objects that a version names. The names come from the source, so they are checked.
Result<std::vector<PartRef>> objects_of(const Chain& chain, const Manifest& manifest);

struct Mirror::Impl {
  Impl(const Chain& source_, std::shared_ptr<Store> store_, MirrorOptions options_)
      : source(source_), store(std::move(store_)), options(std::move(options_)) {}

  const Chain source;
  const std::shared_ptr<Store> store;
  const MirrorOptions options;
  std::optional<uint64_t> last, head;

  Result<std::optional<Mirrored>> next();
  Result<MirrorRepair> repair();

 private:
  std::optional<Identity> held() const {
    if (!last) return {};
    return Identity{source.run(), *last, last_digest.hex()};
  }
  Status begin();
  Status open_far();
  Status check_history();
  Result<uint64_t> mend_versions();
  Status put_mended(const ReadVersion& read);
  Status make_work_folder();
  void make_beat();
  ObjectCopier copier(bool verify) const;

  Result<std::optional<StartingPoint>> plan();
  Result<std::optional<Mirrored>> copy_version(const StartingPoint& start);
  Status copy_anchor(const HopName& anchor, Mirrored* report);
  Result<std::optional<Mirrored>> copy_hop(const HopName& hop);
  Result<bool> fits_mirror(const HopRecord& hop);
  Result<std::optional<GcReport>> collect();
  Result<std::vector<PartRef>> objects_of_hop(const HopName& hop, MirrorRepair* found);
  Result<HopRecord> mend_hop(const HopName& hop, const Status& damage);

  std::optional<FarEnd> far;  // after it was checked
  std::optional<WorkFolder> temporary;
  std::filesystem::path folder;
  Digest last_digest;  // of the manifest of `last`
  // The objects named by `last`, if we have copied it. The next version shares its schema and most
  // side files, and they exist as long as `last` does.
  std::set<std::string> last_names;
  AddedHops hops;
  std::unique_ptr<ReplicaBeat> beat;
};

}  // namespace deltawire
