#include "store/s3/credentials/profile.h"

#include <sys/stat.h>

#include "base/file.h"
#include "store/s3/credentials/provider.h"

namespace deltawire::s3 {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::filesystem::path path_of(const char* variable, const char* name) {
  const std::string set = environment_variable(variable);
  if (!set.empty()) return set;
  return std::filesystem::path(environment_variable("HOME")) / ".aws" / name;
}

Result<Settings> read_section(const std::filesystem::path& path, const std::string& section) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return not_found(path.string() + ": no such file");
  DW_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxFileBytes));
  std::optional<Settings> found = parse_section(text, section);
  if (!found) return not_found(path.string() + ": no section [" + section + "]");
  return *std::move(found);
}

}  // namespace

std::optional<Settings> parse_section(std::string_view text, std::string_view section) {
  std::optional<Settings> found;
  bool inside = false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      inside = line.back() == ']' && trimmed(line.substr(1, line.size() - 2)) == section;
      if (inside && !found) found.emplace();
      continue;
    }
    const size_t equals = line.find('=');
    if (!inside || equals == line.npos) continue;
    found->insert_or_assign(std::string(trimmed(line.substr(0, equals))),
                            std::string(trimmed(line.substr(equals + 1))));
  }
  return found;
}

std::string profile_name(const std::string& given) {
  if (!given.empty()) return given;
  const std::string name = environment_variable("AWS_PROFILE");
  return name.empty() ? "default" : name;
}

std::filesystem::path shared_credentials_path() {
  return path_of("AWS_SHARED_CREDENTIALS_FILE", "credentials");
}

std::filesystem::path config_path() { return path_of("AWS_CONFIG_FILE", "config"); }

Result<Settings> shared_section(const std::string& profile) {
  return read_section(shared_credentials_path(), profile);
}

Result<Settings> config_section(const std::string& profile) {
  return read_section(config_path(), profile == "default" ? profile : "profile " + profile);
}

}  // namespace deltawire::s3
