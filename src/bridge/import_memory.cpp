#include "bridge/import_memory.h"

#include "base/file.h"
#include "base/json.h"

namespace deltawire {
namespace {

constexpr const char* kImportMemoryFile = "import.json";
constexpr uint64_t kMaxImportMemoryBytes = 4096;

}  // namespace

std::optional<ImportMemory> recall_import(const std::filesystem::path& folder) {
  const auto text = read_text_file(folder / kImportMemoryFile, kMaxImportMemoryBytes);
  if (!text.ok()) return {};
  const nlohmann::json json = parse_json(*text);
  if (!json.is_object() || !json.contains("version") || !json["version"].is_number_unsigned() ||
      !json.contains("fingerprint") || !json["fingerprint"].is_string()) {
    return {};
  }
  return ImportMemory{json["version"].get<uint64_t>(), json["fingerprint"].get<std::string>()};
}

Status remember_import(const std::filesystem::path& folder, const ImportMemory& memory) {
  const nlohmann::json json = {{"version", memory.version}, {"fingerprint", memory.fingerprint}};
  return write_text_file(folder / kImportMemoryFile, json_text(json) + "\n");
}

}  // namespace deltawire
