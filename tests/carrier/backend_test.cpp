#include "carrier/backend.h"

#include "carrier/hub.h"
#include "carrier/net/call.h"
#include "processes.h"

namespace deltawire::testing {
namespace {

GroupOptions group_of(unsigned size, const char* secret = "s") {
  return {.size = size, .secret = Secret(secret)};
}

std::shared_ptr<Backend> tcp() { return find_backend("tcp").value(); }

TEST(TcpBackend, JoinsRanksInAnyOrder) {
  const GroupOptions options = group_of(5);
  auto gathering = tcp()->open(options, 10).value();
  std::vector<std::thread> threads;
  const auto use = [](Carrier& carrier) {
    std::vector<uint8_t> bytes(3 << 20, uint8_t(carrier.rank() == 2 ? 7 : 0));
    const Status status = carrier.broadcast(2, bytes, 30);
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(bytes.front(), 7);
    EXPECT_EQ(bytes.back(), 7);
  };
  for (unsigned rank = 4; rank >= 1; --rank) {
    threads.emplace_back([&, rank] {
      auto carrier = must(tcp()->enter(gathering->ticket(), rank, options, 30));
      EXPECT_EQ(carrier->rank(), rank);
      EXPECT_EQ(carrier->size(), 5u);
      use(*carrier);
    });
  }
  auto carrier = must(gathering->finish(30));
  use(*carrier);
  for (auto& thread : threads) thread.join();
}

TEST(TcpBackend, AGroupOfOneNeedsNobody) {
  auto carrier = must(tcp()->open(group_of(1), 10).value()->finish(10));
  std::vector<uint8_t> bytes(10);
  EXPECT_TRUE(carrier->broadcast(0, bytes, 1).ok());
}

TEST(TcpBackend, WhoDoesNotComeIsNamed) {
  const auto gathering = tcp()->open(group_of(4), 10).value();
  std::thread one(
      [&] { EXPECT_FALSE(tcp()->enter(gathering->ticket(), 2, group_of(4), 60).ok()); });
  EXPECT_FAILS(gathering->finish(5), kUnavailable, "ranks 1, 3 did not come in time");
  one.join();
}

TEST(TcpBackend, WhoComesAndGoesIsNamed) {
  const auto gathering = tcp()->open(group_of(3), 10).value();
  Child child([&] { (void)tcp()->enter(gathering->ticket(), 1, group_of(3), 60).ok(); });
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    child.kill();
  });
  const Status status = gathering->finish(60).status();
  killer.join();
  EXPECT_FAILS(status, kUnavailable, "tcp: rank 1 (127.0.0.1:");
  EXPECT_EQ(gathering->missing(), std::vector<unsigned>{1});  // not rank 2, which may still come
}

TEST(TcpBackend, TicketsThatAreWrong) {
  const auto gathering = tcp()->open(group_of(2), 10).value();
  const std::string ticket = gathering->ticket();
  const auto enter = [&](const std::string& words, unsigned rank, const GroupOptions& options) {
    return tcp()->enter(words, rank, options, 60).status();
  };
  std::thread door([&] { EXPECT_TRUE(gathering->finish(60).ok()); });
  EXPECT_EQ(ticket.find('\n'), std::string::npos);
  EXPECT_FAILS(enter(ticket, 0, group_of(2)), kInvalidArgument);
  EXPECT_FAILS(enter(ticket, 2, group_of(2)), kInvalidArgument);
  EXPECT_FAILS(enter(ticket, 1, group_of(3)), kInvalidArgument, "for a group of 2, not of 3");
  EXPECT_FAILS(enter(ticket, 1, group_of(2, "other")), kInvalidArgument, "secret");
  for (const char* words : {"", "{}", "nonsense", R"({"address":1,"token":"","size":2})",
                            R"({"address":"x","token":"","size":2})"}) {
    EXPECT_FAILS(enter(words, 1, group_of(2)), kInvalidArgument) << words;
  }
  // The token of another group at this one's door.
  const std::string other = tcp()->open(group_of(2), 10).value()->ticket();
  const std::string mixed =
      ticket.substr(0, ticket.find("token")) + other.substr(other.find("token"));
  EXPECT_FAILS(enter(mixed, 1, group_of(2)), kInvalidArgument);
  EXPECT_TRUE(enter(ticket, 1, group_of(2)).ok());  // and the right one
  door.join();
  EXPECT_FAILS(tcp()->open(group_of(0), 1), kInvalidArgument);
}

