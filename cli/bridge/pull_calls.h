// POST /pull_weights, which slime's trainers send to an engine's host after each version, answered
// by an import: when the answer is {"success": true}, the version is in the chain and is served.
// docs/dialects.md has the rules.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/http_server.h"
#include "deltawire/chain.h"
#include "deltawire/manifest.h"
#include "deltawire/status.h"

namespace deltawire::cli {

struct ListenOptions {
  std::string address;               // "HOST:PORT"; empty: nobody listens
  std::vector<std::string> engines;  // that must serve it; none: the call's local replica holds it
  double timeout_seconds = 1800;     // of one call
};
void add_listen_options(Command* verb, Option* follow, ListenOptions* options);

// Between calls, each on a thread of the server, and the one thread that imports. A call waits for
// a look at the source that begins after it came: what the import found before proves nothing.
class PullCalls {
 public:
  using OpenChain = std::function<Result<Chain>()>;

  // `source`: what the import reads, as the command line has it. InvalidArgument: an address or a
  // URL; Io: the address cannot be had.
  static Result<std::unique_ptr<PullCalls>> start(const ListenOptions& options, std::string source,
                                                  OpenChain open_chain);
  ~PullCalls();

  std::string url() const;
  uint16_t port() const noexcept { return server_->port(); }

  // ---- for the import
  uint64_t begin_look();  // pass it to end_look()
  // No further version was found, or why not; `head` is the newest that is imported.
  void end_look(uint64_t begun, const Status& status, std::optional<uint64_t> head);
  // There will be no further look: calls that wait are answered now.
  void end_import(const Status& status, std::optional<uint64_t> head);
  void wait(double seconds);  // less when a call comes, or an interrupt

 private:
  using Clock = std::chrono::steady_clock;

  PullCalls(const ListenOptions& options, std::string source, OpenChain open_chain);
  HttpAnswer answer(const HttpMessage& message);
  Result<uint64_t> pull(const HttpMessage& message);
  Status check_source(const std::string& source) const;
  Status wait_for_import(uint64_t version, Clock::time_point end);
  Status wait_until_served(const Identity& wanted, const std::filesystem::path& local,
                           Clock::time_point end);
  Status ask_engines(const Identity& wanted);
  Status check_open(Clock::time_point end, const std::string& what, const std::string& why);

  const ListenOptions options_;
  const std::string source_;
  const OpenChain open_chain_;
  std::string host_;
  std::atomic<size_t> num_waiting_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t num_calls_ = 0;  // so far
  uint64_t num_begun_ = 0;  // of them, when the last look began
  uint64_t num_seen_ = 0;   // of them, when the last look that ended began
  Status status_;           // of that look
  std::optional<uint64_t> head_;
  bool failed_ = false;  // the import has ended with status_

  std::unique_ptr<HttpServer> server_;  // last: its threads use all of the above
};

}  // namespace deltawire::cli
