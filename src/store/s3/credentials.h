// Where the keys come from, and how they are kept fresh.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "deltawire/status.h"
#include "http/http_client.h"
#include "store/s3/sigv4.h"

namespace deltawire::s3 {

// The sources of S3 keys, one function each. The table in credentials.cpp has their order.
struct Keys {
  Credentials credentials;
  std::optional<int64_t> expires;  // seconds since 1970; none: not known, or never
  std::filesystem::path file;      // where they stand; a change of it means others. Empty: nowhere
};

struct Offer {
  std::optional<Keys> keys;
  std::string why_not;  // when there are none: "AWS_ACCESS_KEY_ID is not set"
};

struct Asking {
  std::string region;
  HttpClient* http;
  std::string profile = {};  // that was named for this store; empty: none
};

// An Offer without keys: this source is not configured, and the next may be asked. A failure: it is
// configured and does not work. Then no other source is asked, because its keys would be another
// identity's. No message contains a key or a token.
Result<Offer> ask_environment(const Asking& asking);
Result<Offer> ask_web_identity(const Asking& asking);
Result<Offer> ask_shared_file(const Asking& asking);
Result<Offer> ask_config_file(const Asking& asking);
Result<Offer> ask_container(const Asking& asking);
Result<Offer> ask_instance(const Asking& asking);

struct Provider {
  std::string_view name;
  Result<Offer> (*ask)(const Asking& asking);
  bool has_profiles = false;
};

// ---- what they share

inline Offer no_keys(std::string why_not) { return {std::nullopt, std::move(why_not)}; }
inline Offer offer_of(Keys keys) { return {std::move(keys), {}}; }
// Empty when it is not set.
std::string environment_variable(const char* name);
// Keys and tokens become parts of headers: InvalidArgument, with `what` and not with the text, when
// a character in it could end one.
Status check_header_text(std::string_view what, std::string_view text);
// Both keys are there and all three are fit for a header. `where` begins the message.
Status check_credentials(std::string_view where, const Credentials& credentials);

// {"AccessKeyId", "SecretAccessKey", "Token" or "SessionToken", "Expiration"}: what a process, a
// container's and an instance's server say. `where` begins messages.
Result<Keys> parse_json_keys(std::string_view where, std::string_view json);
// "2026-08-21T12:03:04Z", with a fraction or an offset from UTC too.
Result<int64_t> parse_expiry(std::string_view text);

// AWS's Security Token Service: a role's short-lived keys for a token or for other keys.
struct Role {
  std::string arn;
  std::string session_name;  // empty: one of ours
  std::string external_id;   // of AssumeRole; empty: none
};
// The token is read each time, because it is rotated.
Result<Keys> assume_role_with_web_identity(const Asking& asking, const Role& role,
                                           const std::filesystem::path& token_file);
Result<Keys> assume_role(const Asking& asking, const Role& role, const Credentials& credentials);

using Settings = std::map<std::string, std::string, std::less<>>;
// The settings of "[section]" of a file in ~/.aws; none when there is no such section. Comments,
// blank lines and lines that are no settings are skipped.
std::optional<Settings> parse_section(std::string_view text, std::string_view section);

// Asks the sources in the order of AWS's tools: environment, web identity, shared credentials file,
// configuration file, container, instance metadata. The source that had keys is asked again before
// they expire, when their file has changed, and when the server reports them as expired. Other
// sources are not asked, because they would be another identity. Thread-safe. No message holds a
// key.
class CredentialsSource {
 public:
  // InvalidArgument if no source has keys; the message gives the reason for each. With a profile's
  // name, only files are asked.
  static Result<std::unique_ptr<CredentialsSource>> find(const std::string& region,
                                                         const std::string& ca_file,
                                                         const std::string& profile = {});

  // Fails only if the keys have expired and there are no new ones; until then the known keys are
  // used.
  Result<Credentials> current();
  // The last keys, of any age, without asking a source.
  Credentials known();
  // Called when the server reports `used` as expired. True if there are new keys now.
  bool renew(const Credentials& used);

 private:
  CredentialsSource(const std::string& region, const std::string& ca_file,
                    const std::string& profile);
  Status ask_again();
  bool file_has_changed() const;
  void keep(Keys keys);

  HttpClient http_;
  const Asking asking_;
  const Provider* provider_ = nullptr;
  std::mutex mutex_;
  Keys keys_;
  struct stat seen_ = {};         // of keys_.file
  int64_t not_before_ = 0;        // seconds since 1970: no source is asked before this time
  int64_t renew_not_before_ = 0;  // the same of renew()
};

// AWS_REGION, AWS_DEFAULT_REGION, then "us-east-1".
std::string default_region();

}  // namespace deltawire::s3
