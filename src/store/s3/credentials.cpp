#include "store/s3/credentials.h"

#include <cstdlib>

#include "base/file.h"

namespace deltawire::s3 {
namespace {

constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// Keys become parts of headers: nothing that could end one.
Status check_key(const char* name, std::string_view key) {
  for (const char c : key) {
    if (c <= ' ' || c > '~') {
      return invalid_argument(std::string(name) + " holds a character that no key has");
    }
  }
  return {};
}

Status check(const Credentials& credentials) {
  if (credentials.access_key.empty() || credentials.secret_key.empty()) {
    return invalid_argument("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must both be set");
  }
  DW_RETURN_IF_ERROR(check_key("AWS_ACCESS_KEY_ID", credentials.access_key));
  DW_RETURN_IF_ERROR(check_key("AWS_SECRET_ACCESS_KEY", credentials.secret_key));
  return check_key("AWS_SESSION_TOKEN", credentials.session_token);
}

}  // namespace

Result<Credentials> parse_credentials(std::string_view text, std::string_view profile) {
  Credentials credentials;
  bool inside = false, found = false;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      inside = line.back() == ']' && trimmed(line.substr(1, line.size() - 2)) == profile;
      found = found || inside;
      continue;
    }
    const size_t equals = line.find('=');
    if (!inside || equals == line.npos) continue;
    const std::string_view name = trimmed(line.substr(0, equals));
    const std::string_view value = trimmed(line.substr(equals + 1));
    if (name == "aws_access_key_id") credentials.access_key = value;
    if (name == "aws_secret_access_key") credentials.secret_key = value;
    if (name == "aws_session_token") credentials.session_token = value;
  }
  if (!found) return not_found("no section [" + std::string(profile) + "]");
  DW_RETURN_IF_ERROR(check(credentials));
  return credentials;
}

Result<std::unique_ptr<CredentialsSource>> CredentialsSource::find() {
  std::unique_ptr<CredentialsSource> source(new CredentialsSource);
  source->credentials_ = {environment("AWS_ACCESS_KEY_ID"), environment("AWS_SECRET_ACCESS_KEY"),
                          environment("AWS_SESSION_TOKEN")};
  if (!source->credentials_.access_key.empty() || !source->credentials_.secret_key.empty()) {
    DW_RETURN_IF_ERROR(check(source->credentials_));
    return source;
  }
  source->file_ = environment("AWS_SHARED_CREDENTIALS_FILE");
  if (source->file_.empty()) {
    source->file_ = std::filesystem::path(environment("HOME")) / ".aws" / "credentials";
  }
  source->profile_ = environment("AWS_PROFILE");
  if (source->profile_.empty()) source->profile_ = "default";
  Status loaded = source->load();
  if (!loaded.ok()) {
    return invalid_argument(
        "no S3 credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
        "or write them to " +
        source->file_.string() + " (" + loaded.message() + ")");
  }
  return source;
}

Status CredentialsSource::load() {
  struct stat info;
  if (::stat(file_.c_str(), &info) != 0) return not_found("no such file");
  DW_ASSIGN_OR_RETURN(const std::string text, read_text_file(file_, kMaxFileBytes));
  DW_ASSIGN_OR_RETURN(credentials_, parse_credentials(text, profile_));
  seen_ = info;
  return {};
}

Credentials CredentialsSource::current() {
  const std::lock_guard lock(mutex_);
  struct stat now;
  if (!file_.empty() && ::stat(file_.c_str(), &now) == 0) {
    const bool same = now.st_ino == seen_.st_ino && now.st_size == seen_.st_size &&
                      now.st_mtim.tv_sec == seen_.st_mtim.tv_sec &&
                      now.st_mtim.tv_nsec == seen_.st_mtim.tv_nsec;
    if (!same) static_cast<void>(load());
  }
  return credentials_;
}

std::string default_region() {
  std::string region = environment("AWS_REGION");
  if (region.empty()) region = environment("AWS_DEFAULT_REGION");
  return region.empty() ? "us-east-1" : region;
}

}  // namespace deltawire::s3
