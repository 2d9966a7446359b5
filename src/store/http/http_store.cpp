#include "store/http_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/text.h"
#include "store/bodies.h"
#include "store/http/ahead_objects.h"
#include "store/http/answers.h"
#include "store/http/client.h"
#include "store/push_source.h"
#include "store/ranged_store.h"

namespace deltawire {
namespace http {
namespace {

constexpr double kPollSeconds = 30;  // a request for news waits this long on the server
constexpr double kMaxPauseSeconds = 5;

class HttpStore final : public RangedStore, public PushSource {
 public:
  HttpStore(std::unique_ptr<Client> client, const StoreOptions& options)
      : RangedStore(options),
        client_(std::move(client)),
        limited_(options.max_bytes_per_second != 0) {}

  ~HttpStore() override {
    ending_ = true;
    client_->end();
    if (listener_.joinable()) listener_.join();
  }

  std::string url() const override { return client_->url(); }
  Result<Capabilities> capabilities() override { return read_only().at(url()); }

  Status put(std::string_view name, const Body& body) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    Request request{.method = "PUT", .target = object(name), .body = &body};
    request.moved_bytes = body.size();
    return at(name, client_->send_ok(request).status());
  }
  Status put_if_absent(std::string_view name, const Body&) override {
    return at(name, read_only());
  }

  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    std::string text;
    Request request{.target = object(name)};
    request.moved_bytes = std::min(max_bytes, piece_bytes_);
    request.on_bytes = take_text(max_bytes, &text);
    DW_RETURN_IF_ERROR(at(name, client_->send_ok(request).status()));
    return text;
  }

  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override {
    const auto body = ahead_.find(name);
    if (!body || body->size() != size_bytes) return RangedStore::download(name, size_bytes, sink);
    ahead_.drop(name);  // a reader that asks again found it damaged
    return copy_body(*body, sink);
  }

  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override {
    DW_RETURN_IF_ERROR(check_object_prefix(prefix));
    DW_RETURN_IF_ERROR(check_object_prefix(start_after));
    const Request request{.target = std::string(kObjectsPath) + "?prefix=" + std::string(prefix) +
                                    "&after=" + std::string(start_after) +
                                    "&limit=" + std::to_string(std::min(limit, kMaxListed))};
    DW_ASSIGN_OR_RETURN(HttpAnswer answer, located(client_->send_ok(request), url()));
    Result<std::vector<ObjectInfo>> found = parse_listing(answer.text, limit);
    if (!found.ok()) return std::move(found).status().at(url());
    for (const ObjectInfo& one : *found) {
      if (one.name.starts_with(prefix) && one.name > start_after) continue;
      return corruption("the listing contains objects that were not requested").at(url());
    }
    return found;
  }

  Status remove(std::string_view name) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    return at(name, client_->send_ok({.method = "DELETE", .target = object(name)}).status());
  }

  Result<int64_t> clock() override {
    DW_ASSIGN_OR_RETURN(HttpAnswer answer,
                        located(client_->send({.method = "HEAD", .target = kNewsPath}), url()));
    const int64_t now = parse_http_date(answer.header("date"));
    return now > 0 ? Result<int64_t>(now) : Store::clock();
  }

  // The first call starts a thread that long-polls the server for news.
  uint64_t wait_for_news(uint64_t seen, double seconds) override {
    std::unique_lock lock(mutex_);
    if (!listener_.joinable()) listener_ = std::thread([this] { listen(); });
    const uint64_t announced = announced_;
    changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                      [&] { return news_ > seen || announced_ > announced; });
    return news_;
  }

  std::vector<SentObject> sent_ahead(uint64_t seen) override {
    return ahead_.after(seen, [this](const std::string& name, std::span<uint8_t> out) {
      SpanSink sink(out);
      if (out.empty()) return invalid_argument("an empty part");
      return fetch(name, 0, out.size(), out.size(), &sink);
    });
  }

 private:
  static Status read_only() {
    return unsupported("can only be read over HTTP; publish to the store that is served");
  }
  static std::string object(std::string_view name) {
    return std::string(kObjectsPath) + "/" + std::string(name);
  }
  Result<HttpAnswer> head(std::string_view name) override {
    return client_->send_ok({.method = "HEAD", .target = object(name)});
  }

  RangeSource source_of(std::string_view name) override {
    RangeSource source;
    source.send = [this, target = object(name)](RangeSource::Headers headers, uint64_t length,
                                                RangeSource::OnBytes on_bytes,
                                                const std::atomic<bool>* cancelled) {
      return client_->send({.target = target,
                            .headers = std::move(headers),
                            .moved_bytes = length,
                            .on_bytes = std::move(on_bytes),
                            .cancelled = cancelled});
    };
    source.failure = [this](const HttpAnswer& answer) { return client_->failure(answer); };
    return source;
  }

  // ---- news

  void listen() {
    std::string seen = "0";
    double pause = 0.1;
    while (!ending_) {
      Request request{.target = std::string(kNewsPath) + "?after=" + seen +
                                "&wait=" + std::to_string(int(kPollSeconds))};
      if (!limited_) {  // objects fetched ahead would not count against the limit
        request.target += "&part=" + std::to_string(ahead_.last_number());
      }
      request.extra_seconds = kPollSeconds;
      const Result<HttpAnswer> answer = client_->send_ok(request);
      Result<NewsAnswer> told = answer.ok() ? parse_news(answer->text) : answer.status();
      if (!told.ok()) {
        sleep_unless(pause, [this] { return ending_.load(); });
        pause = std::min(2 * pause, kMaxPauseSeconds);
        continue;
      }
      pause = 0.1;
      const bool is_news = told->news != seen, is_ahead = !told->parts.empty();
      seen = std::move(told->news);
      if (is_news) ahead_.committed();
      ahead_.announce(std::move(told->parts));
      const std::lock_guard lock(mutex_);
      news_ += is_news;
      announced_ += is_ahead;
      changed_.notify_all();
    }
  }
  const std::unique_ptr<Client> client_;
  const bool limited_;  // a limit of bytes per second applies
  AheadObjects ahead_;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t news_ = 0, announced_ = 0;  // number of notifications
  std::thread listener_;
};

}  // namespace
}  // namespace http

Result<std::shared_ptr<Store>> open_http_store(const std::string& urls,
                                               const StoreOptions& options) {
  DW_ASSIGN_OR_RETURN(auto client, http::Client::make(urls, options));
  return std::shared_ptr<Store>(std::make_shared<http::HttpStore>(std::move(client), options));
}

}  // namespace deltawire
