// Handshakes and frames, without sockets; callers who mean no good: an honest member joins and is
// heard all the same.
#include <poll.h>
#include <sys/socket.h>

#include "carrier/frames.h"
#include "carrier/hub.h"
#include "carrier/net/call.h"
#include "carrier/net/handshake.h"
#include "carrier/welcome.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

struct Outcome {
  Status caller, answerer;
  bool both_done = false;
};

// Carries bytes back and forth; `tamper(step, bytes)` may change them.
template <class Tamper>
Outcome shake(Handshake& caller, Handshake& answerer, const Tamper& tamper) {
  Outcome outcome;
  std::string to_answerer = caller.begin(), to_caller, to_send;
  for (int step = 0; step < 2; ++step) {
    tamper(step * 2, to_answerer);
    outcome.answerer = answerer.advance(&to_answerer, &to_caller);
    tamper(step * 2 + 1, to_caller);
    to_answerer.clear();
    if (!outcome.answerer.ok() && to_caller.empty()) break;
    outcome.caller = caller.advance(&to_caller, &to_answerer);
    if (!outcome.caller.ok() || !outcome.answerer.ok()) break;
  }
  outcome.both_done = caller.done() && answerer.done();
  return outcome;
}

const auto kNoTamper = [](int, std::string&) {};

TEST(HandshakeTest, EndsWithTheSameKeys) {
  auto caller = Handshake::calling(Secret("s"), "hub", 42);
  auto answerer = Handshake::answering(Secret("s"), "hub");
  const Outcome outcome = shake(caller, answerer, kNoTamper);
  ASSERT_TRUE(outcome.both_done) << outcome.caller.to_string() << outcome.answerer.to_string();
  EXPECT_EQ(answerer.caller(), 42u);
  EXPECT_EQ(caller.key_of_caller(), answerer.key_of_caller());
  EXPECT_EQ(caller.key_of_answerer(), answerer.key_of_answerer());
  EXPECT_NE(caller.key_of_caller(), caller.key_of_answerer());
  EXPECT_EQ(caller.wants(), 0u);
}

TEST(HandshakeTest, OtherSecretsPurposesAndVersionsAreRefused) {
  for (const char* other : {"", "t", "ss"}) {
    auto caller = Handshake::calling(Secret(other), "hub", 0);
    auto answerer = Handshake::answering(Secret("s"), "hub");
    const Outcome outcome = shake(caller, answerer, kNoTamper);
    EXPECT_FAILS(outcome.answerer, kInvalidArgument);
    EXPECT_FAILS(outcome.caller, kInvalidArgument);  // it is told
    EXPECT_FALSE(outcome.both_done);
  }
  auto caller = Handshake::calling(Secret("s"), "rank 1", 0);
  auto answerer = Handshake::answering(Secret("s"), "rank 2");
  EXPECT_FAILS(shake(caller, answerer, kNoTamper).answerer, kCorruption);
  auto new_caller = Handshake::calling(Secret("s"), "hub", 0);
  auto old_answerer = Handshake::answering(Secret("s"), "hub");
  const auto other_version = [](int step, std::string& bytes) {
    if (step == 0) bytes[7] = '2';
  };
  EXPECT_FAILS(shake(new_caller, old_answerer, other_version).answerer, kUnsupported);
}

TEST(HandshakeTest, EveryByteCounts) {
  const size_t sizes[] = {64, 40, 32, 33};
  for (int step = 0; step < 4; ++step) {
    for (size_t at = 0; at < sizes[step]; ++at) {
      auto caller = Handshake::calling(Secret("s"), "hub", 7);
      auto answerer = Handshake::answering(Secret("s"), "hub");
      const auto flip = [&](int now, std::string& bytes) {
        if (now != step) return;
        ASSERT_EQ(bytes.size(), sizes[step]);
        bytes[at] = char(bytes[at] ^ 1);
      };
      const Outcome outcome = shake(caller, answerer, flip);
      EXPECT_FALSE(outcome.both_done) << step << " " << at;
      EXPECT_FALSE(caller.done()) << step << " " << at;
    }
  }
}