TEST(TcpBackend, StrangersAtTheDoorDoNoHarm) {
  const auto gathering = tcp()->open(group_of(2), 60).value();
  const std::string ticket = gathering->ticket();
  const size_t at = ticket.find("127.0.0.1:");
  const std::string address = ticket.substr(at, ticket.find('"', at) - at);
  std::vector<Socket> strangers;
  for (int i = 0; i < 50; ++i) {
    strangers.push_back(connect_to(address, Deadline(60)).value());
    (void)send_all(strangers.back().get(), "nonsense", Deadline(60), "").ok();
    strangers.push_back(connect_to(address, Deadline(60)).value());
  }
  std::thread honest([&] { EXPECT_TRUE(tcp()->enter(ticket, 1, group_of(2), 60).ok()); });
  EXPECT_TRUE(gathering->finish(60).ok());
  honest.join();
}

TEST(Backends, AreFoundByName) {
  EXPECT_FAILS(find_backend("pigeons"), kNotFound, "no carrier \"pigeons\"", "tcp");
  struct Renamed final : Backend {
    std::string name() const override { return "renamed"; }
    Result<std::unique_ptr<Gathering>> open(const GroupOptions& options, double timeout) override {
      return tcp()->open(options, timeout);
    }
    Result<std::unique_ptr<Carrier>> enter(const std::string& ticket, unsigned rank,
                                           const GroupOptions& options, double timeout) override {
      return tcp()->enter(ticket, rank, options, timeout);
    }
  };
  add_backend(std::make_shared<Renamed>());
  EXPECT_TRUE(find_backend("renamed").ok());
}

// As a publisher does: tickets by the hub, a new group whenever somebody has come or gone.
TEST(Backends, GroupsOfThoseWhoAreThere) {
  const auto hub = Hub::listen({}).value();
  const auto follow = [&](int rounds) {
    const auto member = Member::join({.hub = hub->address()}).value();
    while (rounds-- > 0) {
      const std::string words = member->hear(60).value();  // "rank size ticket"
      const size_t first = words.find(' '), second = words.find(' ', first + 1);
      const unsigned rank = unsigned(std::stoul(words));
      const unsigned size = unsigned(std::stoul(words.substr(first)));
      auto carrier = must(tcp()->enter(words.substr(second + 1), rank, group_of(size), 60));
      uint8_t number = 0;
      EXPECT_TRUE(carrier->broadcast(0, {&number, 1}, 60).ok());
      EXPECT_EQ(number, size);
      ASSERT_TRUE(member->tell("done", 60).ok());
    }
  };
  const auto publish = [&](size_t others) {
    while (hub->members().size() != others) std::this_thread::yield();
    const auto members = hub->members();
    const unsigned size = unsigned(others) + 1;
    const auto gathering = tcp()->open(group_of(size), 60).value();
    for (unsigned rank = 1; rank < size; ++rank) {
      const std::string words =
          std::to_string(rank) + " " + std::to_string(size) + " " + gathering->ticket();
      ASSERT_TRUE(hub->tell(members[rank - 1].id, words, 60).ok());
    }
    auto carrier = must(gathering->finish(60));
    uint8_t number = uint8_t(size);
    EXPECT_TRUE(carrier->broadcast(0, {&number, 1}, 60).ok());
    for (const MemberInfo& info : members) EXPECT_EQ(hub->hear(info.id, 60).value(), "done");
  };
  std::thread first(follow, 3);
  publish(1);
  std::thread second(follow, 1);
  publish(2);
  second.join();
  publish(1);
  first.join();
}

}  // namespace
}  // namespace deltawire::testing
