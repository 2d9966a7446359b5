// Sets environment variables for one test, and restores them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace deltawire::testing {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;

class Environment {
 public:
  // Starts without any of the variables that give an S3 client credentials.
  Environment() {
    for (const char* name :
         {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
          "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_REGION", "AWS_DEFAULT_REGION",
          "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ROLE_SESSION_NAME",
          "AWS_ENDPOINT_URL_STS", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
          "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_AUTHORIZATION_TOKEN",
          "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_EC2_METADATA_SERVICE_ENDPOINT",
          "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"}) {
      set(name, std::nullopt);
    }
    set("HOME", "/nonexistent");
    set("AWS_EC2_METADATA_DISABLED", "true");  // tests may run on an instance
  }
  ~Environment() {
    for (auto at = before_.rbegin(); at != before_.rend(); ++at) change(at->first, at->second);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  void set(const std::string& name, const std::optional<std::string>& value) {
    const char* old = std::getenv(name.c_str());
    before_.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
    change(name, value);
  }
  void set_keys(const std::string& access, const std::string& secret) {
    set("AWS_ACCESS_KEY_ID", access);
    set("AWS_SECRET_ACCESS_KEY", secret);
  }

 private:
  static void change(const std::string& name, const std::optional<std::string>& value) {
    if (value.has_value()) {
      ::setenv(name.c_str(), value->c_str(), 1);
    } else {
      ::unsetenv(name.c_str());
    }
  }
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace deltawire::testing
