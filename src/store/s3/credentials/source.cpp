#include "store/s3/credentials/source.h"

#include "base/clock.h"

namespace deltawire::s3 {
namespace {

constexpr int64_t kEarlySeconds = 300;  // AWS's servers have new keys by then
constexpr int64_t kPauseSeconds = 30;   // between attempts while the old keys are still good

bool same(const Credentials& a, const Credentials& b) {
  return a.access_key == b.access_key && a.secret_key == b.secret_key &&
         a.session_token == b.session_token;
}

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
    Result<Offer> offer = provider.ask(source->asking_);
    if (!offer.ok()) return std::move(offer).status().at("S3 credentials, " + name);
    if (!offer->keys) {
      tried += (tried.empty() ? "" : "; ") + name + ": " + offer->why_not;
      continue;
    }
    source->provider_ = &provider;
    source->keep(*std::move(offer->keys));
    return source;
  }
  return invalid_argument(
      "no S3 credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or another way that "
      "AWS's tools know. Asked: " +
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
  Result<Offer> offer = provider_->ask(asking_);
  if (!offer.ok()) return std::move(offer).status().at(place);
  if (!offer->keys) return unavailable(place + ": " + offer->why_not);
  keep(*std::move(offer->keys));
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
  if (!same(used, keys_.credentials)) return true;  // another thread was first
  const int64_t now = unix_seconds();
  if (now < renew_not_before_) return false;
  renew_not_before_ = now + kPauseSeconds;
  return ask_again().ok() && !same(used, keys_.credentials);
}

std::string default_region() {
  std::string region = environment_variable("AWS_REGION");
  if (region.empty()) region = environment_variable("AWS_DEFAULT_REGION");
  return region.empty() ? "us-east-1" : region;
}

}  // namespace deltawire::s3
