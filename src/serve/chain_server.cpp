#include "serve/chain_server.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/endpoint.h"
#include "chain/heartbeat.h"
#include "chain/names.h"
#include "http/http_client.h"
#include "serve/api/answers.h"
#include "serve/news.h"
#include "store/http_store.h"
#include "store/memory_store.h"

namespace deltawire {
namespace {

constexpr uint64_t kMaxTextBytes = 8 << 20;  // of an object that may be replaced while it is read
constexpr std::chrono::seconds kMaxSeconds{30}, kKeepSeconds{75};
constexpr std::string_view kBearer = "Bearer ";

// Compares in constant time for texts of one length.
bool is_same(std::string_view one, std::string_view other) {
  unsigned difference = one.size() != other.size();
  for (size_t i = 0; i < std::min(one.size(), other.size()); ++i) {
    difference |= unsigned(one[i] ^ other[i]);
  }
  return difference == 0;
}

struct Range {
  uint64_t first = 0, size = 0;
};

// Of "bytes=5-9", "bytes=5-" and "bytes=-5". None: not one range, which the whole answers.
// `size` 0: outside.
std::optional<Range> parse_range(std::string_view text, uint64_t size) {
  constexpr std::string_view kUnit = "bytes=";
  const size_t dash = text.find('-');
  if (!text.starts_with(kUnit) || dash == text.npos) return std::nullopt;
  const std::string_view first = text.substr(kUnit.size(), dash - kUnit.size());
  const std::string_view last = text.substr(dash + 1);
  uint64_t from = 0, to = 0;
  if (first.empty()) {
    if (!parse_number(last, &to)) return std::nullopt;
    const uint64_t length = std::min(to, size);
    return Range{size - length, length};
  }
  if (!parse_number(first, &from)) return std::nullopt;
  to = UINT64_MAX;
  if (!last.empty() && (!parse_number(last, &to) || to < from)) return std::nullopt;
  if (from >= size) return Range{};
  return Range{from, std::min(to, size - 1) - from + 1};
}

bool names(const std::string& header, const std::string& etag) {
  return header == etag || header == "*";
}

// Whether the Host header is an IP address or localhost, which no web site's name is.
bool is_own_name(const std::string& header) {
  const Result<Endpoint> endpoint = parse_endpoint(
      header.ends_with(']') || header.find(':') == header.npos ? header + ":80" : header);
  if (!endpoint.ok()) return false;
  in6_addr address{};
  const char* const host = endpoint->host.c_str();
  return endpoint->host == "localhost" || ::inet_pton(AF_INET, host, &address) == 1 ||
         ::inet_pton(AF_INET6, host, &address) == 1;
}

bool is_guarded(const ServeOptions& options) {
  return !options.token.empty() || (options.tls && !options.tls->client_ca.empty());
}

class Server final : public ChainServer {
 public:
  Server(std::shared_ptr<Store> store, const ServeOptions& options)
      : store_(std::move(store)),
        token_(options.token),
        is_open_(!is_guarded(options)),
        holder_(options.holder),
        news_(store_, options.poll_seconds) {
    if (options.page) page_.emplace(store_, *options.page, options.poll_seconds);
  }
  ~Server() override {
    news_.end();
    if (page_) page_->end();
    server_.reset();
  }

  Status listen(const Endpoint& endpoint, const ServeOptions& options) {
    HttpSettings settings;
    settings.name = "serve";
    settings.max_connections = options.max_connections;
    settings.max_body_bytes = kMaxHeartbeatBytes;
    settings.max_seconds = kMaxSeconds;
    settings.keep_seconds = kKeepSeconds;
    settings.tls = options.tls;
    settings.refuse = refuse;
    settings.check = [this](const HttpCall& call) { return check(call); };
    const std::string host = endpoint.host == "localhost" ? "127.0.0.1" : endpoint.host;
    uint16_t port = 0;
    if (!parse_number(endpoint.port, &port))
      return invalid_argument(endpoint.port + ": not a port");
    DW_ASSIGN_OR_RETURN(server_,
                        HttpServer::start(host, port, std::move(settings),
                                          [this](const HttpCall& call) { return answer(call); }));
    url_ = (options.tls ? "https://" : "http://") + endpoint_text(endpoint.host, server_->port());
    return {};
  }

