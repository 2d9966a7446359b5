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
  if (!kind || (*kind != DigestKind::kXxh3_128 && *kind != DigestKind::kBlake3)) {
    return invalid_argument("digest \"" + digest +
                            "\" does not prove a version; use xxh3-128 or blake3");
  }
  publish.digest = *kind;
  publish.full = mode == "full";
  if (no_anchors) {
    publish.anchor_every = 0;
    publish.anchor_by_bytes = false;
  }
  publish.threads = context.threads;
  publish.snapshot_per_run = snapshot.empty();
  return {};
}

Result<std::filesystem::path> PublishVerbOptions::snapshot_of(const std::string& run) const {
  if (!snapshot.empty()) return std::filesystem::path(snapshot);
  DW_ASSIGN_OR_RETURN(const std::filesystem::path folder, snapshots_folder());
  return folder / run;
}

Result<Publisher> open_publisher(const PublishVerbOptions& options) {
  std::filesystem::path snapshot = options.snapshot;
  if (snapshot.empty()) {
    DW_ASSIGN_OR_RETURN(snapshot, snapshots_folder());
  }
  DW_ASSIGN_OR_RETURN(std::shared_ptr<Store> store,
                      open_store(options.store, options.store_options));
  return Publisher::open(std::move(store), std::move(snapshot), options.publish);
}

}  // namespace deltawire::cli
