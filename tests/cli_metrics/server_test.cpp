#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cli/metrics.h"
#include "cli_metrics/exposition.h"
#include "test_files.h"

namespace deltawire::cli {
namespace {

using testing::is_failure;
using testing::parse_exposition;

// ---- a client on plain sockets: a test controls every byte that it sends

int connect_to(uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

std::string read_all(int fd) {
  std::string reply;
  char buffer[4096];
  for (ssize_t n = 0; (n = ::recv(fd, buffer, sizeof buffer, 0)) > 0;)
    reply.append(buffer, size_t(n));
  ::close(fd);
  return reply;
}

bool sends(int fd, const std::string& request) {
  return ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == ssize_t(request.size());
}

std::string ask(uint16_t port, const std::string& request) {
  const int fd = connect_to(port);
  EXPECT_TRUE(sends(fd, request));
  return read_all(fd);
}

std::unique_ptr<HttpServer> serve(const std::string& text) {
  auto server = serve_metrics("127.0.0.1", 0, [text] { return text; });
  EXPECT_TRUE(server.ok()) << server.status().to_string();
  return std::move(server).value();
}

TEST(MetricsServer, AnswersScrapes) {
  const auto server = serve("a 1\n");
  EXPECT_NE(server->port(), 0);
  for (int i = 0; i < 3; ++i) {
    const std::string reply = ask(server->port(), "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 200 OK\r\n")) << reply;
    EXPECT_TRUE(reply.ends_with("\r\n\r\na 1\n")) << reply;
    for (const char* header : {"Content-Type: text/plain; version=0.0.4; charset=utf-8",
                               "Content-Length: 4", "Connection: close"}) {
      EXPECT_NE(reply.find(std::string("\r\n") + header + "\r\n"), reply.npos) << reply;
    }
  }
}

TEST(MetricsServer, SendsLargeResponsesWhole) {
  const std::string text(8 << 20, 'x');
  const auto server = serve(text);
  const std::string reply = ask(server->port(), "GET /metrics?x=y HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(reply.ends_with("\r\n\r\n" + text)) << reply.size();
}

TEST(MetricsServer, RejectsUnknownRequests) {
  const auto server = serve("a 1\n");
  const auto status = [&](const std::string& request) {
    return ask(server->port(), request).substr(0, 12);
  };
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(status("HEAD /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 200");
  EXPECT_EQ(status("GET /other HTTP/1.1\r\n\r\n"), "HTTP/1.1 404");
  EXPECT_EQ(status("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), "HTTP/1.1 405");
  EXPECT_EQ(status("hello\r\n\r\n"), "HTTP/1.1 400");
  EXPECT_EQ(status("GET /metrics\r\n\r\n"), "HTTP/1.1 400");
  EXPECT_EQ(status("GET /" + std::string(9000, 'x') + " HTTP/1.1\r\n\r\n"), "HTTP/1.1 414");
  EXPECT_TRUE(ask(server->port(), "HEAD /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n"));
}

TEST(MetricsServer, RejectsEndlessHeaders) {
  const auto server = serve("a 1\n");
  const int fd = connect_to(server->port());
  const std::string header = "X-Header: " + std::string(4000, 'x') + "\r\n";
  std::string request = "GET / HTTP/1.1\r\n";
  for (int i = 0; i < 100; ++i) request += header;
  sends(fd, request);
  EXPECT_TRUE(read_all(fd).starts_with("HTTP/1.1 400"));
}

TEST(MetricsServer, SilentClientsDoNotBlockOthers) {
  const auto server = serve("a 1\n");
  std::vector<int> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(connect_to(server->port()));
  EXPECT_TRUE(ask(server->port(), "GET /metrics HTTP/1.1\r\n\r\n").ends_with("a 1\n"));
  for (const int fd : silent) ::close(fd);
}

// More connections than slots: later ones are served when the silent ones time out.
TEST(MetricsServer, DisconnectsSilentClients) {
  const auto server = serve("a 1\n");
  std::vector<int> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(connect_to(server->port()));
  EXPECT_TRUE(ask(server->port(), "GET /metrics HTTP/1.1\r\n\r\n").ends_with("a 1\n"));
  EXPECT_EQ(read_all(silent[0]), "");
  for (size_t i = 1; i < silent.size(); ++i) ::close(silent[i]);
}

TEST(MetricsServer, StopsWithConnectionsOpen) {
  auto server = serve("a 1\n");
  const int fd = connect_to(server->port());
  server.reset();
  EXPECT_EQ(read_all(fd), "");
}

TEST(MetricsServer, ReportsWhyItCannotListen) {
  const auto first = serve("");
  const auto render = [] { return std::string(); };
  EXPECT_FAILS(serve_metrics("127.0.0.1", first->port(), render), kIo, "127.0.0.1",
               std::to_string(first->port()), "in use");
  EXPECT_FAILS(serve_metrics("localhost", 0, render), kInvalidArgument, "localhost");
}

TEST(MetricsServer, ListensOnIPv6) {
  const auto server = serve_metrics("::1", 0, [] { return std::string(); });
  if (!server.ok()) GTEST_SKIP() << server.status().to_string();
  EXPECT_NE((*server)->port(), 0);
}

HttpSettings with_bodies() {
  HttpSettings settings{.name = "test", .max_body_bytes = 100};
  settings.refuse = [](int status, const std::string& why) {
    return HttpReply{status, "text/plain", why};
  };
  return settings;
}

TEST(HttpServer, ReadsBodiesWithinLimits) {
  std::vector<std::string> got;
  auto server = HttpServer::start("127.0.0.1", 0, with_bodies(), [&](const HttpCall& message) {
    got = {message.method, message.path, message.content_type, message.body};
    return HttpReply{200, "text/plain", "done"};
  });
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const auto post = [&](const std::string& headers, const std::string& body) {
    return ask((*server)->port(), "POST /pull?x=y HTTP/1.1\r\n" + headers + "\r\n" + body)
        .substr(0, 12);
  };
  EXPECT_EQ(post("content-TYPE:  application/json\r\nContent-Length: 7\r\n", "{\"a\":1}"),
            "HTTP/1.1 200");
  EXPECT_EQ(got, (std::vector<std::string>{"POST", "/pull", "application/json", "{\"a\":1}"}));
  EXPECT_EQ(post("Content-Length: 101\r\n", std::string(101, 'x')), "HTTP/1.1 413");
  EXPECT_EQ(post("Content-Length: 99999999\r\n", std::string(10000, 'x')), "HTTP/1.1 413");
  EXPECT_EQ(post("Content-Length: -1\r\n", ""), "HTTP/1.1 400");
  EXPECT_EQ(post("Content-Length: 1\r\nContent-Length: 1\r\n", "x"), "HTTP/1.1 400");
  EXPECT_EQ(post("", ""), "HTTP/1.1 411");
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n\r\n"), "HTTP/1.1 411");
  EXPECT_EQ(post("Content-Encoding: gzip\r\nContent-Length: 1\r\n", "x"), "HTTP/1.1 415");
}

TEST(HttpServer, SlowReadersDoNotBlockOthers) {
  std::atomic<bool> go = false;
  std::atomic<int> num_slow = 0;
  auto server = HttpServer::start("127.0.0.1", 0, with_bodies(), [&](const HttpCall& message) {
    num_slow += message.path == "/slow";
    while (message.path == "/slow" && !go) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return HttpReply{200, "text/plain", message.body};
  });
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  const uint16_t port = (*server)->port();
  const int slow = connect_to(port);
  const std::string request = "POST /slow HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody";
  ASSERT_TRUE(sends(slow, request));
  EXPECT_TRUE(ask(port, "GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200"));
  go = true;
  EXPECT_TRUE(read_all(slow).ends_with("\r\n\r\nbody"));
  // A request that is being handled when the server stops still gets its answer.
  go = false;
  const int last = connect_to(port);
  ASSERT_TRUE(sends(last, request));
  while (num_slow < 2) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::thread end([&] { server->reset(); });
  go = true;
  EXPECT_TRUE(read_all(last).ends_with("\r\n\r\nbody"));
  end.join();
}

TEST(MetricsServer, RendersEveryMetricInValidFormat) {
  Metrics all;
  PublishReport publish;
  publish.version = 12;
  publish.num_elements = 1000;
  publish.num_changed = 12;
  publish.bytes = 345;
  publish.num_added = 38;
  publish.num_removed = 128;
  publish.phases = {{"encode", 0, 0.5}, {"upload", 0.1, 0.7}};
  record_publish(publish, all);
  PullReport pull;
  pull.version = 11;
  pull.changed = pull.repaired = true;
  pull.num_hops = 3;
  pull.bytes = 1 << 20;
  pull.phases = {{"fetch", 0, 1}};
  record_pull(pull, all);
  record_failure("pull", base_mismatch("x"), all);
  record_lag(14, 11, all);
  NotifyOutcome outcome;
  outcome.engines.resize(2);
  outcome.engines[0].engine = "sglang=http://h:1";
  outcome.engines[0].serving = Identity{"run", 11, ""};
  outcome.engines[0].reloaded = true;
  outcome.engines[1].engine = "exec=say \"hi\" \\ there";
  outcome.engines[1].status = unavailable("y");
  record_engines(outcome, all);

  auto server = serve_metrics("127.0.0.1", 0, [&] { return all.render(); });
  ASSERT_TRUE(server.ok());
  const std::string reply = ask((*server)->port(), "GET /metrics HTTP/1.1\r\n\r\n");
  const auto got = parse_exposition(reply.substr(reply.find("\r\n\r\n") + 4));
  EXPECT_EQ(got.problem, "") << reply;
  const auto value = [&](const std::string& name) {
    const auto found = got.samples.find(name);
    EXPECT_NE(found, got.samples.end()) << name << "\n" << reply;
    return found == got.samples.end() ? -1 : found->second;
  };
  EXPECT_EQ(value("deltawire_version"), 11);
  EXPECT_EQ(value("deltawire_head_version"), 14);
  EXPECT_EQ(value("deltawire_lag_versions"), 3);
  EXPECT_EQ(value("deltawire_last_density"), 0.012);
  EXPECT_EQ(value("deltawire_published_bytes_total"), 345);
  EXPECT_EQ(value(R"(deltawire_schema_changes_total{change="added"})"), 38);
  EXPECT_EQ(value(R"(deltawire_schema_changes_total{change="removed"})"), 128);
  EXPECT_EQ(value(R"(deltawire_schema_changes_total{change="reshaped"})"), 0);
  EXPECT_EQ(value("deltawire_repairs_total"), 1);
  EXPECT_EQ(value("deltawire_recoveries_total"), 0);
  EXPECT_EQ(value(R"(deltawire_phase_seconds_count{operation="publish",phase="upload"})"), 1);
  EXPECT_EQ(value(R"(deltawire_failures_total{operation="pull",code="base mismatch"})"), 1);
  EXPECT_EQ(value(R"(deltawire_engine_version{engine="sglang=http://h:1"})"), 11);
  EXPECT_TRUE(std::isnan(value(R"(deltawire_engine_version{engine="exec=say \"hi\" \\ there"})")));
}

TEST(Exposition, ReaderRejectsInvalidText) {
  const std::string head = "# HELP a h\n# TYPE a gauge\n";
  EXPECT_EQ(parse_exposition(head + "a 1\n").problem, "");
  for (const char* bad : {"a 1", "a\n", "a  1\n", "a 1 \n", "a{} 1\n", "a{b=c} 1\n", "a 0x1\n",
                          "a{b=\"\n\"} 1\n", "b 1\n", "\n", "a 1\na 1\n", "# TYPE a gauge\n"}) {
    EXPECT_NE(parse_exposition(head + bad).problem, "") << bad;
  }
  EXPECT_NE(parse_exposition("# HELP a h\n# TYPE a counter\na 1\n").problem, "");
}

TEST(Lag, CountsVersionsBehindTheHead) {
  const auto lag = [](std::optional<uint64_t> head, std::optional<uint64_t> version) {
    Metrics m;
    record_lag(head, version, m);
    const auto samples = parse_exposition(m.render()).samples;
    const auto found = samples.find("deltawire_lag_versions");
    return found == samples.end() ? -1 : found->second;
  };
  EXPECT_EQ(lag(5, 5), 0);
  EXPECT_EQ(lag(5, 3), 2);
  EXPECT_EQ(lag(5, std::nullopt), 6);
  EXPECT_TRUE(std::isnan(lag(5, 7)));  // the store has lost versions: there is no lag to tell
  EXPECT_EQ(lag(std::nullopt, 3), -1);
}

}  // namespace
}  // namespace deltawire::cli
