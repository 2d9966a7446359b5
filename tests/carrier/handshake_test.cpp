// Handshakes and frames, without sockets.
#include "carrier/net/handshake.h"

#include <gtest/gtest.h>

#include "carrier/frames.h"

namespace deltawire {
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
    EXPECT_EQ(outcome.answerer.code(), Code::kInvalidArgument);
    EXPECT_EQ(outcome.caller.code(), Code::kInvalidArgument);  // it is told
    EXPECT_FALSE(outcome.both_done);
  }
  auto caller = Handshake::calling(Secret("s"), "rank 1", 0);
  auto answerer = Handshake::answering(Secret("s"), "rank 2");
  EXPECT_EQ(shake(caller, answerer, kNoTamper).answerer.code(), Code::kCorruption);
  auto new_caller = Handshake::calling(Secret("s"), "hub", 0);
  auto old_answerer = Handshake::answering(Secret("s"), "hub");
  const auto other_version = [](int step, std::string& bytes) {
    if (step == 0) bytes[7] = '2';
  };
  EXPECT_EQ(shake(new_caller, old_answerer, other_version).answerer.code(), Code::kUnsupported);
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
  EXPECT_EQ(caller.advance(&reflected, &verdict).code(), Code::kInvalidArgument);
}

TEST(HandshakeTest, NonsenseIsSeenAtOnce) {
  auto answerer = Handshake::answering(Secret("s"), "hub");
  std::string bytes = "GET / HTTP/1.1\r\n", reply;
  EXPECT_EQ(answerer.advance(&bytes, &reply).code(), Code::kCorruption);
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
    EXPECT_EQ(reader.next().status().code(), Code::kCorruption) << at;
  }
  FrameReader skipped(key, 1000);
  skipped.add(second);
  EXPECT_EQ(skipped.next().status().code(), Code::kCorruption);
  FrameReader repeated(key, 1000);
  repeated.add(first + first);
  EXPECT_TRUE(repeated.next().ok());
  EXPECT_EQ(repeated.next().status().code(), Code::kCorruption);
  FrameReader other_key(MacKey{6}, 1000);
  other_key.add(first);
  EXPECT_EQ(other_key.next().status().code(), Code::kCorruption);
}

TEST(Frames, LengthsAreBoundedBeforeAnythingIsHeld) {
  FrameReader reader(MacKey{}, 1000);
  reader.add(std::string("\xff\xff\xff\xff\x01", 5));
  EXPECT_NE(reader.next().status().message().find("4294967295 bytes"), std::string::npos);
  FrameReader kinds(MacKey{}, 1000);
  kinds.add(std::string("\0\0\0\0\x09", 5));
  EXPECT_NE(kinds.next().status().message().find("kind 9"), std::string::npos);
}

}  // namespace
}  // namespace deltawire
