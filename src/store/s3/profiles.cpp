// The shared credentials file, and what a profile of the configuration names: keys, a process that
// prints them, a role.
#include <sys/stat.h>

#include "base/command.h"
#include "base/file.h"
#include "base/text.h"
#include "store/s3/credentials.h"

namespace deltawire::s3 {
namespace {

constexpr double kProcessSeconds = 60;
constexpr int kMaxSources = 5;  // profiles that name each other

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

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

// The one that was given, AWS_PROFILE, then "default".
std::string profile_name(const std::string& given) {
  if (!given.empty()) return given;
  const std::string name = environment_variable("AWS_PROFILE");
  return name.empty() ? "default" : name;
}

std::filesystem::path shared_credentials_path() {
  return path_of("AWS_SHARED_CREDENTIALS_FILE", "credentials");
}

// "[name]" of the one file, "[profile name]" of the other. NotFound: no such file, or no such
// section.
Result<Settings> shared_section(const std::string& profile) {
  return read_section(shared_credentials_path(), profile);
}

Result<Settings> config_section(const std::string& profile) {
  return read_section(path_of("AWS_CONFIG_FILE", "config"),
                      profile == "default" ? profile : "profile " + profile);
}

std::string setting(const Settings& settings, std::string_view name) {
  const auto found = settings.find(name);
  return found == settings.end() ? "" : found->second;
}

std::string quoted(const std::string& profile) { return "profile \"" + profile + "\""; }

// None: the section has no keys.
Result<std::optional<Keys>> keys_in(const std::string& where, const Settings& settings) {
  Keys keys;
  keys.credentials = {setting(settings, "aws_access_key_id"),
                      setting(settings, "aws_secret_access_key"),
                      setting(settings, "aws_session_token")};
  if (keys.credentials.access_key.empty() && keys.credentials.secret_key.empty()) {
    return std::optional<Keys>();
  }
  DW_RETURN_IF_ERROR(check_credentials(where, keys.credentials));
  return std::optional(std::move(keys));
}

// Its output may hold secrets, so a failure does not quote it.
Result<Keys> run_process(const std::string& where, const std::string& command) {
  std::string output;
  CommandOptions options;
  options.timeout_seconds = kProcessSeconds;
  options.output = &output;
  const std::string place = where + ", credential_process";
  Status status = run_command(command, options);
  if (status.code() == Code::kConflict) return io_error(place + ": " + status.message());
  if (!status.ok()) return std::move(status).at(place);
  return parse_json_keys(place, output);
}

Result<Keys> keys_of_profile(const Asking& asking, const std::string& profile, int depth);

// Those of the machine that `credential_source` names.
Result<Keys> keys_of_source(const Asking& asking, const std::string& where,
                            const std::string& source) {
  static constexpr Provider kSources[] = {{"Environment", ask_environment},
                                          {"EcsContainer", ask_container},
                                          {"Ec2InstanceMetadata", ask_instance}};
  for (const Provider& one : kSources) {
    if (one.name != source) continue;
    DW_ASSIGN_OR_RETURN(Offer offer, one.ask(asking));
    if (offer.keys) return *std::move(offer.keys);
    return invalid_argument(where + ", credential_source = " + source + ": " + offer.why_not);
  }
  return invalid_argument(where + ": credential_source must be Environment, EcsContainer or " +
                          "Ec2InstanceMetadata");
}

Result<Keys> keys_of_role(const Asking& asking, const std::string& where, const Settings& settings,
                          int depth) {
  const Role role{setting(settings, "role_arn"), setting(settings, "role_session_name"),
                  setting(settings, "external_id")};
  if (!setting(settings, "mfa_serial").empty()) {
    return unsupported(where + ": a role with mfa_serial needs an interactive login; use " +
                       "credential_process");
  }
  const std::string token_file = setting(settings, "web_identity_token_file");
  if (!token_file.empty()) return assume_role_with_web_identity(asking, role, token_file);
  const std::string source = setting(settings, "credential_source");
  const std::string profile = setting(settings, "source_profile");
  if (source.empty() && profile.empty()) {
    return invalid_argument(where + ": role_arn needs source_profile, credential_source or " +
                            "web_identity_token_file");
  }
  DW_ASSIGN_OR_RETURN(const Keys keys, !profile.empty()
                                           ? keys_of_profile(asking, profile, depth + 1)
                                           : keys_of_source(asking, where, source));
  return assume_role(asking, role, keys.credentials);
}

// Both files have their say; the shared one, which holds keys, has the last.
Result<Settings> settings_of(const std::string& profile) {
  Result<Settings> config = config_section(profile), shared = shared_section(profile);
  for (const auto* part : {&config, &shared}) {
    if (!part->ok() && part->status().code() != Code::kNotFound) return part->status();
  }
  if (!config.ok() && !shared.ok()) {
    return not_found(config.status().message() + "; " + shared.status().message());
  }
  Settings both = shared.ok() ? *std::move(shared) : Settings();
  if (config.ok()) both.merge(*config);
  return both;
}

Result<Keys> keys_of_profile(const Asking& asking, const std::string& profile, int depth) {
  const std::string where = quoted(profile);
  if (depth > kMaxSources)
    return invalid_argument(where + ": its source_profile refers back to itself");
  DW_ASSIGN_OR_RETURN(Settings settings, located(settings_of(profile), where));
  // A role may take the keys beside it as its source.
  const bool own_source = setting(settings, "source_profile") == profile;
  if (!setting(settings, "role_arn").empty() && !(own_source && depth > 0)) {
    return keys_of_role(asking, where, settings, depth);
  }
  DW_ASSIGN_OR_RETURN(std::optional<Keys> keys, keys_in(where, settings));
  if (keys) return *std::move(keys);
  const std::string process = setting(settings, "credential_process");
  if (!process.empty()) return run_process(where, process);
  if (!setting(settings, "sso_session").empty() || !setting(settings, "sso_start_url").empty()) {
    return unsupported(where + " is an SSO profile: name another one in AWS_PROFILE that has " +
                       "`credential_process = aws configure export-credentials --profile " +
                       profile + " --format process`");
  }
  return not_found(where + " holds neither keys nor credential_process nor role_arn");
}

}  // namespace

std::optional<Settings> parse_section(std::string_view text, std::string_view section) {
  std::optional<Settings> found;
  bool inside = false;
  for (const std::string_view whole : split_text(text, '\n')) {
    const std::string_view line = trimmed(whole);
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

Result<Offer> ask_shared_file(const Asking& asking) {
  const std::string profile = profile_name(asking.profile);
  Result<Settings> settings = shared_section(profile);
  if (settings.status().code() == Code::kNotFound) return no_keys(settings.status().message());
  if (!settings.ok()) return std::move(settings).status();
  const std::string where = shared_credentials_path().string() + ", [" + profile + "]";
  // Keys beside a role are there to get the role's.
  if (!setting(*settings, "role_arn").empty()) return no_keys(where + ": it names a role");
  DW_ASSIGN_OR_RETURN(std::optional<Keys> keys, keys_in(where, *settings));
  if (!keys) return no_keys(where + ": no keys in it");
  keys->file = shared_credentials_path();
  return offer_of(*std::move(keys));
}

Result<Offer> ask_config_file(const Asking& asking) {
  Result<Keys> keys = keys_of_profile(asking, profile_name(asking.profile), 0);
  if (keys.ok()) return offer_of(*std::move(keys));
  // A profile that was asked for by name and is not there is a mistake, not another identity.
  const bool named = !asking.profile.empty() || !environment_variable("AWS_PROFILE").empty();
  if (keys.status().code() == Code::kNotFound && !named) {
    return no_keys(keys.status().message());
  }
  if (keys.status().code() == Code::kNotFound) return invalid_argument(keys.status().message());
  return std::move(keys).status();
}

}  // namespace deltawire::s3
