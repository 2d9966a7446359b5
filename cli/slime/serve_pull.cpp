#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "base/log.h"
#include "cli/http/server.h"
#include "cli/metrics_options.h"
#include "cli/options.h"
#include "cli/slime/pull_endpoint.h"
#include "cli/slime/pull_options.h"
#include "cli/verbs.h"

namespace deltawire::cli {
namespace {

struct ServePullArguments {
  SlimePullSettings pull;
  MetricsOptions metrics;
  std::vector<std::string> roots;
  std::string host = "127.0.0.1";
  uint16_t port = 30500;
  uint64_t max_body_bytes = 64 << 10;
};

Result<std::vector<std::filesystem::path>> check_roots(const std::vector<std::string>& roots) {
  std::vector<std::filesystem::path> checked;
  for (const std::string& root : roots) {
    std::error_code error;
    const auto real = std::filesystem::canonical(root, error);
    if (error || !std::filesystem::is_directory(real, error)) {
      return invalid_argument("--root " + shown_path(root) + ": there is no such folder");
    }
    checked.push_back(real);
  }
  return checked;
}

int serve_pull(const Context& context, const ServePullArguments& options) {
  start_log(options.pull.log);
  auto roots = check_roots(options.roots);
  if (!roots.ok()) return context.fail(roots.status());
  const auto metrics_server = start_metrics(options.metrics);
  if (!metrics_server.ok()) return context.fail(metrics_server.status());
  const PullEndpoint endpoint(context, options.pull, std::move(*roots));
  HttpSettings settings;
  settings.name = "pull_weights";
  settings.max_body_bytes = size_t(options.max_body_bytes);
  settings.refuse = PullEndpoint::refuse;
  auto server = HttpServer::start(
      options.host, options.port, std::move(settings),
      [&endpoint](const HttpMessage& message) { return endpoint.answer(message); });
  if (!server.ok()) return context.fail(server.status());
  const std::string host =
      options.host.find(':') == std::string::npos ? options.host : "[" + options.host + "]";
  const std::string url = fmt::format("http://{}:{}/pull_weights", host, (*server)->port());
  context.say(fmt::format("listening on {}", url));
  context.emit({{"url", url}, {"port", (*server)->port()}});
  flush_out();
  while (!was_interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return context.succeed();
}

}  // namespace

void add_serve_pull(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "serve-pull", "Answer slime's POST /pull_weights on an engine's host",
      "  deltawire serve-pull --root /shared/updates --root /nvme --base /models/base\n"
      "  curl -H 'Content-Type: application/json' http://127.0.0.1:30500/pull_weights -d \\\n"
      "    '{\"local_checkpoint_dir\": \"/nvme/ckpt\", \"source_dir\": \"/shared/updates\", "
      "\"target_version\": 3}'\n"
      "Ends on SIGINT or SIGTERM. GET /health answers while pulls run.");
  auto options = std::make_shared<ServePullArguments>();
  verb->add_option("--root", options->roots,
                   "a folder that requests may name, and what is below it; repeatable")
      ->required()
      ->repeatable()
      ->type_name("DIR");
  verb->add_option("--host", options->host,
                   "the address to listen on (default 127.0.0.1; 0.0.0.0: all of this machine)")
      ->type_name("ADDRESS");
  add_whole_number(verb, "--port", &options->port,
                   "the port to listen on (default 30500; 0: any that is free)", 0, 65535)
      ->type_name("PORT");
  add_bytes(verb, "--max-body", &options->max_body_bytes,
            "the largest body of a request (default 64KiB)");
  add_slime_pull_options(verb, context, &options->pull, LogLevel::kInfo);
  add_metrics_options(verb, &options->metrics);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return serve_pull(context, *options); };
  });
}

}  // namespace deltawire::cli
