#include "bridge/import_memory.h"

#include <algorithm>

#include "base/file.h"
#include "base/json.h"

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

}  // namespace deltawire
