// Server and client of a chain over HTTP against hostile peers, without sockets.
//
//   input = which: one byte | a request for a server over a memory store, its lines separated by
//           '\n': method, path, Authorization, Range, If-Match, If-None-Match, parameters, body
//         | or an answer to a client: of a listing, of news, or of a range of an object
//
// A server answers with a status, never sends more than the object has, and changes only
// heartbeats; a client returns a Status or the requested bytes.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/text.h"
#include "serve/chain_server.h"
#include "store/http/answers.h"
#include "store/memory_store.h"
#include "store/pieces.h"

using namespace deltawire;

namespace {

void expect(bool good) {
  if (!good) std::abort();
}

constexpr std::string_view kPart = "0123456789abcdef";

std::vector<std::string> lines_of(std::string_view text) {
  const auto found = split_text(text, '\n');
  std::vector<std::string> lines(found.begin(), found.end());
  lines.resize(std::max<size_t>(lines.size(), 16));
  return lines;
}

struct Served {
  explicit Served(ServeOptions options) {
    expect(store->put("parts/0000000001-a/p", MemoryBody(kPart)).ok());
    expect(store->put("HEAD", MemoryBody("1")).ok());
    server = ChainServer::start(store, std::move(options)).value();
  }
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>("fuzz");
  std::unique_ptr<ChainServer> server;
};

void try_server(std::string_view text, bool is_guarded) {
  static auto& open = *new Served({});
  static auto& guarded = *new Served({.token = Secret("a token that no input has")});
  const auto& [store, server] = is_guarded ? guarded : open;
  const auto lines = lines_of(text);
  HttpCall call{lines[0], lines[1], "", lines[8]};
  call.parameters = {{"prefix", lines[5]}, {"after", lines[6]}, {"limit", lines[7]}};
  call.header = [&](const char* name) -> std::string {
    constexpr const char* kNames[] = {"Range", "If-Match", "If-None-Match"};
    for (size_t i = 0; i < std::size(kNames); ++i) {
      if (std::strcmp(name, kNames[i]) == 0) return lines[2 + i];
    }
    return std::strcmp(name, "Authorization") == 0 ? lines[9] : "";
  };
  const HttpReply reply = server->reply(call);
  expect(reply.status >= 200 && reply.status < 500);
  expect(!is_guarded || reply.status == 401);
  if (reply.read_stream) {
    expect(reply.stream_size <= kPart.size());
    std::vector<uint8_t> bytes(reply.stream_size);
    expect(reply.read_stream(0, bytes).ok());
  }
  expect(store->get("parts/0000000001-a/p", 100).value() == kPart);
  expect(store->get("HEAD", 100).value() == "1");
  const auto beats = store->list("replicas/", "", 10);
  for (const ObjectInfo& one : *beats) expect(store->remove(one.name).ok());
}

void try_answers(const std::string& text) {
  if (const auto found = http::parse_listing(text, 3); found.ok()) {
    expect(found->size() <= 3);
    for (const ObjectInfo& one : *found) expect(check_object_name(one.name).ok());
  }
  if (const auto news = http::parse_news(text); news.ok()) {
    for (const auto& part : news->parts) expect(check_object_name(part.name).ok());
  }
}

// The first line is the status, further ones are headers up to an empty one; then the body.
void try_ranges(std::string_view text, bool by_name) {
  const auto lines = lines_of(text);
  RangeSource source;
  source.send = [&](RangeSource::Headers, uint64_t, const RangeSource::OnBytes& on_bytes,
                    const std::atomic<bool>*) -> Result<HttpAnswer> {
    HttpAnswer answer;
    answer.status = std::atoi(lines[0].substr(0, 3).c_str());
    answer.headers = {
        {"content-range", lines[1]}, {"content-length", lines[2]}, {"etag", lines[3]}};
    const std::string& body = lines[4];
    if (answer.ok() && !body.empty()) {
      DW_RETURN_IF_ERROR(
          on_bytes(answer, {reinterpret_cast<const uint8_t*>(body.data()), body.size()}));
    }
    return answer;
  };
  source.failure = [](const HttpAnswer&) { return io_error("refused"); };
  std::vector<uint8_t> out(16);
  SpanSink sink(out);
  Slots slots(1);
  const Status status =
      download_in_pieces(source, &slots, 4, {out.size(), 8}, by_name ? 20 : kAnySize, 1,
                         PieceRetries::at_most(0), &sink);
  // The two halves need two different ranges.
  expect(!status.ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 6) {
    case 0:
    case 1:
      try_server(text, false);
      break;
    case 2:
      try_server(text, true);
      break;
    case 3:
      try_answers(std::string(text));
      break;
    default:
      try_ranges(text, data[0] % 6 == 4);
      break;
  }
  return 0;
}
