// Those who may have keys for us, one function each. They are asked in the order of the table in
// source.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "deltawire/status.h"
#include "store/s3/wire/http.h"
#include "store/s3/wire/sigv4.h"

namespace deltawire::s3 {

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
  HttpPool* http;
  std::string profile = {};  // that was named for this store; empty: none
};

// An Offer without keys: this way is not set up here, and the next may be asked. A failure: it is
// set up and does not work. Then nobody else is asked, for the keys would be another identity's.
// No message holds a key or a token.
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

Offer nothing(std::string why_not);

inline constexpr uint64_t kMaxTokenBytes = 64 << 10;  // of a file that holds one
Offer offer_of(Keys keys);
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

// One GET or PUT past any proxy, to a server of this machine or its host.
Result<HttpAnswer> ask_nearby(const Asking& asking, const std::string& method,
                              const std::string& url, std::vector<std::string> headers,
                              double timeout_seconds);

}  // namespace deltawire::s3