TEST(HandshakeTest, OwnWordsThrownBackProveNothing) {
  auto answerer = Handshake::answering(Secret("s"), "hub");
  auto caller = Handshake::calling(Secret("s"), "hub", 0);
  std::string call = caller.begin(), answer, proof, verdict;
  ASSERT_TRUE(answerer.advance(&call, &answer).ok());
  ASSERT_TRUE(caller.advance(&answer, &proof).ok());
  std::string reflected = std::string(1, '\1') + proof;
  EXPECT_FAILS(caller.advance(&reflected, &verdict), kInvalidArgument);
}

TEST(HandshakeTest, NonsenseIsSeenAtOnce) {
  auto answerer = Handshake::answering(Secret("s"), "hub");
  std::string bytes = "GET / HTTP/1.1\r\n", reply;
  EXPECT_FAILS(answerer.advance(&bytes, &reply), kCorruption);
  EXPECT_TRUE(reply.empty());
}

TEST(Frames, ComeOutAsTheyWentIn) {
  const MacKey key{1, 2, 3};
  FrameWriter writer(key);
  std::string bytes;
  for (size_t size = 0; size < 300; ++size) {
    bytes += writer.write(FrameKind::kMessage, std::string(size, char(size)));
  }
  for (const size_t piece : {size_t{1}, size_t{7}, bytes.size()}) {
    FrameReader reader(key, 1000);
    size_t heard = 0;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      reader.add(std::string_view(bytes).substr(at, piece));
      for (auto frame = reader.next(); frame.value(); frame = reader.next()) {
        EXPECT_EQ((*frame)->payload, std::string(heard, char(heard)));
        ++heard;
      }
    }
    EXPECT_EQ(heard, 300u);
  }
}

TEST(Frames, NothingCanBeChangedAddedOrLeftOut) {
  const MacKey key{5};
  FrameWriter writer(key);
  const std::string first = writer.write(FrameKind::kMessage, "first");
  const std::string second = writer.write(FrameKind::kMessage, "second");
  for (size_t at = 0; at < first.size(); ++at) {
    std::string changed = first;
    changed[at] = char(changed[at] ^ 0x40);
    FrameReader reader(key, 1000);
    reader.add(changed + std::string(2000, 'x'));
    EXPECT_FAILS(reader.next(), kCorruption) << at;
  }
  FrameReader skipped(key, 1000);
  skipped.add(second);
  EXPECT_FAILS(skipped.next(), kCorruption);
  FrameReader repeated(key, 1000);
  repeated.add(first + first);
  EXPECT_TRUE(repeated.next().ok());
  EXPECT_FAILS(repeated.next(), kCorruption);
  FrameReader other_key(MacKey{6}, 1000);
  other_key.add(first);
  EXPECT_FAILS(other_key.next(), kCorruption);
}

TEST(Frames, LengthsAreBoundedBeforeAnythingIsHeld) {
  FrameReader reader(MacKey{}, 1000);
  reader.add(std::string("\xff\xff\xff\xff\x01", 5));
  EXPECT_NE(reader.next().status().message().find("4294967295 bytes"), std::string::npos);
  FrameReader kinds(MacKey{}, 1000);
  kinds.add(std::string("\0\0\0\0\x09", 5));
  EXPECT_NE(kinds.next().status().message().find("kind 9"), std::string::npos);
}

std::unique_ptr<Hub> guarded_hub(double handshake_timeout_seconds = 3600) {
  return Hub::listen(
             {.secret = Secret("s"), .handshake_timeout_seconds = handshake_timeout_seconds})
      .value();
}

void expect_honest_member(Hub& hub) {
  auto member = must(Member::join({.hub = hub.address(), .secret = Secret("s"), .name = "honest"}));
  ASSERT_TRUE(member->tell("here", 60).ok());
  EXPECT_EQ(hub.hear(member->id(), 60).value(), "here");
}

Socket call(const Hub& hub, std::string_view first_bytes) {
  Socket socket = connect_to(hub.address(), Deadline(60)).value();
  (void)!::send(socket.get(), first_bytes.data(), first_bytes.size(), MSG_NOSIGNAL);
  return socket;
}

// Until the hub has closed it.
bool is_closed(const Socket& socket) {
  std::string rest;
  for (;;) {
    const auto byte = receive_exactly(socket.get(), 1, Deadline(60), "");
    if (!byte.ok()) return byte.status().message().find("in time") == std::string::npos;
  }
}

