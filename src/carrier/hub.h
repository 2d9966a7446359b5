// Who belongs to a group, and what each has to say: small messages beside a carrier's bytes. One
// process is the hub, a publisher's rank 0; the others are members, each with a connection to it.
// A member may come or go at any time; carriers are made, by the hub's word, between versions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/secret.h"
#include "deltawire/status.h"

namespace deltawire {

// No message is longer, in either direction: lengths of a peer are checked before memory is taken.
inline constexpr uint64_t kMaxMessageBytes = uint64_t{16} << 20;

struct HubOptions {
  std::string address = "127.0.0.1:0";  // to listen on; port 0: any
  // What both ends must know; neither sends it (HMAC-SHA-256 of the other's random challenge).
  // Empty: the network decides who may join, and then only loopback may be listened on, unless
  // `open_to_all`.
  Secret secret = {};
  bool open_to_all = false;
  unsigned max_members = 4096;
  double handshake_timeout_seconds = 10;  // a peer that says nothing is let go of
  // A host may vanish without a word. Both ends send heartbeats, five in this time, and take the
  // other for gone when nothing came for so long.
  double silence_seconds = 15;
};

// One that has joined. Ids are never used again.
struct MemberInfo {
  uint64_t id = 0;
  std::string name;   // as it calls itself, for messages; checked: short, printable
  std::string hello;  // its first message
  std::string from;   // address
};

// Thread safety: all calls, from any thread; of hear() one at a time for each member.
class Hub {
 public:
  static Result<std::unique_ptr<Hub>> listen(HubOptions options);
  virtual ~Hub() = default;  // says goodbye to all

  virtual std::string address() const = 0;              // "host:port" to join
  virtual std::vector<MemberInfo> members() const = 0;  // present ones, by id
  // Until so many are present, or the time is over (Unavailable says how many are).
  virtual Status wait_for(size_t num_members, double timeout_seconds) = 0;

  // Unavailable, naming it, when a member goes or is late; a late message may still arrive. One
  // that goes is not present any more: what it said before can still be heard, then why it went.
  // NotFound for a member that never was, or went long ago.
  virtual Status tell(uint64_t member, std::string_view message, double timeout_seconds) = 0;
  virtual Result<std::string> hear(uint64_t member, double timeout_seconds) = 0;
  // Lets it go; `reason` is the last that it hears.
  virtual void dismiss(uint64_t member, std::string_view reason) = 0;
};

struct MemberOptions {
  std::string hub;  // "host:port"
  Secret secret = {};
  std::string name = {};        // empty: host and process
  std::string hello = {};       // first message, at most 64 KiB
  double timeout_seconds = 30;  // to be taken in; the hub may not be there yet
};

// One call of each kind at a time.
class Member {
 public:
  // Unavailable when nobody answers in time or the hub is full; InvalidArgument when the secrets
  // differ.
  static Result<std::unique_ptr<Member>> join(MemberOptions options);
  virtual ~Member() = default;

  virtual uint64_t id() const noexcept = 0;
  virtual Status tell(std::string_view message, double timeout_seconds) = 0;
  // Unavailable when the hub is gone (lost() is true then) or does not answer in time (it is not).
  // Cancelled, with its reason, when it dismissed this member.
  virtual Result<std::string> hear(double timeout_seconds) = 0;
  virtual bool lost() const noexcept = 0;
  virtual void abort() noexcept = 0;        // ends hear() of another thread with Cancelled
  virtual std::string address() const = 0;  // of this end of the connection, "host:port"
};

}  // namespace deltawire
