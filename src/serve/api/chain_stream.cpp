// The stream of events of a chain: docs/api.md, "Stream".
#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "serve/api/answers.h"
#include "serve/api/chain_watch.h"

namespace deltawire {
namespace {

constexpr size_t kMostStreams = 128;
constexpr double kQuietSeconds = 15;

}  // namespace

struct ChainWatch::Seen {
  explicit Seen(ChainWatch* watch) : watch_(watch) {}
  ~Seen() {
    const std::lock_guard lock(watch_->mutex_);
    --watch_->num_streams_;
    watch_->changed_.notify_all();
  }
  ChainWatch* const watch_;
  bool greeted = false;
  uint64_t changes = 0, event = 0, revision = 0;
  std::optional<uint64_t> head, first;
  std::string health;
  Json loading;
  double told = 0, told_loading = 0;
};

HttpReply ChainWatch::stream(const HttpCall& call) {
  auto since = number_in(call.parameters, "since");
  if (!since.ok()) return failed(since.status());
  uint64_t last = 0;
  if (parse_number(call.header("Last-Event-ID"), &last)) since = std::optional(last);
  const std::lock_guard lock(mutex_);
  if (num_streams_ >= kMostStreams) return refuse(503, "too many readers of streams");
  if (ending_) return refuse(503, "the server ends");
  ++num_streams_;
  const auto seen = std::make_shared<Seen>(this);
  seen->event = since->value_or(events_.last());
  HttpReply reply{.content_type = "text/event-stream",
                  .headers = {{"Cache-Control", "no-store"}, {"X-Accel-Buffering", "no"}}};
  reply.next_text = [this, seen](std::string* text) { return tell(seen.get(), text); };
  return reply;
}

// Writes what is new since the last call; waits until there is something.
bool ChainWatch::tell(Seen* seen, std::string* text) {
  const auto say = [&](const char* event, const Json& data) {
    if (data.contains("id")) *text += "id: " + data["id"].dump() + "\n";
    *text += "event: " + std::string(event) +
             "\ndata: " + data.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
  };
  std::unique_lock lock(mutex_);
  if (!seen->greeted) {
    seen->greeted = true;
    seen->told = steady_seconds();
    seen->revision = fleet_.revision();
    if (head_) seen->head = head_->version;
    seen->first = first_;
    say("hello", {{"time", unix_seconds_now()},
                  {"last", events_.last()},
                  {"head", or_null(seen->head)},
                  {"revision", seen->revision}});
    return true;
  }
  while (!ending_) {
    changed_.wait_for(lock, std::chrono::seconds(1),
                      [&] { return ending_ || changes_ != seen->changes; });
    seen->changes = changes_;
    for (const ChainEvent& event : events_.after(seen->event, SIZE_MAX))
      say("event", to_json(event));
    seen->event = std::max(seen->event, events_.last());
    const auto head = head_ ? std::optional(head_->version) : std::nullopt;
    if (head != seen->head || first_ != seen->first) {
      seen->head = head;
      seen->first = first_;
      say("head", {{"head", or_null(head)},
                   {"first", or_null(first_)},
                   {"head_created", or_null(head_created())}});
    }
    if (fleet_.revision() != seen->revision) {
      seen->revision = fleet_.revision();
      say("fleet", {{"revision", seen->revision}, {"counts", fleet_.counts()}});
    }
    // A change of the run also counts as a change of health.
    const std::string health_now =
        std::string(health_.state) + health_.text + (chain_ ? chain_->run() : "");
    if (health_now != seen->health) {
      seen->health = health_now;
      say("health", health());
    }
    Json loading_now = loading();
    if (loading_now != seen->loading && steady_seconds() - seen->told_loading >= 1) {
      seen->told_loading = steady_seconds();
      say("loading", loading_now);
      seen->loading = std::move(loading_now);
    }
    if (text->empty() && steady_seconds() - seen->told >= kQuietSeconds) *text = ": still here\n\n";
    if (!text->empty()) {
      seen->told = steady_seconds();
      return true;
    }
  }
  return false;
}

}  // namespace deltawire
