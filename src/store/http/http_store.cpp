#include "store/http_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/bytes.h"
#include "store/bodies.h"
#include "store/http/ahead_objects.h"
#include "store/http/answers.h"
#include "store/http/client.h"
#include "store/push_source.h"

namespace deltawire {
namespace http {
namespace {

constexpr double kPollSeconds = 30;  // that a question for news waits on the server
constexpr double kMaxPauseSeconds = 5;

class HttpStore final : public Store, public PushSource {
 public:
  HttpStore(std::unique_ptr<Client> client, const StoreOptions& options)
      : client_(std::move(client)), options_(options), slots_(options.connections) {}

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

  Result<ObjectInfo> stat(std::string_view name) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    Result<ObjectInfo> info = head(name);
    if (!info.ok()) return at(name, std::move(info).status());
    return info;
  }

  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    std::string text;
    Request request{.target = object(name)};
    request.moved_bytes = std::min(max_bytes, options_.multipart_bytes);
    request.on_bytes = take_text(max_bytes, &text);
    DW_RETURN_IF_ERROR(at(name, client_->send_ok(request).status()));
    return text;
  }

  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    uint64_t end;
    if (!checked_add(offset, out.size(), &end) || end > uint64_t(INT64_MAX)) {
      return at(name, corruption("the object ends before byte " + std::to_string(offset)));
    }
    if (out.empty()) {
      DW_ASSIGN_OR_RETURN(const ObjectInfo info, stat(name));
      if (offset <= info.size_bytes) return {};
      return at(name, corruption("the object ends at byte " + std::to_string(info.size_bytes)));
    }
    SpanSink sink(out);
    return at(name, fetch(name, offset, out.size(), kAnySize, &sink));
  }

  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    if (const auto body = ahead_.find(name); body && body->size() == size_bytes) {
      ahead_.drop(name);  // who asks once more found it damaged
      return copy_body(*body, sink);
    }
    if (size_bytes > 0) {
      return at(name, fetch(name, 0, size_bytes, size_bytes, sink));
    }
    DW_ASSIGN_OR_RETURN(const ObjectInfo info, stat(name));
    if (info.size_bytes == 0) return {};
    return at(name, corruption("expected 0 bytes, got " + std::to_string(info.size_bytes)));
  }

  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override {
    DW_RETURN_IF_ERROR(check_object_prefix(prefix));
    DW_RETURN_IF_ERROR(check_object_prefix(start_after));
    const Request request{.target = std::string(kObjectsPath) + "?prefix=" + std::string(prefix) +
                                    "&after=" + std::string(start_after) +
                                    "&limit=" + std::to_string(std::min(limit, kMaxListed))};
    Result<HttpAnswer> answer = client_->send_ok(request);
    if (!answer.ok()) return std::move(answer).status().at(url());
    Result<std::vector<ObjectInfo>> found = parse_listing(answer->text, limit);
    if (!found.ok()) return std::move(found).status().at(url());
    for (const ObjectInfo& one : *found) {
      if (one.name.starts_with(prefix) && one.name > start_after) continue;
      return corruption("a listing of other objects than were asked for").at(url());
    }
    return found;
  }

  Status remove(std::string_view name) override {
    DW_RETURN_IF_ERROR(check_object_name(name));
    return at(name, client_->send_ok({.method = "DELETE", .target = object(name)}).status());
  }

  Result<int64_t> clock() override {
    Result<HttpAnswer> answer = client_->send({.method = "HEAD", .target = kNewsPath});
    if (!answer.ok()) return std::move(answer).status().at(url());
    const int64_t now = parse_http_date(answer->header("date"));
    return now > 0 ? Result<int64_t>(now) : Store::clock();
  }

  // A thread asks the server, from the first call on: each question waits there for news.
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
  Status at(std::string_view name, Status status) const {
    if (status.ok()) return status;
    return std::move(status).at(url() + ": object " + std::string(name));
  }

  Result<ObjectInfo> head(std::string_view name) {
    DW_ASSIGN_OR_RETURN(const HttpAnswer answer,
                        client_->send_ok({.method = "HEAD", .target = object(name)}));
    ObjectInfo info;
    info.name = name;
    DW_ASSIGN_OR_RETURN(info.size_bytes, content_length(answer));
    info.modified = parse_http_date(answer.header("last-modified"));
    return info;
  }

  Status fetch(std::string_view name, uint64_t offset, uint64_t size, uint64_t object_size,
               Sink* sink) {
    const Pieces pieces = Pieces::cut(size, options_.connections, kMinDownloadPiece,
                                      options_.multipart_bytes, ~uint64_t{0});
    RangeSource source;
    source.send = [&](RangeSource::Headers headers, uint64_t length, RangeSource::OnBytes on_bytes,
                      const std::atomic<bool>* cancelled) {
      Request request{.target = object(name), .headers = std::move(headers)};
      request.moved_bytes = length;
      request.on_bytes = std::move(on_bytes);
      request.cancelled = cancelled;
      return client_->send(request);
    };
    source.failure = [this](const HttpAnswer& answer) { return client_->failure(answer); };
    return download_in_pieces(source, &slots_, offset, pieces, object_size, options_.connections,
                              PieceRetries::at_most(options_.retries), sink);
  }

  // ---- news

  void listen() {
    std::string seen = "0";
    double pause = 0.1;
    while (!ending_) {
      Request request{.target = std::string(kNewsPath) + "?after=" + seen +
                                "&wait=" + std::to_string(int(kPollSeconds))};
      if (options_.max_bytes_per_second == 0) {  // what is fetched ahead goes around the limit
        request.target += "&part=" + std::to_string(ahead_.last_number());
      }
      request.extra_seconds = kPollSeconds;
      const Result<HttpAnswer> answer = client_->send_ok(request);
      Result<NewsAnswer> told = answer.ok() ? parse_news(answer->text) : answer.status();
      if (!told.ok()) {
        rest(pause);
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
  void rest(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (!ending_ && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  const std::unique_ptr<Client> client_;
  const StoreOptions options_;
  Slots slots_;
  AheadObjects ahead_;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t news_ = 0, announced_ = 0;  // how often there were some
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
