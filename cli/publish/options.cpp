#include "cli/publish/options.h"

#include <cstdlib>

namespace deltawire::cli {
namespace {

// Where snapshots lie unless they are given a place: a folder per run.
Result<std::filesystem::path> snapshots_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') {
    return std::filesystem::path(cache) / "deltawire/snapshots";
  }
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache/deltawire/snapshots";
  }
  return invalid_argument("neither XDG_CACHE_HOME nor HOME is set; say --snapshot DIR");
}

}  // namespace

Status PublishVerbOptions::complete(const Context& context) {
  const auto kind = parse_digest_kind(digest);
  if (!kind || *kind == DigestKind::kAdler32 || *kind == DigestKind::kSha256) {
    return invalid_argument("digest \"" + digest +
                            "\" does not prove a version; use sum128, xxh3-128 or blake3");
  }
  publish.digest = *kind;
  if (mode == "full") {
    if (anchors.every != 0 || no_anchors) {
      return invalid_argument(std::string("--mode full stores every version whole: leave out ") +
                              (no_anchors ? "--no-anchors" : "--anchor-every"));
    }
    publish.anchors = OnlyAnchors{};
  } else {
    publish.anchors = no_anchors ? Anchors{.every = 0, .by_bytes = false} : anchors;
  }
  publish.limits.threads = context.threads;
  SnapshotInFolder place{snapshot, snapshot.empty()};
  if (place.per_run) {
    DW_ASSIGN_OR_RETURN(place.folder, snapshots_folder());
  }
  place.advance = snapshot_advance == "now"     ? SnapshotAdvance::kNow
                  : snapshot_advance == "later" ? SnapshotAdvance::kLater
                                                : SnapshotAdvance::kAuto;
  publish.snapshot = std::move(place);
  return {};
}

std::filesystem::path PublishVerbOptions::snapshot_of(const std::string& run) const {
  const auto& place = std::get<SnapshotInFolder>(publish.snapshot);
  return place.per_run ? place.folder / run : place.folder;
}

// Replicas stay while a publisher is opened anew.
Result<Publisher> open_publisher(const Context& context, PublishVerbOptions* options) {
  std::shared_ptr<Store> store;
  if (!options->shipper) {
    DW_ASSIGN_OR_RETURN(store, open_store(options->store, options->store_options));
  }
  if (!options->ship.address.empty()) {
    if (!options->shipper) {
      DW_ASSIGN_OR_RETURN(options->shipper, open_shipper(context, std::move(store), options->ship,
                                                         options->publish.keys));
    }
    store = options->shipper->store();
  }
  return Publisher::open(std::move(store), options->publish);
}

}  // namespace deltawire::cli
