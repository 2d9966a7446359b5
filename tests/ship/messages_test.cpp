// Words of peers, of which nothing is believed that was not checked; their heartbeats; objects in
// buckets, and what is kept of them.
#include "ship/messages.h"
#include "base/bytes.h"
#include "chain/heartbeat.h"
#include "ship/beats.h"
#include "ship/buckets.h"
#include "ship/held_objects.h"
#include "ship/object_service.h"
#include "store/bodies.h"
#include "store/forwarding_store.h"
#include "store/memory_store.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

std::string framed(std::string_view head, std::string_view body = "") {
  std::string text(4, '\0');
  store_le(text.data(), uint32_t(head.size()));
  return text.append(head).append(body);
}

TEST(Messages, GoThereAndBack) {
  const Message sent(nlohmann::json{{"ask", 7}, {"op", "stat"}}, std::string("\0body", 5));
  const auto got = must(Message::parse(sent.serialise()));
  EXPECT_EQ(got.number("ask"), 7);
  EXPECT_EQ(got.text("op"), "stat");
  EXPECT_EQ(got.body(), std::string("\0body", 5));
  EXPECT_FALSE(got.number("op").has_value());
  EXPECT_FALSE(got.text("ask").has_value());
  EXPECT_FALSE(got.has("nothing"));
}

TEST(Messages, WhatIsNoneIsRefused) {
  std::string too_long = framed("{}");
  store_le(too_long.data(), UINT32_MAX);
  for (const std::string& bytes : {std::string(), std::string("abc"), too_long, framed("[1]"),
                                   framed("{\"a\":"), framed("\xff\xfe"), framed("")}) {
    EXPECT_FAILS(Message::parse(bytes), kCorruption) << bytes;
  }
}

TEST(Messages, NegativeAndHugeNumbersAreNone) {
  const auto got =
      must(Message::parse(framed(R"({"a":-1,"b":1e300,"c":18446744073709551616,"d":"7"})")));
  for (const char* key : {"a", "b", "c", "d"}) EXPECT_FALSE(got.number(key).has_value()) << key;
}

TEST(Messages, FailuresKeepTheirCode) {
  const Message answer(answer_json(3, not_found("no such thing")));
  EXPECT_FAILS(status_of(answer), kNotFound, "no such thing");
  EXPECT_TRUE(status_of(Message(answer_json(3, {}))).ok());
  // A peer cannot make a failure look like success.
  EXPECT_FAILS(status_of(Message(nlohmann::json{{"code", 0}})), kInternal);
  EXPECT_FAILS(status_of(Message(nlohmann::json{{"code", 999}})), kInternal);
}

// The most that was held of an object at once.
class GetMeter final : public ForwardingStore {
 public:
  GetMeter() : ForwardingStore(std::make_shared<MemoryStore>("served")) {}
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    Result<std::string> text = inner().get(name, max_bytes);
    if (text.ok()) most = std::max<uint64_t>(most, text->size());
    return text;
  }
  uint64_t most = 0;
};

// A replica that asks for a part as if it were a record costs its publisher no more than one
// answer.
TEST(ObjectService, OfALargeObjectGetGivesTheFirstBytes) {
  GetMeter store;
  std::string large(size_t(kAskBytes) + 5, 'x');
  large[0] = 'a';
  ASSERT_TRUE(store.put("parts/a", MemoryBody(large)).ok());
  const auto get = [&](uint64_t length) {
    return answer_ask(store, Message::of({{"op", "get"}, {"name", "parts/a"}, {"length", length}}));
  };
  const Message answer = get(UINT64_MAX);
  EXPECT_LE(store.most, kAskBytes);
  EXPECT_EQ(answer.number("size"), large.size());
  EXPECT_EQ(answer.body(), large.substr(0, size_t(kAskBytes)));
  EXPECT_FAILS(status_of(get(kAskBytes)), kCorruption);
  EXPECT_FAILS(status_of(get(kAskBytes + 4)), kCorruption);
}

