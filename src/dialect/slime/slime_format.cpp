#include "dialect/slime/slime_format.h"

#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire::slime {
namespace {

std::string padded(uint64_t number, size_t digits) {
  const std::string text = std::to_string(number);
  return text.size() >= digits ? text : std::string(digits - text.size(), '0') + text;
}

}  // namespace

std::string version_text(uint64_t version) { return padded(version, 6); }

std::string folder_name(uint64_t version) {
  return std::string(kFolderBegin) + version_text(version);
}

std::string index_name(uint64_t version) {
  return folder_name(version) + "/" + std::string(kIndexFileName);
}

std::string part_name(uint64_t index, uint64_t count) {
  return "model-" + padded(index, 5) + "-of-" + padded(count, 5) + std::string(kPartEnd);
}

std::optional<uint64_t> parse_folder_name(std::string_view name) {
  uint64_t version = 0;
  if (!name.starts_with(kFolderBegin) ||
      !parse_number(name.substr(kFolderBegin.size()), &version) || folder_name(version) != name) {
    return std::nullopt;
  }
  return version;
}

}  // namespace deltawire::slime
