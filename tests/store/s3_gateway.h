// The Ceph RADOS Gateway that the tests share: started by tests/servers/rgw.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "deltawire/store.h"

namespace deltawire::testing {

struct Gateway {
  std::string folder;  // of tests/servers/rgw
  std::string endpoint, tls_endpoint, virtual_host_endpoint, ca_file;
};

inline constexpr char kNoGateway[] = "skipped: no Ceph RADOS Gateway (radosgw)";
inline constexpr char kBucket[] = "deltawire-tests";

// Reads DIR/env of the server whose DIR is in this variable; false if there is none.
bool load_server(const char* folder_variable);

// Null if there is none. Otherwise its keys are in the environment and its bucket exists.
const Gateway* gateway();

// In the server's own region; succeeds if the bucket exists.
void make_bucket(const std::string& bucket, const StoreOptions& options);

StoreOptions gateway_options();
// A store under a prefix that no other test uses.
std::shared_ptr<Store> open_fresh_store(const StoreOptions& options);

// One more gateway of the same cluster, for a test that kills it.
struct OwnGateway {
  std::string endpoint;
  int pid = 0;
};
OwnGateway start_own_gateway();

}  // namespace deltawire::testing

#define REQUIRE_GATEWAY()                             \
  if (::deltawire::testing::gateway() == nullptr) {   \
    GTEST_SKIP() << ::deltawire::testing::kNoGateway; \
  }
