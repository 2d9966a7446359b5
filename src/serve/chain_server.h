// Serves a chain over HTTP, to be read by stores at http:// and https:// (docs/transports.md).
//
//   auto server = ChainServer::start(store, {.address = "10.0.0.1:8410", .token = token});
//   auto replica = Replica::open(open_store("http://10.0.0.1:8410", …), "ckpt");   // anywhere
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/secret.h"
#include "deltawire/store.h"
#include "http/http_server.h"
#include "serve/api/page_api.h"

namespace deltawire {

struct ServeOptions {
  std::string address = "127.0.0.1:0";  // to listen on; port 0: any
  // Clients need the token or a certificate of `tls->client_ca`. Without either, the server may
  // listen on loopback only.
  Secret token = {};
  std::optional<TlsFiles> tls = {};
  size_t max_connections = 1024;
  // Returns the URL of the server that holds an object; readers are redirected there. Empty: this
  // server.
  std::function<std::string(std::string_view name)> holder = {};
  double poll_seconds = 1;               // polling interval for a store without notifications
  std::optional<PageOptions> page = {};  // none: no page, no API, no metrics
};

// Authorised clients can read all objects and write heartbeats only. Thread-safe.
class ChainServer {
 public:
  // InvalidArgument: a malformed address, or one open to everyone. Io: it cannot be bound.
  static Result<std::unique_ptr<ChainServer>> start(std::shared_ptr<Store> store,
                                                    ServeOptions options);
  virtual ~ChainServer() = default;  // finishes running requests

  virtual std::string url() const = 0;  // "http://10.0.0.1:8410"
  // Answers a call as if it came over the network.
  virtual HttpReply reply(const HttpCall& call) = 0;
};

}  // namespace deltawire
