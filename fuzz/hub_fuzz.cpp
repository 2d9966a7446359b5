// What a hub reads from strangers and from members, made of arbitrary bytes: a Status or words,
// nothing else, and nothing but the right secret gets through a handshake.
//
//   input = which: one byte | bytes, received in pieces of a size that the first byte tells
#include <cstdlib>
#include <string>

#include "carrier/frames.h"
#include "carrier/net/handshake.h"
#include "carrier/net/socket.h"
#include "carrier/welcome.h"

using namespace deltawire;

namespace {

void expect(bool good) {
  if (!good) std::abort();
}

constexpr uint64_t kMostBytes = 4096;

// Either end, with what arrives in pieces.
void try_handshake(Handshake handshake, std::string_view bytes, size_t piece) {
  (void)handshake.begin();
  std::string received, sent;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    received += bytes.substr(at, piece);
    if (!handshake.advance(&received, &sent).ok()) break;
    expect(!handshake.done());  // 32 random bytes stand in every proof
    expect(received.size() < handshake.wants());
  }
  expect(sent.size() <= 128);
}

void try_words(const Frame& frame) {
  if (const auto hello = read_hello(frame); hello.ok()) {
    expect(check_hello(*hello).ok() && write_hello(*hello) == frame.payload);
  }
  if (const auto welcome = read_welcome(frame); welcome.ok()) {
    expect(write_welcome(*welcome) == frame.payload);
  }
}

void try_frames(std::string_view bytes, size_t piece) {
  FrameReader reader(MacKey{}, kMostBytes);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    reader.add(bytes.substr(at, piece));
    auto frame = reader.next();
    while (frame.ok() && *frame) frame = reader.next();
    if (!frame.ok()) return;
  }
}

// Frames as they should be, with any payload: they come out as they went in.
void try_good_frames(std::string_view bytes, size_t piece) {
  FrameWriter writer(MacKey{});
  FrameReader reader(MacKey{}, kMostBytes);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const std::string_view payload = bytes.substr(at, piece);
    const auto kind = FrameKind(1 + uint8_t(payload[0]) % 5);
    reader.add(writer.write(kind, payload));
    const auto frame = reader.next();
    expect(frame.ok() && *frame && (*frame)->kind == kind && (*frame)->payload == payload);
    try_words(**frame);
  }
}

void try_address(std::string_view text) {
  const auto endpoint = parse_endpoint(text);
  if (!endpoint.ok()) return;
  const auto again =
      parse_endpoint(endpoint_text(endpoint->host, unsigned(std::stoul(endpoint->port))));
  expect(again.ok() && again->host == endpoint->host);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t piece = 1 + data[0] / 5;
  switch (data[0] % 5) {
    case 0:
      try_handshake(Handshake::answering(Secret("s"), "hub"), bytes, piece);
      break;
    case 1:
      try_handshake(Handshake::calling(Secret("s"), "hub", 7), bytes, piece);
      break;
    case 2:
      try_frames(bytes, piece);
      break;
    case 3:
      try_good_frames(bytes, piece);
      break;
    default:
      try_address(bytes);
      break;
  }
  return 0;
}
