#include "carrier/hub.h"

#include "processes.h"

namespace deltawire::testing {
namespace {

constexpr double kLong = 60;

std::unique_ptr<Hub> open_hub(HubOptions options = {}) {
  return must(Hub::listen(std::move(options)));
}

std::unique_ptr<Member> join(const std::string& address, std::string name = "someone",
                             const char* secret = "") {
  auto member =
      must(Member::join({.hub = address, .secret = Secret(secret), .name = std::move(name)}));
  return member;
}

// Until nobody is there any more.
void wait_until_empty(const Hub& hub) {
  while (!hub.members().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

TEST(Hub, TellsAndHears) {
  const auto hub = open_hub({.secret = Secret("s")});
  auto member = must(
      Member::join({.hub = hub->address(), .secret = Secret("s"), .name = "a", .hello = "hi"}));
  ASSERT_TRUE(hub->wait_for(1, kLong).ok());
  const auto members = hub->members();
  ASSERT_EQ(members.size(), 1u);
  EXPECT_EQ(members[0].name, "a");
  EXPECT_EQ(members[0].hello, "hi");
  EXPECT_EQ(members[0].id, member->id());
  EXPECT_EQ(members[0].from, member->address());
  const std::string large(kMaxMessageBytes, 'x');
  ASSERT_TRUE(hub->tell(members[0].id, large, kLong).ok());
  auto heard = must(member->hear(kLong));
  EXPECT_TRUE(heard == large);
  ASSERT_TRUE(member->tell("back", kLong).ok());
  ASSERT_TRUE(member->tell("", kLong).ok());
  EXPECT_EQ(hub->hear(members[0].id, kLong).value(), "back");
  EXPECT_EQ(hub->hear(members[0].id, kLong).value(), "");
  EXPECT_FAILS(hub->tell(members[0].id, large + "x", kLong), kInvalidArgument);
  EXPECT_FAILS(hub->hear(members[0].id, 0.01), kUnavailable, "member a (127.0.0.1:");
  EXPECT_FAILS(hub->hear(77, 0), kNotFound);
}

TEST(Hub, IPv6AndHostNames) {
  for (const char* address : {"[::1]:0", "localhost:0"}) {
    auto hub = Hub::listen({.address = address});
    if (!hub.ok() && hub.status().code() == Code::kIo) continue;  // a machine without IPv6
    ASSERT_TRUE(hub.ok()) << hub.status().to_string();
    EXPECT_TRUE(Member::join({.hub = (*hub)->address()}).ok());
  }
  for (const char* address :
       {"", "nothing", ":1", "127.0.0.1:", "127.0.0.1:99999", "::1:80", "127.0.0.1:http"}) {
    EXPECT_FAILS(Hub::listen({.address = address}), kInvalidArgument) << address;
  }
}

TEST(Hub, WithoutASecretOnlyLoopbackIsListenedOn) {
  EXPECT_FAILS(Hub::listen({.address = "0.0.0.0:0"}), kInvalidArgument, "loopback only");
  EXPECT_TRUE(Hub::listen({.address = "0.0.0.0:0", .open_to_all = true}).ok());
  auto with_secret = must(Hub::listen({.address = "0.0.0.0:0", .secret = Secret("s")}));
  EXPECT_EQ(with_secret->address().find("0.0.0.0"), std::string::npos);
}

TEST(Hub, SecretsMustBeTheSame) {
  const auto hub = open_hub({.secret = Secret("right")});
  for (const char* secret : {"", "wrong"}) {
    EXPECT_FAILS(Member::join({.hub = hub->address(), .secret = Secret(secret)}), kInvalidArgument,
                 "hub 127.0.0.1:");
  }
  EXPECT_TRUE(hub->members().empty());
  const auto open = open_hub();
  EXPECT_FAILS(Member::join({.hub = open->address(), .secret = Secret("s")}), kInvalidArgument);
}

TEST(Hub, RefusesWhoHasNoNameOrNoPlace) {
  const auto hub = open_hub({.max_members = 1});
  EXPECT_FAILS(Member::join({.hub = hub->address(), .name = "a\nb"}), kInvalidArgument);
  EXPECT_FAILS(Member::join({.hub = hub->address(), .hello = std::string(1 << 20, 'x')}),
               kInvalidArgument);
  const auto first = join(hub->address());
  EXPECT_FAILS(Member::join({.hub = hub->address()}), kUnavailable, "all of its 1 members");
}

TEST(Hub, WhoLeavesIsHeardToTheEnd) {
  const auto hub = open_hub();
  auto member = join(hub->address(), "leaver");
  const uint64_t id = member->id();
  ASSERT_TRUE(member->tell("one", kLong).ok());
  ASSERT_TRUE(member->tell("two", kLong).ok());
  member.reset();
  wait_until_empty(*hub);
  EXPECT_EQ(hub->hear(id, kLong).value(), "one");
  EXPECT_EQ(hub->hear(id, kLong).value(), "two");
  EXPECT_FAILS(hub->hear(id, kLong), kUnavailable, "member leaver (127.0.0.1:", "it left");
  EXPECT_FAILS(hub->tell(id, "?", kLong), kUnavailable);
}

TEST(Hub, DismissesWithAReason) {
  const auto hub = open_hub();
  const auto member = join(hub->address());
  ASSERT_TRUE(hub->tell(member->id(), "first", kLong).ok());
  hub->dismiss(member->id(), "too slow");
  hub->dismiss(member->id(), "again");
  EXPECT_TRUE(hub->members().empty());
  EXPECT_FAILS(hub->tell(member->id(), "?", kLong), kNotFound);
  EXPECT_EQ(member->hear(kLong).value(), "first");
  EXPECT_FAILS(member->hear(kLong), kCancelled, "too slow");
  EXPECT_TRUE(member->lost());
}

TEST(Hub, ClosedAndOpenedAgain) {
  auto hub = open_hub();
  const std::string address = hub->address();
  const auto member = join(address);
  hub.reset();
  EXPECT_FAILS(member->hear(kLong), kCancelled);
  EXPECT_TRUE(member->lost());
  EXPECT_FAILS(Member::join({.hub = address, .timeout_seconds = 0.1}), kUnavailable);
  std::atomic<bool> joined{false};
  std::thread early([&] {  // before the hub is there
    EXPECT_TRUE(Member::join({.hub = address}).ok());
    joined = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(joined);
  hub = open_hub({.address = address});
  early.join();
}

TEST(Hub, AbortEndsAWait) {
  const auto hub = open_hub();
  const auto member = join(hub->address());
  std::thread other([&] { member->abort(); });
  EXPECT_FAILS(member->hear(kLong), kCancelled);
  other.join();
  EXPECT_FALSE(member->lost());
}

TEST(Hub, WhoDoesNotListenStopsNobodyElse) {
  const auto hub = open_hub();
  const auto deaf = join(hub->address(), "deaf"), other = join(hub->address(), "other");
  const std::string large(kMaxMessageBytes, 'x');
  Status status;
  size_t told = 0;
  for (; told < 100 && status.ok(); ++told) status = hub->tell(deaf->id(), large, 0.2);
  EXPECT_LT(told, 100u);  // what is held is bounded
  EXPECT_FAILS(status, kUnavailable, "member deaf");
  ASSERT_TRUE(hub->tell(other->id(), large, kLong).ok());
  EXPECT_TRUE(other->hear(kLong).ok());
  for (size_t i = 0; i + 1 < told; ++i) {
    EXPECT_EQ(must(deaf->hear(kLong)).size(), large.size());
  }
}

TEST(Hub, MembersComeAndGo) {
  const auto hub = open_hub({.secret = Secret("s")});
  std::atomic<int> echoed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 10; ++round) {
        const auto member = join(hub->address(), "m" + std::to_string(i), "s");
        const auto heard = must(member->hear(kLong));
        ASSERT_TRUE(member->tell(heard, kLong).ok());
      }
    });
  }
  while (echoed < 80) {
    ASSERT_TRUE(hub->wait_for(1, kLong).ok());
    for (const MemberInfo& info : hub->members()) {
      const std::string word = std::to_string(info.id);
      if (!hub->tell(info.id, word, kLong).ok()) continue;  // it has left since
      const auto answer = must(hub->hear(info.id, kLong));
      EXPECT_EQ(answer, word);
      hub->dismiss(info.id, "done");
      ++echoed;
    }
  }
  for (auto& thread : threads) thread.join();
}

// A process that has joined, seen from the parent before it has a hub: the port is free by then.
std::string free_address() { return open_hub()->address(); }

TEST(Hub, AKilledMemberIsNoticedAtOnce) {
  const std::string address = free_address();
  std::unique_ptr<Member> member;
  Child child([&] { member = join(address, "victim"); });
  const auto hub = open_hub({.address = address, .silence_seconds = 3600});
  ASSERT_TRUE(hub->wait_for(1, kLong).ok());
  const uint64_t id = hub->members().at(0).id;
  std::thread killer([&] { child.kill(); });
  const Status gone = hub->hear(id, kLong).status();
  killer.join();
  EXPECT_FAILS(gone, kUnavailable, "member victim (127.0.0.1:");
  EXPECT_TRUE(contains(gone.message(), "closed") || contains(gone.message(), "reset"))
      << gone.to_string();
}

TEST(Hub, AHungMemberIsNoticedByItsSilence) {
  const std::string address = free_address();
  std::unique_ptr<Member> member;
  Child child([&] { member = join(address, "sleeper"); });
  const auto hub = open_hub({.address = address, .silence_seconds = 5});
  ASSERT_TRUE(hub->wait_for(1, kLong).ok());
  const uint64_t id = hub->members().at(0).id;
  EXPECT_FAILS(hub->hear(id, 6), kUnavailable);
  EXPECT_EQ(hub->members().size(), 1u);  // its heartbeats came
  child.hang();
  const Status gone = hub->hear(id, kLong).status();
  EXPECT_TRUE(contains(gone.message(), "nothing came from it")) << gone.to_string();
  EXPECT_TRUE(hub->members().empty());
}

TEST(Hub, AHungHubIsNoticedByItsSilence) {
  const std::string address = free_address();
  std::unique_ptr<Hub> hub;
  Child child([&] { hub = open_hub({.address = address, .silence_seconds = 2}); });
  const auto member = join(address);
  child.hang();
  EXPECT_FAILS(member->hear(kLong), kUnavailable, "nothing came from it");
  EXPECT_TRUE(member->lost());
}

}  // namespace
}  // namespace deltawire::testing
