#include "lab/demo/gateway.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include "base/file.h"
#include "gateway_script.h"  // made from tests/servers
#include "lab/demo/process.h"
#ifdef DELTAWIRE_HAVE_S3
#include "store/s3_store.h"
#endif

namespace deltawire::cli {
#ifdef DELTAWIRE_HAVE_S3
namespace {

constexpr const char* kBucket = "deltawire-demo";

// "export NAME=value" lines; sets them for this process and its children.
Result<std::string> take_environment(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string endpoint;
  for (std::string line; std::getline(file, line);) {
    const size_t equals = line.find('=');
    if (!line.starts_with("export ") || equals == std::string::npos) continue;
    const std::string name = line.substr(7, equals - 7), value = line.substr(equals + 1);
    ::setenv(name.c_str(), value.c_str(), 1);
    if (name == "DELTAWIRE_RGW_ENDPOINT") endpoint = value;
  }
  if (endpoint.empty()) return internal_error(path.string() + ": names no endpoint");
  return endpoint;
}

}  // namespace
#endif

Result<Gateway> Gateway::start(const std::filesystem::path& folder) {
#ifdef DELTAWIRE_HAVE_S3
  Gateway gateway;
  gateway.script_ = folder.parent_path() / "rgw.sh";
  DW_RETURN_IF_ERROR(write_text_file(gateway.script_, kGatewayScript));
  DW_RETURN_IF_ERROR(write_text_file(folder.parent_path() / "common.sh", kCommonScript));
  std::filesystem::permissions(gateway.script_, std::filesystem::perms::owner_all);
  const std::filesystem::path log = folder.parent_path() / "rgw.log";
  DW_ASSIGN_OR_RETURN(
      Process up,
      Process::start(gateway.script_.string(),
                     {"up", folder.string(), "--owner", std::to_string(::getpid())}, log));
  const int status = up.wait();
  if (status == 77) {
    return unsupported(
        "--s3 starts a Ceph RADOS Gateway: install ceph-mon, ceph-osd, ceph-common "
        "and radosgw (Debian), or run `make demo` without it");
  }
  if (status != 0) return unavailable("the Ceph RADOS Gateway did not start; see " + log.string());
  gateway.folder_ = folder;
  gateway.bucket_ = kBucket;
  DW_ASSIGN_OR_RETURN(gateway.endpoint_, take_environment(folder / "env"));
  StoreOptions options;
  options.endpoint = gateway.endpoint_;
  DW_RETURN_IF_ERROR(make_s3_bucket(gateway.bucket_, options));
  return gateway;
#else
  (void)folder;
  return unsupported("this build has no S3: libcurl was not found when it was configured");
#endif
}

Gateway::Gateway(Gateway&& other) noexcept
    : script_(std::move(other.script_)),
      folder_(std::exchange(other.folder_, {})),
      endpoint_(std::move(other.endpoint_)),
      bucket_(std::move(other.bucket_)) {}

Gateway& Gateway::operator=(Gateway&& other) noexcept {
  std::swap(script_, other.script_);
  std::swap(folder_, other.folder_);
  std::swap(endpoint_, other.endpoint_);
  std::swap(bucket_, other.bucket_);
  return *this;
}

Gateway::~Gateway() {
  if (folder_.empty()) return;
  (void)run_to_end(script_.string(), {"down", folder_.string()},
                   folder_.parent_path() / "down.log");
}

}  // namespace deltawire::cli
