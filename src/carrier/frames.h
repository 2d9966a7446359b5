// Messages on a connection between a hub and a member, after the handshake: bytes in, messages out,
// no I/O. docs/carriers.md has the layout.
//
//   length (4), kind (1), payload (length), first 16 bytes of HMAC-SHA-256
//
// The key of the HMAC is made of the connection's and of the frame's number: nothing can be put in,
// left out or said again on the way. Nothing is hidden: payloads are readable on the network.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "carrier/net/handshake.h"

namespace deltawire {

enum class FrameKind : uint8_t {
  kMessage = 1,
  kBeat = 2,     // "I am here"
  kGoodbye = 3,  // the last one: why
  kHello = 4,    // a member's first: its name and first message
  kWelcome = 5,  // the hub's first: the member's id, and the silence that counts as death
};

struct Frame {
  FrameKind kind;
  std::string payload;
};

class FrameWriter {
 public:
  explicit FrameWriter(const MacKey& key) : key_(key) {}
  std::string write(FrameKind kind, std::string_view payload);

 private:
  MacKey key_;
  uint64_t number_ = 0;
};

class FrameReader {
 public:
  FrameReader(const MacKey& key, uint64_t max_payload_bytes)
      : key_(key), max_payload_bytes_(max_payload_bytes) {}
  void set_max_payload_bytes(uint64_t bytes) { max_payload_bytes_ = bytes; }

  void add(std::string_view received);
  // Nothing while there is no whole one. Corruption for good: a length too large, a kind that is
  // not known, an HMAC that is wrong.
  Result<std::optional<Frame>> next();

 private:
  MacKey key_;
  uint64_t max_payload_bytes_;
  uint64_t number_ = 0;
  std::string buffer_;
  size_t start_ = 0;
};

}  // namespace deltawire
