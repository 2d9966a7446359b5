#include "bridge/import_start.h"

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "bridge/foreign.h"
#include "bridge/patch.h"
#include "delta/delta_writer.h"

namespace deltawire {
namespace {

constexpr const char* kImportMemoryFile = "import.json";
constexpr uint64_t kMaxImportMemoryBytes = 64 << 10;
constexpr size_t kMostWithoutFile = 1000;  // older ones are forgotten

Status write_memory(const std::filesystem::path& folder, const ImportMemory& memory) {
  nlohmann::json json = {{"version", memory.version}, {"fingerprint", memory.fingerprint}};
  if (!memory.without_file.empty()) json["without_file"] = memory.without_file;
  return write_text_file(folder / kImportMemoryFile, json_text(json) + "\n");
}

}  // namespace

std::optional<ImportMemory> recall_import(const std::filesystem::path& folder) {
  const auto text = read_text_file(folder / kImportMemoryFile, kMaxImportMemoryBytes);
  if (!text.ok()) return {};
  const nlohmann::json json = parse_json(*text);
  if (!json.is_object() || !json.contains("version") || !json["version"].is_number_unsigned() ||
      !json.contains("fingerprint") || !json["fingerprint"].is_string()) {
    return {};
  }
  ImportMemory memory{json["version"].get<uint64_t>(), json["fingerprint"].get<std::string>(), {}};
  if (const auto list = json.find("without_file"); list != json.end() && list->is_array()) {
    for (const auto& version : *list) {
      if (version.is_number_unsigned()) memory.without_file.push_back(version.get<uint64_t>());
    }
  }
  return memory;
}

Status remember_import(const std::filesystem::path& folder, uint64_t version,
                       const std::string& fingerprint, bool whole) {
  ImportMemory memory{version, fingerprint, {}};
  if (const auto before = recall_import(folder); before && !whole) {
    memory.without_file = before->without_file;
  }
  return write_memory(folder, memory);
}

Status remember_without_file(const std::filesystem::path& folder, uint64_t version) {
  ImportMemory memory = recall_import(folder).value_or(ImportMemory());
  auto& list = memory.without_file;
  list.push_back(version);
  if (list.size() > kMostWithoutFile) list.erase(list.begin());
  return write_memory(folder, memory);
}

std::optional<uint64_t> find_late(const std::filesystem::path& folder,
                                  std::span<const uint64_t> versions) {
  const std::optional<ImportMemory> memory = recall_import(folder);
  if (!memory) return {};
  for (const uint64_t version : memory->without_file) {
    if (std::ranges::binary_search(versions, version)) return version;
  }
  return {};
}

namespace {

std::string number(uint64_t version) { return std::to_string(version); }

// The first version is applied to the chain's seed.
Result<std::optional<ImportStart>> start_from_base(const Dialect& dialect, Store& source,
                                                   const std::vector<uint64_t>& versions,
                                                   const ImportOptions& options, ThreadPool* pool) {
  const uint64_t first = options.range.from.value_or(1);
  if (first == 0) {
    return invalid_argument("version 0 has no base: leave the base out, or begin with version 1");
  }
  DW_ASSIGN_OR_RETURN(const Checkpoint base, open_checkpoint(options.base));
  if (!options.source_may_be_empty && (versions.empty() || versions.back() < first)) {
    return std::optional<ImportStart>();
  }
  const auto later = std::ranges::lower_bound(versions, first);
  if (later != versions.end() && *later != first) {
    return not_found(source.url() + ": begins with version " + number(*later) + ", not " +
                     number(first) + "; if " + options.base.string() + " is version " +
                     number(*later - 1) + ", import from version " + number(*later) + " on");
  }
  if (later != versions.end()) {
    DW_ASSIGN_OR_RETURN(const auto version, dialect.open(source, first));
    const ForeignInfo& info = version->info();
    if (info.base && *info.base != first - 1) {
      return base_mismatch(source.url() + ": version " + number(first) + " is based on version " +
                           number(*info.base) + ", not " + number(first - 1));
    }
    Status fits = info.full ? Status() : try_patch(*version, base, pool, options.publish.progress);
    if (fits.code() == Code::kCorruption) {
      return Status(Code::kBaseMismatch,
                    fits.message() + "; is " + options.base.string() +
                        " the checkpoint that the run began with? Nothing was committed");
    }
    DW_RETURN_IF_ERROR(std::move(fits));
  }
  return std::optional(ImportStart{first - 1, true});
}

}  // namespace

Result<std::optional<ImportStart>> choose_start(const Dialect& dialect, Store& source,
                                                const ImportOptions& options, ThreadPool* pool) {
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> versions, dialect.versions(source));
  if (!options.base.empty()) return start_from_base(dialect, source, versions, options, pool);
  const uint64_t from = options.range.from.value_or(0);
  for (const uint64_t candidate : versions) {
    if (candidate < from) continue;
    DW_ASSIGN_OR_RETURN(const auto version, dialect.open(source, candidate));
    if (version->info().full) return std::optional(ImportStart{candidate, false});
    if (options.range.from) break;
  }
  if (versions.empty() || versions.back() < from) return std::optional<ImportStart>();
  return invalid_argument(source.url() +
                          (options.range.from ? ": version " + number(from) + " is not whole"
                                              : ": no version is whole") +
                          ", so the chain needs the checkpoint that the first one is applied to");
}

}  // namespace deltawire