  std::string url() const override { return url_; }
  HttpReply reply(const HttpCall& call) override {
    std::optional<HttpReply> refused = check(call);
    return refused ? std::move(*refused) : answer(call);
  }

 private:
  using ReadStream = decltype(HttpReply::read_stream);

  // Before anything of a body is read.
  std::optional<HttpReply> check(const HttpCall& call) const {
    if (page_ && PageApi::is_public(call)) return std::nullopt;
    // Prevents DNS rebinding: a web site whose name resolves to this machine could send requests
    // through its visitors' browsers.
    if (is_open_ && !is_own_name(call.header("Host"))) {
      return refuse(403, "without a token, the host must be an IP address or localhost");
    }
    if (!token_.empty()) {
      const std::string given = call.header("Authorization");
      if (!given.starts_with(kBearer) ||
          !is_same(std::string_view(given).substr(kBearer.size()), token_.reveal())) {
        HttpReply reply = refuse(401, "the bearer token is missing or wrong");
        reply.headers.emplace_back("WWW-Authenticate", "Bearer");
        return reply;
      }
    }
    return std::nullopt;
  }

  HttpReply answer(const HttpCall& call) {
    const bool reads = call.method == "GET" || call.method == "HEAD";
    constexpr std::string_view kObjects = kObjectsPath;
    if (page_ && PageApi::has(call.path)) return page_->answer(call);
    if (call.path == kNewsPath && reads) return tell_news(call);
    if (call.path == kObjects && reads) return list(call);
    if (!call.path.starts_with(std::string(kObjects) + "/")) {
      HttpReply reply = refuse(404, "see " + std::string(kObjects) + "/NAME and " + kNewsPath);
      reply.headers.clear();  // no object is missing
      return reply;
    }
    const std::string name = call.path.substr(kObjects.size() + 1);
    if (const Status good = check_object_name(name); !good.ok()) return failed(good);
    if (const std::string elsewhere = reads && holder_ ? holder_(name) : ""; !elsewhere.empty()) {
      HttpReply reply = json_reply(307, Json::object());
      reply.headers.emplace_back("Location", elsewhere + call.path);
      return reply;
    }
    if (reads) return is_immutable_object(name) ? stream(call, name) : whole(call, name);
    if (!name.starts_with(kReplicaPrefix)) return refuse(403, "only heartbeats can be written");
    if (call.method == "PUT") return done(store_->put(name, MemoryBody(call.body)));
    if (call.method == "DELETE") return done(store_->remove(name));
    return refuse(405, call.method + " is not supported");
  }

  static HttpReply done(const Status& status) {
    return status.ok() ? json_reply(200, Json::object()) : failed(status);
  }

  HttpReply tell_news(const HttpCall& call) {
    uint64_t after = 0, after_part = 0, wait = 0;
    const auto number = [&](const char* name, uint64_t* value) {
      const auto found = call.parameters.find(name);
      return found == call.parameters.end() || parse_number(found->second, value);
    };
    if (!number("after", &after) || !number("part", &after_part) || !number("wait", &wait)) {
      return refuse(400, "after, part and wait are numbers");
    }
    const bool wants_parts = call.parameters.contains("part");
    const News::Answer told =
        news_.wait(after, wants_parts ? std::optional(after_part) : std::nullopt,
                   std::min(double(wait), kMaxNewsSeconds));
    Json reply = {{"news", std::to_string(told.news)}};
    if (wants_parts) reply["parts"] = Json::array();
    for (const News::Part& part : told.parts) {
      reply["parts"].push_back({{"number", std::to_string(part.number)},
                                {"name", part.name},
                                {"size", part.size_bytes}});
    }
    return json_reply(200, reply);
  }

  HttpReply list(const HttpCall& call) {
    const auto text = [&](const char* name) {
      const auto found = call.parameters.find(name);
      return found == call.parameters.end() ? std::string() : found->second;
    };
    uint64_t limit = kMaxListed;
    if (!text("limit").empty() && !parse_number(text("limit"), &limit)) {
      return refuse(400, "limit is a number");
    }
    const auto found = store_->list(text("prefix"), text("after"), size_t(limit));
    if (!found.ok()) return failed(found.status());
    Json objects = Json::array();
    for (const ObjectInfo& one : *found) {
      objects.push_back({{"name", one.name}, {"size", one.size_bytes}, {"modified", one.modified}});
    }
    return json_reply(200, {{"objects", std::move(objects)}});
  }