TEST(ObjectService, AnswersEveryQuestionWhateverItIs) {
  MemoryStore store("served");
  ASSERT_TRUE(store.put("parts/a", MemoryBody(std::string_view("contents"))).ok());
  const auto ask = [&](const nlohmann::json& head, std::string body = {}) {
    return answer_ask(store, Message::parse(Message(head, std::move(body)).serialise()).value());
  };
  EXPECT_EQ(ask({{"op", "read"}, {"name", "parts/a"}, {"offset", 3}, {"length", 2}}).body(), "te");
  const nlohmann::json bad[] = {
      {{"op", "read"}, {"name", "parts/a"}, {"offset", 3}, {"length", uint64_t{1} << 40}},
      {{"op", "read"}, {"name", "parts/a"}, {"offset", UINT64_MAX}, {"length", 8}},
      {{"op", "read"}, {"name", "../../etc/passwd"}, {"length", 1}},
      {{"op", "stat"}, {"name", ""}},
      {{"op", "stat"}},
      {{"op", 4}, {"name", "parts/a"}},
      {{"op", "format"}, {"name", "parts/a"}},
      {{"op", "put"}, {"name", "parts/a"}},
      {{"op", "put"}, {"name", "replicas/../run.json"}},
      {{"op", "remove"}, {"name", "parts/a"}},
      {{"op", "list"}, {"name", "//"}, {"limit", 3}}};
  for (const nlohmann::json& head : bad) {
    EXPECT_FALSE(status_of(ask(head)).ok()) << head;
  }
  EXPECT_FALSE(status_of(ask({{"op", "put"}, {"name", "replicas/a.json"}},
                             std::string(kMaxPutBytes + 1, 'x')))
                   .ok());
  EXPECT_TRUE(status_of(ask({{"op", "put"}, {"name", "replicas/a.json"}}, "{}")).ok());
  EXPECT_TRUE(status_of(ask({{"op", "remove"}, {"name", "replicas/a.json"}})).ok());
}

TEST(BeatsTest, TheLastOfThemCounts) {
  Beats beats;
  EXPECT_EQ(beats.least(0), std::nullopt);
  beats.note("a", "", 7, 0);
  beats.note("b", "", 5, 1);
  EXPECT_EQ(beats.least(2), 5u);
  beats.note("c", "", {}, 2);
  EXPECT_EQ(beats.least(3), std::nullopt);
  beats.note("c", "", 9, 3);
  beats.note("b", "", 8, 4);
  EXPECT_EQ(beats.least(5), 7u);
}

TEST(BeatsTest, ThoseWhoAreGoneHoldNothingUp) {
  Beats beats;
  beats.note("gone", "g", 1, 0);
  beats.note("removed", "r", 2, 0);
  beats.note("here", "h", 9, 100);
  EXPECT_EQ(beats.least(100), 1u);
  beats.forget("removed");
  beats.forget("nobody");
  EXPECT_EQ(beats.texts(100), (std::map<std::string, std::string>{{"gone", "g"}, {"here", "h"}}));
  const double later = double(kSilentSeconds) + 1;
  EXPECT_EQ(beats.least(later), 9u);
  EXPECT_EQ(beats.texts(later), (std::map<std::string, std::string>{{"here", "h"}}));
}

TEST(Buckets, ObjectsComeOutWholeWhateverTheSizeOfABucket) {
  for (const uint64_t limit : {1U, 7U, 64U, 4096U}) {
    BucketQueue queue(limit);
    std::map<std::string, std::string> sent;
    for (int i = 0; i < 5; ++i)
      sent["o" + std::to_string(i)] = std::string(size_t(i * 37), char('a' + i));
    std::vector<std::thread> threads;
    for (const auto& [name, text] : sent) {
      threads.emplace_back([&queue, n = name, t = text] {
        EXPECT_TRUE(queue.add({}, n, MemoryBody(std::string_view(t))).ok());
      });
    }
    std::thread closer([&] {
      for (std::thread& thread : threads) thread.join();
      queue.commit({"run", 3, {}});
      while (!queue.wait_idle(1)) {
      }
      queue.close();
    });
    std::map<std::string, std::string> got;
    Bucket bucket;
    size_t commits = 0;
    while (queue.take(&bucket)) {
      EXPECT_LE(bucket.bytes.size(), limit);
      size_t at = 0;
      for (const BucketPiece& piece : bucket.pieces) {
        EXPECT_EQ(piece.object_bytes, sent[piece.name].size());
        EXPECT_EQ(piece.offset, got[piece.name].size());
        got[piece.name].append(bucket.bytes.begin() + ptrdiff_t(at),
                               bucket.bytes.begin() + ptrdiff_t(at + piece.length));
        at += piece.length;
      }
      EXPECT_EQ(at, bucket.bytes.size());
      commits += bucket.commits.size();
    }
    closer.join();
    EXPECT_EQ(got, sent);
    EXPECT_EQ(commits, 1);
  }
}

TEST(Buckets, ClosedOnesLetEverybodyGo) {
  BucketQueue queue(4);
  std::thread adder(
      [&] { EXPECT_TRUE(queue.add({}, "o", MemoryBody(std::string_view("too much"))).ok()); });
  queue.close();
  adder.join();
  EXPECT_TRUE(queue.wait_idle(0));
}

constexpr const char* kOne = "parts/0000000001-0123456789ab/one";
constexpr const char* kTwo = "parts/0000000002-0123456789ab/two";

