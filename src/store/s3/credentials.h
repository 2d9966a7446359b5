// Where the keys come from: the environment, then the shared credentials file.
#pragma once

#include <sys/stat.h>

#include <filesystem>
#include <mutex>
#include <string>

#include "deltawire/status.h"
#include "store/s3/sigv4.h"

namespace deltawire::s3 {

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, read once; without them the
// section AWS_PROFILE (or "default") of AWS_SHARED_CREDENTIALS_FILE (or ~/.aws/credentials), read
// again whenever the file changes, so that a tool which renews short-lived keys is followed.
// Thread-safe. No message holds a key.
class CredentialsSource {
 public:
  static Result<std::unique_ptr<CredentialsSource>> find();

  // A file that is being rewritten, or is gone, leaves the keys as they were.
  Credentials current();

 private:
  CredentialsSource() = default;
  Status load();

  std::filesystem::path file_;  // empty: from the environment
  std::string profile_;
  std::mutex mutex_;
  Credentials credentials_;
  struct stat seen_ = {};
};

// The section of a credentials file: "[name]" and "key = value" lines; NotFound without it.
Result<Credentials> parse_credentials(std::string_view text, std::string_view profile);

// AWS_REGION, AWS_DEFAULT_REGION, then "us-east-1".
std::string default_region();

}  // namespace deltawire::s3
