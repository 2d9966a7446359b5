#include "cli/publish/options.h"

#include <cstdlib>

namespace deltawire::cli {
namespace fs = std::filesystem;
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

bool is_store(const std::string& place) {
  std::error_code error;
  return is_store_url(place) || fs::exists(fs::path(place) / "run.json", error);
}

// By its name, or the names in it.
bool is_checkpoint(const std::string& place) {
  std::error_code error;
  if (fs::is_regular_file(place, error)) return fs::path(place).extension() == ".safetensors";
  for (fs::directory_iterator it(place, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") return !is_store(place);
  }
  return false;
}

}  // namespace

Status PublishVerbOptions::check_order() const {
  const bool swapped =
      is_store(checkpoint) ? !is_store(store) : is_checkpoint(store) && !is_checkpoint(checkpoint);
  if (!swapped) return {};
  return invalid_argument(
      (is_store(checkpoint) ? checkpoint + ": is a store" : store + ": is a checkpoint") +
      "; the store comes last, so give deltawire publish " + (watch ? "--watch " : "") + store +
      " " + checkpoint);
}

Status PublishVerbOptions::complete(const Context& context) {
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
