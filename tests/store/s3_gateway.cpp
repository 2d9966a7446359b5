#include "s3_gateway.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "store/bodies.h"
#include "store/s3/client.h"
#include "store/s3_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const Gateway* find() {
  static Gateway found;
  if (!load_server("DELTAWIRE_RGW_DIR")) return nullptr;
  found.folder = variable("DELTAWIRE_RGW_DIR");
  found.endpoint = variable("DELTAWIRE_RGW_ENDPOINT");
  found.tls_endpoint = variable("DELTAWIRE_RGW_TLS_ENDPOINT");
  found.virtual_host_endpoint = variable("DELTAWIRE_RGW_VIRTUAL_HOST_ENDPOINT");
  found.ca_file = variable("DELTAWIRE_RGW_CA_FILE");
  make_bucket(kBucket, {.endpoint = found.endpoint});
  return &found;
}

}  // namespace

void make_bucket(const std::string& bucket, const StoreOptions& options) {
  const MemoryBody body("");
  s3::Request request;
  request.method = "PUT";
  request.body = {&body, 0, 0};
  const auto answer = must(must(s3::Client::make(bucket, options))->send(request));
  if (!answer.ok() && answer.status != 409) ADD_FAILURE() << answer.text;
}

// "export NAME=VALUE" lines.
bool load_server(const char* folder_variable) {
  const std::string folder = variable(folder_variable);
  if (folder.empty()) return false;
  std::ifstream file(folder + "/env");
  for (std::string line; std::getline(file, line);) {
    const size_t start = line.find(' ') + 1, equals = line.find('=');
    if (equals == line.npos) continue;
    ::setenv(line.substr(start, equals - start).c_str(), line.substr(equals + 1).c_str(), 1);
  }
  ::unsetenv("AWS_SESSION_TOKEN");
  return file.eof();
}

const Gateway* gateway() {
  static const Gateway* const found = find();
  return found;
}

StoreOptions gateway_options() { return {.endpoint = gateway()->endpoint}; }

std::shared_ptr<Store> open_fresh_store(const StoreOptions& options) {
  std::random_device random;
  const std::string prefix = "test-" + std::to_string(random()) + "-" + std::to_string(random());
  return must(open_s3_store(kBucket, prefix, options));
}

OwnGateway start_own_gateway() {
  OwnGateway own;
  const std::string command =
      std::string(DELTAWIRE_TESTS_DIR "/servers/rgw gateway ") + gateway()->folder;
  FILE* const pipe = ::popen(command.c_str(), "r");
  char endpoint[64] = "";
  if (pipe == nullptr || std::fscanf(pipe, "%63s %d", endpoint, &own.pid) != 2) own.pid = 0;
  if (pipe != nullptr) ::pclose(pipe);
  own.endpoint = endpoint;
  return own;
}

}  // namespace deltawire::testing
