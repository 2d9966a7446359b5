#include <atomic>
#include <thread>

#include "cli/http/request.h"
#include "cli/http/server.h"
#include "cli_metrics/connections.h"
#include "test_files.h"

namespace deltawire::cli {
namespace {

using testing::ask;
using testing::connect_to;
using testing::read_all;

RequestHead parse(const std::string& text, size_t limit = 100) {
  return parse_request_head(text + "\r\n\r\n", limit);
}

TEST(HttpRequest, IsReadWithLimits) {
  const auto head = parse(
      "POST /pull?x=y HTTP/1.1\r\nHost: a\r\ncontent-TYPE:  application/json \r\n"
      "Content-Length: 7");
  EXPECT_EQ(head.refusal, "");
  EXPECT_EQ(head.message.method, "POST");
  EXPECT_EQ(head.message.path, "/pull");
  EXPECT_EQ(head.message.content_type, "application/json");
  EXPECT_EQ(head.body_bytes, 7u);
  EXPECT_EQ(parse("GET / HTTP/1.0").body_bytes, 0u);
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nContent-Length: 999", 0).refusal, "") << "nobody reads it";
}

TEST(HttpRequest, NamesWhatItRefuses) {
  for (const char* text :
       {"", "GET /", "GET / FTP/1", "POST / HTTP/1.1\r\nnonsense",
        "POST / HTTP/1.1\r\nContent-Length: x", "POST / HTTP/1.1\r\nContent-Length: -1",
        "POST / HTTP/1.1\r\nContent-Length: 18446744073709551616",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1"}) {
    EXPECT_EQ(parse(text).refusal, "400 Bad Request") << text;
  }
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nContent-Length: 101").refusal, "413 Content Too Large");
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nTransfer-Encoding: chunked").refusal, "411 Length Required");
}

TEST(HttpServer, SlowAnswersHoldUpNobody) {
  std::atomic<bool> go = false;
  std::atomic<int> num_slow = 0;
  HttpSettings settings;
  settings.name = "test";
  settings.max_body_bytes = 100;
  settings.refuse = [](std::string_view status, std::string_view why) {
    return HttpAnswer{std::string(status), "text/plain", std::string(why)};
  };
  auto server = HttpServer::start("127.0.0.1", 0, settings, [&](const HttpMessage& message) {
    num_slow += message.path == "/slow";
    while (message.path == "/slow" && !go) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return HttpAnswer{"200 OK", "text/plain", message.body};
  });
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const uint16_t port = (*server)->port();
  const int slow = connect_to(port);
  const std::string request = "POST /slow HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody";
  ASSERT_EQ(::send(slow, request.data(), request.size(), MSG_NOSIGNAL), ssize_t(request.size()));
  EXPECT_TRUE(ask(port, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
  go = true;
  EXPECT_TRUE(read_all(slow).ends_with("\r\n\r\nbody"));
  // Whoever waits when the server ends still gets an answer.
  go = false;
  const int last = connect_to(port);
  ASSERT_EQ(::send(last, request.data(), request.size(), MSG_NOSIGNAL), ssize_t(request.size()));
  while (num_slow < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::thread end([&] { server->reset(); });
  go = true;
  EXPECT_TRUE(read_all(last).ends_with("\r\n\r\nbody"));
  end.join();
}

}  // namespace
}  // namespace deltawire::cli
