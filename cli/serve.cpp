#include "cli/options.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

struct ServeArguments {
  std::vector<std::string> stores;
  StoreOptions store_options;
  std::string trust;
  bool page = true;
  ServerArguments server{.address = "127.0.0.1:8410"};
  LogOptions log;
};

Status serve(const Context& context, const ServeArguments& arguments) {
  std::vector<std::shared_ptr<Store>> stores;
  for (const std::string& url : arguments.stores) {
    DW_ASSIGN_OR_RETURN(auto store, open_store(url, arguments.store_options));
    stores.push_back(std::move(store));
  }
  allow_all_files();
  std::optional<PageOptions> page;
  if (arguments.page) {
    page =
        PageOptions{.more = {stores.begin() + 1, stores.end()}, .keys = {.trust = arguments.trust}};
  } else if (stores.size() > 1) {
    return invalid_argument("more than one store needs the page");
  }
  DW_ASSIGN_OR_RETURN(const auto server,
                      start_server(stores[0], arguments.server, arguments.store_options.token_file,
                                   std::move(page)));
  const auto first = stores[0]->list({}, {}, 1);
  const bool is_empty = first.ok() && first->empty();
  context.print("serving {}{}{} at {}", stores[0]->url(), is_empty ? " (no version yet)" : "",
                arguments.page ? " and a page" : "", server->url());
  context.emit({{"store", stores[0]->url()}, {"url", server->url()}, {"page", arguments.page}});
  flush_out();
  while (!was_interrupted()) sleep_seconds(60);
  return {};
}

}  // namespace

void add_serve(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "serve", "Serve a chain over HTTP, and a page that shows it and its replicas",
      "  deltawire serve /mnt/run7                  a page at http://127.0.0.1:8410\n"
      "  deltawire serve s3://bucket/run7 --listen 10.0.0.1:8410 --token-file token\n"
      "  deltawire follow http://10.0.0.1:8410 ckpt --token-file token");
  auto* const arguments = set_call(verb, context, call, serve);
  verb->add_option("STORE", arguments->stores,
                   "the chain; further stores are shown on the page, but not served")
      ->required();
  add_store_options(verb, &arguments->store_options);
  add_server_options(verb, "--listen", "address to listen on; port 0: any (default 127.0.0.1:8410)",
                     &arguments->server);
  verb->add_flag(
      "--page,!--no-page", arguments->page,
      "a page for browsers at /, its API at /api/v1/, and /metrics for Prometheus (default)");
  verb->add_option("--trust", arguments->trust,
                   "the page shows only records signed by a key in this file");
  add_log_options(verb, &arguments->log);
}

}  // namespace deltawire::cli
