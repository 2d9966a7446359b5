// A Ceph RADOS Gateway of our own: one monitor, one store in memory, one gateway, on loopback.
#pragma once

#include <filesystem>
#include <string>

#include "deltawire/status.h"

namespace deltawire::cli {

// Stopped when destroyed. Sets the credentials of this process and its children.
class Gateway {
 public:
  // Unsupported, naming the packages, where Ceph is not installed.
  static Result<Gateway> start(const std::filesystem::path& folder);
  ~Gateway();
  Gateway(Gateway&& other) noexcept;
  Gateway& operator=(Gateway&& other) noexcept;

  const std::string& endpoint() const noexcept { return endpoint_; }
  const std::string& bucket() const noexcept { return bucket_; }

 private:
  Gateway() = default;
  std::filesystem::path script_, folder_;
  std::string endpoint_, bucket_;
};

}  // namespace deltawire::cli
