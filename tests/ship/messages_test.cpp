// Words of peers: whatever they send, nothing is believed that was not checked.
#include "ship/messages.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "ship/object_service.h"
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
  const auto got = Message::parse(sent.serialise());
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->number("ask"), 7);
  EXPECT_EQ(got->text("op"), "stat");
  EXPECT_EQ(got->body(), std::string("\0body", 5));
  EXPECT_FALSE(got->number("op").has_value());
  EXPECT_FALSE(got->text("ask").has_value());
  EXPECT_FALSE(got->has("nothing"));
}

TEST(Messages, WhatIsNoneIsRefused) {
  std::string too_long = framed("{}");
  store_le(too_long.data(), UINT32_MAX);
  for (const std::string& bytes : {std::string(), std::string("abc"), too_long, framed("[1]"),
                                   framed("{\"a\":"), framed("\xff\xfe"), framed("")}) {
    EXPECT_EQ(Message::parse(bytes).status().code(), Code::kCorruption) << bytes;
  }
}

TEST(Messages, NegativeAndHugeNumbersAreNone) {
  const auto got = Message::parse(framed(R"({"a":-1,"b":1e300,"c":18446744073709551616,"d":"7"})"));
  ASSERT_TRUE(got.ok());
  for (const char* key : {"a", "b", "c", "d"}) EXPECT_FALSE(got->number(key).has_value()) << key;
}

TEST(Messages, FailuresKeepTheirCode) {
  const Message answer(answer_json(3, not_found("no such thing")));
  EXPECT_TRUE(is_failure(status_of(answer), Code::kNotFound, "no such thing"));
  EXPECT_TRUE(status_of(Message(answer_json(3, {}))).ok());
  // A peer cannot make a failure look like success.
  EXPECT_EQ(status_of(Message(nlohmann::json{{"code", 0}})).code(), Code::kInternal);
  EXPECT_EQ(status_of(Message(nlohmann::json{{"code", 999}})).code(), Code::kInternal);
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
  EXPECT_EQ(status_of(get(kAskBytes)).code(), Code::kCorruption);
  EXPECT_EQ(status_of(get(kAskBytes + 4)).code(), Code::kCorruption);
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

}  // namespace
}  // namespace deltawire::testing