TEST(Hostile, NonsenseIsShownOut) {
  const auto hub = guarded_hub();
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    std::string bytes(8 + random() % 200, '\0');
    for (char& c : bytes) c = char(random());
    EXPECT_TRUE(is_closed(call(*hub, bytes)));
  }
  expect_honest_member(*hub);
}

TEST(Hostile, ManyWhoSayNothingOrHalfOfIt) {
  const auto hub = guarded_hub();
  std::vector<Socket> strangers;
  const std::string half = Handshake::calling(Secret("x"), kHubPurpose, 0).begin();
  for (size_t i = 0; i < 600; ++i) strangers.push_back(call(*hub, half.substr(0, i % 64)));
  expect_honest_member(*hub);
  // The places are few: who waited longest has lost his.
  EXPECT_TRUE(is_closed(strangers[0]));
  expect_honest_member(*hub);
}

TEST(Hostile, SilenceEndsWithTheHandshakesTime) {
  const auto hub = guarded_hub(1);
  EXPECT_TRUE(is_closed(call(*hub, "")));
  EXPECT_TRUE(is_closed(call(*hub, "dwgroup1")));
  // Also after the handshake, before the hello.
  const Called called =
      call_until(hub->address(), Secret("s"), kHubPurpose, 0, Deadline(60), "hub").value();
  EXPECT_TRUE(is_closed(called.socket));
  expect_honest_member(*hub);
}

TEST(Hostile, WhoKnowsTheSecretIsBoundedToo) {
  const auto hub = guarded_hub();
  const auto after_handshake = [&](const auto& bytes_of) {
    Called called =
        call_until(hub->address(), Secret("s"), kHubPurpose, 0, Deadline(60), "hub").value();
    FrameWriter writer(called.handshake.key_of_caller());
    EXPECT_TRUE(send_all(called.socket.get(), bytes_of(writer), Deadline(60), "hub").ok());
    EXPECT_TRUE(is_closed(called.socket));
  };
  after_handshake([](FrameWriter&) { return std::string("\xff\xff\xff\xff\x04", 5); });
  after_handshake([](FrameWriter&) { return std::string("\0\0\0\0\0", 5); });
  after_handshake([](FrameWriter&) { return std::string(100, '\1'); });
  after_handshake([](FrameWriter& w) { return w.write(FrameKind::kMessage, "no hello"); });
  after_handshake([](FrameWriter& w) { return w.write(FrameKind::kHello, ""); });
  after_handshake([](FrameWriter& w) { return w.write(FrameKind::kHello, "\x7fshort"); });
  after_handshake([](FrameWriter& w) { return w.write(FrameKind::kHello, "\3a\nb"); });
  after_handshake([](FrameWriter& w) {
    return w.write(FrameKind::kHello, write_hello({"a", ""})) + std::string("\1\0\0\2\1", 5);
  });
  expect_honest_member(*hub);
}

TEST(Hostile, AFalseHubIsNotBelieved) {
  Listening listening = listen_on("127.0.0.1:0").value();
  std::thread false_hub([&] {
    Socket socket;
    while (!socket.ok()) {
      ASSERT_TRUE(wait_for_socket(listening.socket.get(), POLLIN, Deadline(60), "").ok());
      socket = accept_next(listening.socket.get()).value();
    }
    ASSERT_TRUE(receive_exactly(socket.get(), 64, Deadline(60), "").ok());
    ASSERT_TRUE(send_all(socket.get(), "dwgroup1" + std::string(32, 'c'), Deadline(60), "").ok());
    ASSERT_TRUE(receive_exactly(socket.get(), 32, Deadline(60), "").ok());
    ASSERT_TRUE(send_all(socket.get(), '\1' + std::string(32, 'p'), Deadline(60), "").ok());
    is_closed(socket);
  });
  EXPECT_FAILS(Member::join({.hub = listening.address, .secret = Secret("s")}), kInvalidArgument);
  false_hub.join();
}

TEST(Hostile, AThousandConnectionsThatComeAndGo) {
  const auto hub = guarded_hub();
  std::atomic<bool> done{false};
  std::thread flood([&] {
    while (!done) {
      auto socket = connect_to(hub->address(), Deadline(60));
      if (socket.ok()) (void)!::send(socket->get(), "dw", 2, MSG_NOSIGNAL);
    }
  });
  for (int i = 0; i < 20; ++i) expect_honest_member(*hub);
  done = true;
  flood.join();
}

}  // namespace
}  // namespace deltawire::testing
