#include "format/checkpoint_files.h"

#include <algorithm>
#include <set>

#include "base/text.h"
#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr size_t kVersionDigits = 10;
constexpr std::string_view kOwnNames[] = {"current", "current.new"};  // of a replica's folder

bool has_slash_or_control(std::string_view name) {
  return std::any_of(name.begin(), name.end(), [](char c) {
    return c == '/' || c == '\\' || uint8_t(c) < 0x20 || uint8_t(c) == 0x7f;
  });
}

Status bad_file(std::string_view name, std::string_view rule) {
  return corruption("file " + quote(name) + ": " + std::string(rule));
}

std::string too_many(size_t limit, size_t got, std::string_view what) {
  return "at most " + std::to_string(limit) + " " + std::string(what) + ", there are " +
         std::to_string(got);
}

}  // namespace

bool is_packed_file(std::string_view name) {
  return name.ends_with(kPackedSuffix) &&
         name.substr(0, name.size() - kPackedSuffix.size()).ends_with(kSafetensorsSuffix);
}

std::string_view plain_file_name(std::string_view name) {
  return is_packed_file(name) ? name.substr(0, name.size() - kPackedSuffix.size()) : name;
}

bool is_weights_file(std::string_view name) {
  return plain_file_name(name).ends_with(kSafetensorsSuffix) || name == kIndexFileName;
}

bool is_version_folder(std::string_view name) {
  uint64_t version = 0;
  return name.size() == kVersionDigits + 1 && (name[0] == 'v' || name[0] == 'V') &&
         parse_number(name.substr(1), &version);
}

Status check_checkpoint_file_name(std::string_view name) {
  if (name.empty()) return bad_file(name, "the name is empty");
  if (name.size() > kMaxFileNameBytes) {
    return bad_file(name, "its name has " + std::to_string(name.size()) + " bytes; at most " +
                              std::to_string(kMaxFileNameBytes) + " are allowed");
  }
  if (!is_utf8(name)) return bad_file(name, "its name is not UTF-8");
  if (has_slash_or_control(name)) {
    return bad_file(name, "its name has a slash, a backslash or a control character");
  }
  if (name[0] == '.') return bad_file(name, "its name begins with a dot");
  const std::string lower = lower_case(name);
  const bool own =
      std::find(std::begin(kOwnNames), std::end(kOwnNames), lower) != std::end(kOwnNames) ||
      is_version_folder(name);
  if (own) return bad_file(name, "this name is reserved for replicas");
  return {};
}

Status check_side_files(const std::vector<NamedSize>& files) {
  std::set<std::string> names;
  uint64_t bytes = 0;
  const NamedSize* largest = nullptr;
  for (const NamedSize& file : files) {
    DW_RETURN_IF_ERROR(check_checkpoint_file_name(file.name));
    const std::string lower = lower_case(file.name);
    // Packed files came later: older versions may have files of such names.
    if (lower.ends_with(kSafetensorsSuffix) || lower == kIndexFileName) {
      return bad_file(file.name, "this name is reserved for weights");
    }
    if (!names.insert(lower).second) {
      return bad_file(file.name,
                      "another file beside the weights has the same name, or one that "
                      "differs by case alone");
    }
    if (largest == nullptr || file.size_bytes > largest->size_bytes) largest = &file;
    bytes = file.size_bytes > UINT64_MAX - bytes ? UINT64_MAX : bytes + file.size_bytes;
  }
  if (files.size() > kMaxSideFiles) {
    return corruption(too_many(kMaxSideFiles, files.size(), "side files are allowed"));
  }
  if (bytes > kMaxSideBytes) {
    return bad_file(largest->name, "has " + std::to_string(largest->size_bytes) +
                                       " bytes; the files beside the weights may have " +
                                       std::to_string(kMaxSideBytes) + " together, they have " +
                                       std::to_string(bytes));
  }
  return {};
}

Status check_weights_files(const std::vector<NamedSize>& files) {
  std::set<std::string> names;
  for (const NamedSize& file : files) {
    DW_RETURN_IF_ERROR(check_checkpoint_file_name(file.name));
    if (!is_weights_file(file.name)) return bad_file(file.name, "not a name for weights");
    if (!names.insert(lower_case(plain_file_name(file.name))).second) {
      return bad_file(file.name,
                      "another file has the same name, or one that differs by case "
                      "alone");
    }
  }
  if (files.size() > kMaxWeightsFiles) {
    return corruption(too_many(kMaxWeightsFiles, files.size(), "files of weights are allowed"));
  }
  return {};
}

Status as_invalid_argument(Status status) {
  return status.code() == Code::kCorruption ? invalid_argument(status.message())
                                            : std::move(status);
}

}  // namespace deltawire
