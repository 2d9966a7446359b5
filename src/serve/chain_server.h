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
  // Who may read: those who know the token, or have a certificate of `tls->client_ca`. Without
  // either only loopback may be listened on.
  Secret token = {};
  std::optional<TlsFiles> tls = {};
  size_t max_connections = 1024;
  // The server of an object that is elsewhere, by its name: readers are sent there. Empty: here.
  std::function<std::string(std::string_view name)> holder = {};
  double poll_seconds = 1;  // between looks into a store that does not say when it changes
  std::optional<PageOptions> page = {};  // none: no page, no API, no metrics
};

// Objects can be read by anybody who may ask. Only heartbeats can be written. Thread-safe.
class ChainServer {
 public:
  // InvalidArgument: an address that is none, or open to all. Io: it cannot be bound.
  static Result<std::unique_ptr<ChainServer>> start(std::shared_ptr<Store> store,
                                                    ServeOptions options);
  virtual ~ChainServer() = default;  // answers what was asked, and ends

  virtual std::string url() const = 0;  // "http://10.0.0.1:8410"
  // As if it came over the network.
  virtual HttpReply reply(const HttpCall& call) = 0;
};

}  // namespace deltawire
