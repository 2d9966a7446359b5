#include "bridge/slime/acks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "bridge/slime/source.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kMaxAcksBytes = 16 << 20;

fs::path acks_file(const fs::path& source) { return source / ".deltawire-acknowledged.json"; }

}  // namespace

Result<SlimeAcks> read_slime_acks(const fs::path& source) {
  SlimeAcks acks;
  std::error_code error;
  if (!fs::exists(acks_file(source), error)) return acks;
  DW_ASSIGN_OR_RETURN(const std::string text, read_text_file(acks_file(source), kMaxAcksBytes));
  const nlohmann::json json = parse_json(text);
  if (!json.is_object()) {
    return corruption(acks_file(source).string() +
                      ": not what this build writes; remove it, and "
                      "push to every engine again");
  }
  for (const auto& [url, version] : json.items()) {
    acks[url] = version.is_number_unsigned() ? version.get<uint64_t>() : 0;
  }
  return acks;
}

Status write_slime_acks(const fs::path& source, const SlimeAcks& acks) {
  return write_text_file(acks_file(source), json_text(nlohmann::json(acks), {.indent = 1}) + "\n");
}

Result<std::vector<uint64_t>> remove_acknowledged(const fs::path& source,
                                                  const std::vector<uint64_t>& versions,
                                                  const SlimeAcks& acks) {
  std::vector<uint64_t> removed;
  if (versions.empty() || acks.empty()) return removed;
  const auto least = std::min_element(
      acks.begin(), acks.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  for (const uint64_t version : versions) {
    if (version > least->second || version == versions.back()) continue;
    const fs::path folder = source / slime_version_name(version);
    const fs::path gone = source / (".removed-" + slime_version_name(version));
    DW_RETURN_IF_ERROR(remove_tree(gone));
    DW_RETURN_IF_ERROR(rename_path(folder, gone));
    DW_RETURN_IF_ERROR(remove_tree(gone));
    removed.push_back(version);
  }
  return removed;
}

}  // namespace deltawire
