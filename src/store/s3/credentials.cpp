#include "store/s3/credentials.h"

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "store/s3/answers.h"

namespace deltawire::s3 {
namespace {

constexpr int64_t kEarlySeconds = 300;  // AWS's servers have new keys by then
constexpr int64_t kPauseSeconds = 30;   // between attempts while the old keys are still good

// In the order in which they are asked.
constexpr Provider kProviders[] = {
    {"environment", ask_environment},
    {"web identity", ask_web_identity},
    {"shared credentials file", ask_shared_file, true},
    {"configuration file", ask_config_file, true},
    {"container", ask_container},
    {"instance metadata", ask_instance},
};

}  // namespace

CredentialsSource::CredentialsSource(const std::string& region, const std::string& ca_file,
                                     const std::string& profile)
    : http_(ca_file, 1), asking_{region, &http_, profile} {}

Result<std::unique_ptr<CredentialsSource>> CredentialsSource::find(const std::string& region,
                                                                   const std::string& ca_file,
                                                                   const std::string& profile) {
  std::unique_ptr<CredentialsSource> source(new CredentialsSource(region, ca_file, profile));
  std::string tried;
  for (const Provider& provider : kProviders) {
    const std::string name(provider.name);
    if (!profile.empty() && !provider.has_profiles) continue;
    DW_ASSIGN_OR_RETURN(Offer offer,
                        located(provider.ask(source->asking_), "S3 credentials, " + name));
    if (!offer.keys) {
      tried += (tried.empty() ? "" : "; ") + name + ": " + offer.why_not;
      continue;
    }
    source->provider_ = &provider;
    source->keep(*std::move(offer.keys));
    return source;
  }
  return invalid_argument(
      "no S3 credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another source that "
      "AWS's tools know. Tried: " +
      tried);
}

bool CredentialsSource::file_has_changed() const {
  struct stat now;
  if (keys_.file.empty() || ::stat(keys_.file.c_str(), &now) != 0) return false;
  return now.st_ino != seen_.st_ino || now.st_size != seen_.st_size ||
         now.st_mtim.tv_sec != seen_.st_mtim.tv_sec || now.st_mtim.tv_nsec != seen_.st_mtim.tv_nsec;
}

void CredentialsSource::keep(Keys keys) {
  keys_ = std::move(keys);
  if (!keys_.file.empty()) static_cast<void>(::stat(keys_.file.c_str(), &seen_));
}

Status CredentialsSource::ask_again() {
  const std::string place = "S3 credentials, " + std::string(provider_->name);
  DW_ASSIGN_OR_RETURN(Offer offer, located(provider_->ask(asking_), place));
  if (!offer.keys) return unavailable(place + ": " + offer.why_not);
  keep(*std::move(offer.keys));
  return {};
}

Result<Credentials> CredentialsSource::current() {
  const std::lock_guard lock(mutex_);
  const int64_t now = unix_seconds();
  const bool over = keys_.expires && now >= *keys_.expires;
  const bool soon = keys_.expires && now >= *keys_.expires - kEarlySeconds && now >= not_before_;
  if (file_has_changed()) {
    static_cast<void>(ask_again());  // half-written: what was known stays
  } else if (over || soon) {
    not_before_ = now + kPauseSeconds;
    Status asked = ask_again();
    if (!asked.ok() && over) return asked;
  }
  return keys_.credentials;
}

Credentials CredentialsSource::known() {
  const std::lock_guard lock(mutex_);
  return keys_.credentials;
}

bool CredentialsSource::renew(const Credentials& used) {
  const std::lock_guard lock(mutex_);
  if (used != keys_.credentials) return true;  // another thread was first
  const int64_t now = unix_seconds();
  if (now < renew_not_before_) return false;
  renew_not_before_ = now + kPauseSeconds;
  return ask_again().ok() && used != keys_.credentials;
}

std::string default_region() {
  std::string region = environment_variable("AWS_REGION");
  if (region.empty()) region = environment_variable("AWS_DEFAULT_REGION");
  return region.empty() ? "us-east-1" : region;
}

std::string environment_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Status check_header_text(std::string_view what, std::string_view text) {
  for (const char c : text) {
    if (c > ' ' && c <= '~') continue;
    return invalid_argument(std::string(what) + " holds a character that a key may not contain");
  }
  return {};
}

Status check_credentials(std::string_view where, const Credentials& credentials) {
  const std::string begin(where);
  if (credentials.access_key.empty() || credentials.secret_key.empty()) {
    return invalid_argument(begin + ": access key id and secret access key must both be set");
  }
  DW_RETURN_IF_ERROR(check_header_text(begin + ": the access key id", credentials.access_key));
  DW_RETURN_IF_ERROR(check_header_text(begin + ": the secret access key", credentials.secret_key));
  return check_header_text(begin + ": the session token", credentials.session_token);
}

Result<int64_t> parse_expiry(std::string_view text) {
  constexpr size_t kToSeconds = sizeof("2026-08-21T12:03:04") - 1;
  const size_t zone = text.find_first_of("Z+-", std::min(text.size(), kToSeconds));
  if (zone == text.npos) return corruption("not a time");
  DW_ASSIGN_OR_RETURN(const int64_t seconds,
                      parse_time(std::string(text.substr(0, kToSeconds)) + "Z"));
  if (text[zone] == 'Z') return seconds;
  int hours = 0, minutes = 0;
  const std::string offset(text.substr(zone + 1));
  if (std::sscanf(offset.c_str(), "%2d:%2d", &hours, &minutes) != 2)
    return corruption("not a time");
  const int64_t east = int64_t(hours) * 3600 + int64_t(minutes) * 60;
  return text[zone] == '+' ? seconds - east : seconds + east;
}

Result<Keys> parse_json_keys(std::string_view where, std::string_view json) {
  const std::string begin(where);
  const nlohmann::json answer = parse_json(json);
  if (!answer.is_object()) return corruption(begin + ": its output is not a JSON object");
  const auto text = [&](const char* name) { return string_in(answer, name); };
  Keys keys;
  keys.credentials = {text("AccessKeyId"), text("SecretAccessKey"), text("SessionToken")};
  if (keys.credentials.session_token.empty()) keys.credentials.session_token = text("Token");
  DW_RETURN_IF_ERROR(check_credentials(begin, keys.credentials));
  if (const std::string expiration = text("Expiration"); !expiration.empty()) {
    const Result<int64_t> expires = parse_expiry(expiration);
    if (!expires.ok()) return corruption(begin + ": its Expiration is not a time");
    keys.expires = *expires;
  }
  return keys;
}

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN.
Result<Offer> ask_environment(const Asking&) {
  const Keys keys{
      {environment_variable("AWS_ACCESS_KEY_ID"), environment_variable("AWS_SECRET_ACCESS_KEY"),
       environment_variable("AWS_SESSION_TOKEN")},
      {},
      {}};
  const Credentials& given = keys.credentials;
  if (given.access_key.empty() && given.secret_key.empty()) {
    return no_keys("AWS_ACCESS_KEY_ID is not set");
  }
  if (given.access_key.empty() || given.secret_key.empty()) {
    return invalid_argument("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must both be set");
  }
  DW_RETURN_IF_ERROR(check_header_text("AWS_ACCESS_KEY_ID", given.access_key));
  DW_RETURN_IF_ERROR(check_header_text("AWS_SECRET_ACCESS_KEY", given.secret_key));
  DW_RETURN_IF_ERROR(check_header_text("AWS_SESSION_TOKEN", given.session_token));
  return offer_of(keys);
}

}  // namespace deltawire::s3
