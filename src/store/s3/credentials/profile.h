// A profile of AWS's configuration: a section of ~/.aws/credentials, of ~/.aws/config, or of both.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "deltawire/status.h"

namespace deltawire::s3 {

using Settings = std::map<std::string, std::string, std::less<>>;

// The settings of "[section]"; none when there is no such section. Comments, blank lines and lines
// that are no settings are read over.
std::optional<Settings> parse_section(std::string_view text, std::string_view section);

// The one that was given, AWS_PROFILE, then "default".
std::string profile_name(const std::string& given);
// AWS_SHARED_CREDENTIALS_FILE, AWS_CONFIG_FILE; else below ~/.aws.
std::filesystem::path shared_credentials_path();
std::filesystem::path config_path();

// "[name]" of the one file, "[profile name]" of the other. NotFound: no such file, or no such
// section in it.
Result<Settings> shared_section(const std::string& profile);
Result<Settings> config_section(const std::string& profile);

}  // namespace deltawire::s3