PartRef ref(const std::string& name, std::string_view text) {
  return {name, text.size(), digest_of(DigestKind::kSha256, as_bytes(text))};
}

std::string text_of(const HeldObjects& held, const char* name) {
  const auto object = held.find(name);
  if (!object) return "(none)";
  std::string text(size_t(object->size()), '\0');
  EXPECT_TRUE(object->read(0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}).ok());
  return text;
}

class HeldObjectsTest : public ::testing::Test {
 protected:
  TempFolder folder_;
};

TEST_F(HeldObjectsTest, PiecesInOrderAndAgainMakeTheObject) {
  for (const uint64_t memory : {0U, 1000U}) {
    HeldObjects held({memory, folder_.path(), UINT64_MAX});
    ASSERT_TRUE(held.add(kOne, 6, 0, as_bytes("ab")).ok());
    ASSERT_TRUE(held.add(kOne, 6, 0, as_bytes("abcd")).ok());  // sent again to a new group
    ASSERT_TRUE(held.add(kOne, 6, 4, as_bytes("ef")).ok());
    EXPECT_EQ(text_of(held, kOne), "(none)");  // not committed
    EXPECT_TRUE(held.commit(1, {ref(kOne, "abcdef")}).empty());
    EXPECT_EQ(text_of(held, kOne), "abcdef");
    EXPECT_EQ(folder_.num_files(), 0);  // nobody else sees it
    held.drop_up_to(1);
    EXPECT_EQ(text_of(held, kOne), "(none)");
    EXPECT_EQ(held.use().memory_bytes + held.use().scratch_bytes, 0);
  }
}

TEST_F(HeldObjectsTest, DamageIsFoundAndNamed) {
  HeldObjects held({1000, folder_.path(), 0});
  ASSERT_TRUE(held.add(kOne, 3, 0, as_bytes("axc")).ok());
  EXPECT_EQ(held.commit(1, {ref(kOne, "abc")}), std::vector<std::string>{kOne});
  EXPECT_EQ(text_of(held, kOne), "(none)");
  EXPECT_EQ(held.use().memory_bytes, 0);
}

TEST_F(HeldObjectsTest, WhatNoHonestPublisherSendsIsRefused) {
  HeldObjects held({1000, folder_.path(), 0});
  EXPECT_FALSE(held.add("../../etc/passwd", 1, 0, as_bytes("x")).ok());
  EXPECT_FALSE(held.add("manifests/0000000001.json", 1, 0, as_bytes("x")).ok());
  EXPECT_FALSE(held.add(kOne, 3, 2, as_bytes("xyz")).ok());
  EXPECT_FALSE(held.add(kOne, 3, UINT64_MAX, as_bytes("xyz")).ok());
  ASSERT_TRUE(held.add(kOne, 3, 0, as_bytes("x")).ok());
  EXPECT_FALSE(held.add(kOne, 4, 1, as_bytes("x")).ok());  // two sizes
}

TEST_F(HeldObjectsTest, GapsAndUncommittedAttemptsAreDropped) {
  HeldObjects held({1000, folder_.path(), 0});
  ASSERT_TRUE(held.add(kOne, 9, 5, as_bytes("late")).ok());
  const std::string other = "parts/0000000001-ffffffffffff/one";
  ASSERT_TRUE(held.add(other, 3, 0, as_bytes("abc")).ok());
  EXPECT_TRUE(held.commit(1, {ref(kOne, "123456789")}).empty());
  EXPECT_EQ(text_of(held, kOne), "(none)");
  EXPECT_EQ(text_of(held, other.c_str()), "(none)");
  EXPECT_EQ(held.use().memory_bytes, 0);
}

TEST_F(HeldObjectsTest, OlderVersionsMakeRoomAndWhatDoesNotFitIsLeft) {
  HeldObjects held({10, folder_.path(), 0});
  ASSERT_TRUE(held.add(kOne, 8, 0, as_bytes("12345678")).ok());
  held.commit(1, {ref(kOne, "12345678")});
  ASSERT_TRUE(held.add(kTwo, 4, 0, as_bytes("abcd")).ok());
  held.commit(2, {ref(kTwo, "abcd")});
  EXPECT_EQ(text_of(held, kOne), "(none)");
  EXPECT_EQ(text_of(held, kTwo), "abcd");
  const std::string large = "parts/0000000003-0123456789ab/large";
  ASSERT_TRUE(held.add(large, uint64_t{1} << 60, 0, as_bytes("x")).ok());  // takes no memory
  EXPECT_LE(held.use().most_memory_bytes, 10);
}

}  // namespace
}  // namespace deltawire::testing
