#include "serve/chain_server.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "calls.h"
#include "serve/rank_store.h"
#include "store/memory_store.h"
#include "stores.h"

namespace deltawire::python {
namespace {

using ServerHandle = Owned<std::unique_ptr<ChainServer>>;

void start_server(ServerHandle* self, const StoreHandle& store, const std::string& address,
                  const std::string& token, const std::string& tls_cert, const std::string& tls_key,
                  const std::string& client_ca, const std::vector<std::string>& holders,
                  bool page) {
  ServeOptions options{.address = address, .token = Secret(token)};
  if (page) options.page = PageOptions{};
  if (!holders.empty()) {
    options.holder = [holders](std::string_view name) { return url_of_holder(holders, name); };
  }
  if (!tls_cert.empty() || !tls_key.empty() || !client_ca.empty()) {
    options.tls = TlsFiles{tls_cert, tls_key, client_ca};
  }
  new (self) ServerHandle("the server", nb::none(), [&](const Progress&) {
    return ChainServer::start(store.get(), options);
  });
}

std::string url_of(ServerHandle& self) {
  return unwrap(self.call(
      [](std::unique_ptr<ChainServer>& server) -> Result<std::string> { return server->url(); }));
}

}  // namespace

void bind_serve(nb::module_& module) {
  bind_owned<std::unique_ptr<ChainServer>>(module, "ChainServer")
      .def("__init__", &start_server, nb::arg("store"), nb::arg("address"), nb::arg("token"),
           nb::arg("tls_cert"), nb::arg("tls_key"), nb::arg("client_ca"),
           nb::arg("holders") = std::vector<std::string>(), nb::arg("page") = false)
      .def_prop_ro("url", &url_of)
      .def("close", &ServerHandle::close);
  module.def("memory_store", [](const std::string& name) {
    return StoreHandle(std::make_shared<MemoryStore>(name));
  });
  module.def(
      "open_rank_store",
      [](unsigned rank, const StoreHandle& own, const std::vector<std::string>& urls,
         const std::string& token, const std::string& ca_file, const std::string& client_cert) {
        StoreOptions options;
        options.token = token;
        options.ca_file = ca_file;
        options.client_cert = client_cert;
        return StoreHandle(
            unwrap(without_gil([&] { return open_rank_store(rank, own.get(), urls, options); })));
      },
      nb::arg("rank"), nb::arg("own"), nb::arg("urls"), nb::arg("token"), nb::arg("ca_file"),
      nb::arg("client_cert"));
}

}  // namespace deltawire::python