  // Serves a small object that may be replaced, from one consistent read.
  HttpReply whole(const HttpCall& call, const std::string& name) {
    const auto info = store_->stat(name);
    if (!info.ok()) return failed(info.status());
    auto text = store_->get(name, kMaxTextBytes);
    if (!text.ok()) return failed(text.status());
    const auto held = std::make_shared<const std::string>(std::move(*text));
    return object(call, {name, held->size(), info->modified}, "no-cache", from_memory(held));
  }

  HttpReply stream(const HttpCall& call, const std::string& name) {
    const auto info = store_->stat(name);
    if (!info.ok()) return failed(info.status());
    auto* const memory = dynamic_cast<MemoryStore*>(store_.get());  // a decorator may change reads
    const auto held = memory != nullptr ? memory->share(name) : nullptr;
    const auto read = [store = store_, name](uint64_t offset, MutableBytes space) -> Result<Bytes> {
      DW_RETURN_IF_ERROR(store->read(name, offset, space));
      return Bytes(space);
    };
    const bool is_held = held != nullptr && held->size() == info->size_bytes;
    return object(call, *info, "public, max-age=31536000, immutable",
                  is_held ? from_memory(held) : read);
  }

  static ReadStream from_memory(const auto& held) {
    return [held](uint64_t offset, MutableBytes space) -> Result<Bytes> {
      return Bytes(reinterpret_cast<const uint8_t*>(held->data()), held->size())
          .subspan(offset, space.size());
    };
  }

  static HttpReply object(const HttpCall& call, const ObjectInfo& info, const char* caching,
                          ReadStream read) {
    const std::string etag =
        "\"" + std::to_string(info.size_bytes) + "-" + std::to_string(info.modified) + "\"";
    HttpReply reply{.content_type = "application/octet-stream"};
    reply.headers = {{kStoreHeader, "1"},
                     {"Accept-Ranges", "bytes"},
                     {"Cache-Control", caching},
                     {"ETag", etag},
                     {"Last-Modified", http_date(info.modified)}};
    const std::string if_match = call.header("If-Match");
    if (!if_match.empty() && !names(if_match, etag)) return refuse(412, "the object was replaced");
    if (names(call.header("If-None-Match"), etag)) {
      reply.status = 304;
      return reply;
    }
    Range range{0, info.size_bytes};
    if (const auto asked = parse_range(call.header("Range"), info.size_bytes)) {
      const std::string of = "/" + std::to_string(info.size_bytes);
      if (asked->size == 0) {
        reply = refuse(416, "the object has " + std::to_string(info.size_bytes) + " bytes");
        reply.headers.insert(reply.headers.begin(), {"Content-Range", "bytes *" + of});
        return reply;
      }
      range = *asked;
      reply.status = 206;
      reply.headers.emplace_back("Content-Range", "bytes " + std::to_string(range.first) + "-" +
                                                      std::to_string(range.first + range.size - 1) +
                                                      of);
    }
    reply.stream_size = range.size;
    reply.read_stream = [first = range.first, read = std::move(read)](uint64_t offset,
                                                                      MutableBytes space) {
      return read(first + offset, space);
    };
    return reply;
  }

  const std::shared_ptr<Store> store_;
  const Secret token_;
  const bool is_open_;
  const std::function<std::string(std::string_view)> holder_;
  News news_;
  std::optional<PageApi> page_;
  std::string url_;
  std::unique_ptr<HttpServer> server_;  // last: its threads use all of the above
};

}  // namespace

Result<std::unique_ptr<ChainServer>> ChainServer::start(std::shared_ptr<Store> store,
                                                        ServeOptions options) {
  DW_ASSIGN_OR_RETURN(const Endpoint endpoint, parse_endpoint(options.address));
  if (!is_guarded(options) && !is_loopback(endpoint.host)) {
    return invalid_argument(options.address + ": anybody could read the weights there: " +
                            "needs a token or client certificates; without, 127.0.0.1 or ::1");
  }
  auto server = std::make_unique<Server>(std::move(store), options);
  DW_RETURN_IF_ERROR(server->listen(endpoint, options));
  return std::unique_ptr<ChainServer>(std::move(server));
}

}  // namespace deltawire
