#include "bridge/slime/source.h"

#include <algorithm>
#include <cstdio>

#include "format/checkpoint_files.h"
#include "replica/file_stamp.h"
#include "store/directory_store.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// More than any run has between two whole versions; a ring of bases would never end.
constexpr size_t kMaxSlimeDeltas = 1'000'000;

bool has_digests(const ForeignInfo& info) {
  return !info.full && std::all_of(info.tensors.begin(), info.tensors.end(),
                                   [](const ForeignTensor& tensor) { return tensor.checksum; });
}

std::string identity_of_delta(const ForeignInfo& info) {
  Hasher hasher(DigestKind::kXxh3_128);
  hasher.update(std::to_string(info.version) + " " + std::to_string(info.base.value_or(0)) + " " +
                info.encoding + " " + info.checksum + "\n");
  for (const ForeignTensor& tensor : info.tensors) {
    hasher.update(tensor.name + "\n" + std::to_string(tensor.payload_bytes) + " " +
                  (tensor.checksum ? tensor.checksum->hex : "-") + "\n");
  }
  return hasher.finish().hex();
}

}  // namespace

std::string slime_version_name(uint64_t version) {
  char name[40];
  std::snprintf(name, sizeof name, "weight_v%06llu", (unsigned long long)version);
  return name;
}

bool is_below(const fs::path& path, const std::vector<fs::path>& roots) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(path, error);
  if (error) return false;
  return std::any_of(roots.begin(), roots.end(), [&](const fs::path& root) {
    const fs::path real_root = fs::weakly_canonical(root, error);
    if (error) return false;
    const auto [at, in_path] =
        std::mismatch(real_root.begin(), real_root.end(), real.begin(), real.end());
    return at == real_root.end() || (std::next(at) == real_root.end() && at->empty());
  });
}

Result<std::string> identity_of_checkpoint(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code error;
  const bool one = fs::is_regular_file(path, error);
  const fs::path folder = one ? path.parent_path() : path;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (one ? name == path.filename() : is_weights_file(name)) names.push_back(name);
  }
  if (error) return io_error(folder.string() + ": cannot list: " + error.message());
  std::sort(names.begin(), names.end());
  Hasher hasher(DigestKind::kXxh3_128);
  for (const std::string& name : names) {
    DW_ASSIGN_OR_RETURN(const FileStamp stamp, stamp_of(folder / name));
    hasher.update(name + "\n" + std::to_string(stamp.size_bytes) + " " +
                  std::to_string(stamp.modified_ns) + "\n");
  }
  return "files " + hasher.finish().hex();
}

SlimeSource::SlimeSource(fs::path folder, std::vector<fs::path> roots, std::string dialect)
    : folder_(std::move(folder)),
      roots_(std::move(roots)),
      dialect_(std::move(dialect)),
      store_(std::make_shared<DirectoryStore>(folder_)) {}

// A link in a folder must not lead to what nobody may read through us.
Status SlimeSource::check_folder(const fs::path& folder) const {
  if (roots_.empty()) return {};
  const auto outside = [](const fs::path& path) {
    return invalid_argument(path.string() + ": leads out of the folders that may be read");
  };
  if (!is_below(folder, roots_)) return outside(folder);
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->is_symlink(error) && !is_below(it->path(), roots_)) return outside(it->path());
  }
  return {};
}

Result<SlimeVersion> SlimeSource::open(uint64_t version) {
  if (const auto found = opened_.find(version); found != opened_.end()) return found->second;
  const Dialect* const dialect = find_dialect(dialect_);
  if (dialect == nullptr) return unsupported("there is no dialect \"" + dialect_ + "\"");
  SlimeVersion opened;
  opened.folder = folder_ / slime_version_name(version);
  DW_RETURN_IF_ERROR(check_folder(opened.folder));
  DW_ASSIGN_OR_RETURN(auto files, dialect->open(*store_, version));
  opened.files = std::move(files);
  const ForeignInfo& info = opened.info();
  if (info.version != version) {
    return corruption(opened.folder.string() + ": says that it is version " +
                      std::to_string(info.version));
  }
  if (!has_digests(info)) {
    DW_ASSIGN_OR_RETURN(opened.identity, identity_of_checkpoint(opened.folder));
  } else {
    opened.identity = identity_of_delta(info);
  }
  return opened_.emplace(version, std::move(opened)).first->second;
}

Result<SlimeWay> SlimeSource::way(uint64_t floor, uint64_t target) {
  SlimeWay way;
  for (way.start = target; way.start > floor;) {
    DW_ASSIGN_OR_RETURN(SlimeVersion version, open(way.start));
    if (version.info().full) {
      way.whole = std::move(version);
      break;
    }
    const uint64_t base = version.info().base.value_or(way.start - 1);
    if (base >= way.start || base < floor) {
      return base_mismatch(version.folder.string() + ": builds on version " + std::to_string(base) +
                           ", and cannot follow version " + std::to_string(floor));
    }
    if (way.deltas.size() >= kMaxSlimeDeltas) {
      return corruption(folder_.string() + ": over a million deltas without a whole version");
    }
    way.deltas.push_back(std::move(version));
    way.start = base;
  }
  std::reverse(way.deltas.begin(), way.deltas.end());
  return way;
}

}  // namespace deltawire
