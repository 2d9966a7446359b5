// Callers who mean no good: an honest member joins and is heard all the same.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <random>
#include <thread>

#include "carrier/frames.h"
#include "carrier/hub.h"
#include "carrier/net/call.h"
#include "carrier/welcome.h"

namespace deltawire {
namespace {

std::unique_ptr<Hub> guarded_hub(double handshake_timeout_seconds = 3600) {
  return Hub::listen(
             {.secret = Secret("s"), .handshake_timeout_seconds = handshake_timeout_seconds})
      .value();
}

void expect_honest_member(Hub& hub) {
  auto member = Member::join({.hub = hub.address(), .secret = Secret("s"), .name = "honest"});
  ASSERT_TRUE(member.ok()) << member.status().to_string();
  ASSERT_TRUE((*member)->tell("here", 60).ok());
  EXPECT_EQ(hub.hear((*member)->id(), 60).value(), "here");
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
  EXPECT_EQ(Member::join({.hub = listening.address, .secret = Secret("s")}).status().code(),
            Code::kInvalidArgument);
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
}  // namespace deltawire
