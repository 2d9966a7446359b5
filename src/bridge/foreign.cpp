#include "bridge/foreign.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/guard.h"
#include "base/text.h"
#include "bridge/bridge.h"
#include "tensor/form.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

void add_number(uint64_t number, Hasher* hasher) { hasher->update(std::to_string(number) + "\n"); }

}  // namespace

std::vector<DialectName> dialect_names() {
  std::vector<DialectName> names;
  for (const Dialect* dialect : all_dialects()) {
    names.push_back({std::string(dialect->name()), std::string(dialect->title())});
  }
  return names;
}

Result<const Dialect*> require_dialect(const std::string& name) {
  if (const Dialect* dialect = find_dialect(name)) return dialect;
  std::string known;
  for (const DialectName& other : dialect_names()) {
    known += (known.empty() ? "" : ", ") + other.name + " (" + other.title + ")";
  }
  return invalid_argument("there is no dialect \"" + name + "\"; there are " + known);
}

ForeignSummary summary_of(const Dialect& dialect, const ForeignInfo& info, bool tensors) {
  ForeignSummary summary{std::string(dialect.name()),
                         info.version,
                         info.base,
                         info.full,
                         info.encoding,
                         info.checksum,
                         info.tensors.size(),
                         info.num_files,
                         info.file_bytes};
  if (!tensors) return summary;
  for (const ForeignTensor& tensor : info.tensors) {
    const bool known = tensor.dtype && tensor.shape;
    summary.tensors.push_back({tensor.name,
                               known ? form_of(*tensor.dtype, *tensor.shape) : std::string(),
                               tensor.payload_bytes});
  }
  return summary;
}

std::string place_of(const Store& store) {
  const std::string folder = store.local_folder();
  if (folder.empty()) return store.url();
  std::error_code error;
  const auto whole = std::filesystem::weakly_canonical(std::filesystem::absolute(folder), error);
  std::string place = error ? folder : whole.string();
  while (place.size() > 1 && place.ends_with('/')) place.pop_back();
  return place;
}

std::string fingerprint_of(const ForeignInfo& info) {
  Hasher hasher(DigestKind::kXxh3_128);
  add_number(info.version, &hasher);
  add_number(info.num_files, &hasher);
  add_number(info.file_bytes, &hasher);
  hasher.update(info.encoding + "\n" + info.checksum + "\n" + info.content + "\n");
  for (const ForeignTensor& tensor : info.tensors) {
    hasher.update(tensor.name);
    add_number(tensor.payload_bytes, &hasher);
    if (tensor.checksum) hasher.update(tensor.checksum->hex);
  }
  return hasher.finish().hex();
}

// Paths from the command line: a folder of other projects' versions, or one version in it.

namespace {

constexpr size_t kVersionDigits = 6;
constexpr int kMostLevels = 2;  // ROOT/weight_v000012, ROOT/deltas/step_000012.safetensors

// The number at the end of "weight_v000012" or "step_000012". None if the path names no version;
// then the folders above are not searched.
std::optional<uint64_t> trailing_version(const fs::path& path) {
  const std::string stem = path.stem().string();
  const size_t letters = stem.find_last_not_of("0123456789");
  if (letters == std::string::npos || stem.size() - letters - 1 < kVersionDigits) return {};
  if (stem[letters] != 'v' && stem[letters] != '_') return {};
  uint64_t version = 0;
  const bool fits = parse_number(std::string_view(stem).substr(letters + 1), &version);
  return fits ? std::optional(version) : std::nullopt;
}

Result<std::shared_ptr<Store>> open_folder(const fs::path& folder) {
  return open_store(folder.string(), StoreOptions());
}

Result<const Dialect*> dialect_of(const fs::path& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) return static_cast<const Dialect*>(nullptr);
  DW_ASSIGN_OR_RETURN(const auto store, open_folder(folder));
  return recognise_dialect(*store);
}

}  // namespace

Result<std::optional<ForeignPath>> recognise_foreign(const fs::path& given) {
  std::optional<ForeignPath> none;
  std::error_code error;
  const fs::path path = fs::weakly_canonical(given, error);
  if (error || !fs::exists(path, error)) return none;
  DW_ASSIGN_OR_RETURN(const Dialect* whole, dialect_of(path));
  if (whole != nullptr) {
    return std::optional(
        ForeignPath{std::string(whole->name()), std::string(whole->title()), path, {}});
  }
  const std::optional<uint64_t> version = trailing_version(path);
  if (!version) return none;
  fs::path root = path;
  for (int level = 0; level < kMostLevels && root.has_parent_path(); ++level) {
    root = root.parent_path();
    DW_ASSIGN_OR_RETURN(const Dialect* dialect, dialect_of(root));
    if (dialect == nullptr) continue;
    return std::optional(
        ForeignPath{std::string(dialect->name()), std::string(dialect->title()), root, version});
  }
  return none;
}

Result<std::vector<uint64_t>> foreign_versions(const ForeignPath& path) {
  DW_ASSIGN_OR_RETURN(const Dialect* dialect, require_dialect(path.dialect));
  DW_ASSIGN_OR_RETURN(const auto store, open_folder(path.root));
  return dialect->versions(*store);
}

Result<ForeignSummary> describe_foreign(const ForeignPath& path, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const Dialect* dialect, require_dialect(path.dialect));
  DW_ASSIGN_OR_RETURN(const auto store, open_folder(path.root));
  DW_ASSIGN_OR_RETURN(const auto opened, guard_memory("opening a version", [&] {
                        return dialect->open(*store, version);
                      }));
  return summary_of(*dialect, opened->info(), true);
}

Result<std::unique_ptr<ForeignVersion>> open_foreign(const ForeignPath& path) {
  if (!path.version) {
    return invalid_argument(path.root.string() + ": holds all versions of " + path.title +
                            "; name one of them");
  }
  DW_ASSIGN_OR_RETURN(const Dialect* dialect, require_dialect(path.dialect));
  DW_ASSIGN_OR_RETURN(const auto store, open_folder(path.root));
  return guard_memory("opening a version", [&] { return dialect->open(*store, *path.version); });
}

}  // namespace deltawire
