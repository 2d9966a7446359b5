// Carriers that damage, lose or hold up what they carry.
#include <algorithm>

#include "carrier/backend.h"
#include "fleet.h"
#include "store/faulty_store.h"

namespace deltawire::testing {
namespace {

// What happens to a bucket on its way to a rank; its answer counts unless it is Ok.
using Trick = std::function<Status(unsigned rank, std::span<uint8_t> bytes)>;

class TrickyCarrier final : public Carrier {
 public:
  TrickyCarrier(std::unique_ptr<Carrier> inner, Trick trick)
      : inner_(std::move(inner)), trick_(std::move(trick)) {}
  std::string name() const override { return "tricky"; }
  unsigned rank() const noexcept override { return inner_->rank(); }
  unsigned size() const noexcept override { return inner_->size(); }
  Status exchange(std::span<const ToRank> to, std::span<const FromRank> from,
                  double timeout_seconds) override {
    return inner_->exchange(to, from, timeout_seconds);
  }
  Status broadcast(unsigned root, std::span<uint8_t> bytes, double timeout_seconds) override {
    DW_RETURN_IF_ERROR(inner_->broadcast(root, bytes, timeout_seconds));
    return trick_(rank(), bytes);
  }
  std::vector<unsigned> lost() const override { return inner_->lost(); }
  void abort() noexcept override { inner_->abort(); }

 private:
  const std::unique_ptr<Carrier> inner_;
  const Trick trick_;
};

// TCP, with a trick at its end.
class TrickyBackend final : public Backend {
 public:
  explicit TrickyBackend(Trick trick) : trick_(std::move(trick)) {}
  std::string name() const override { return "tricky"; }
  Result<std::unique_ptr<Gathering>> open(const GroupOptions& options,
                                          double timeout_seconds) override {
    DW_ASSIGN_OR_RETURN(const auto tcp, find_backend("tcp"));
    return tcp->open(options, timeout_seconds);
  }
  Result<std::unique_ptr<Carrier>> enter(const std::string& ticket, unsigned rank,
                                         const GroupOptions& options,
                                         double timeout_seconds) override {
    DW_ASSIGN_OR_RETURN(const auto tcp, find_backend("tcp"));
    DW_ASSIGN_OR_RETURN(auto carrier, tcp->enter(ticket, rank, options, timeout_seconds));
    return std::unique_ptr<Carrier>(std::make_unique<TrickyCarrier>(std::move(carrier), trick_));
  }

 private:
  const Trick trick_;
};

struct TrickyFleet {
  explicit TrickyFleet(Trick trick) {
    add_backend(std::make_shared<TrickyBackend>(std::move(trick)));
    ShipOptions how = Trainer::quick();
    how.backend = "tricky";
    trainer.emplace(how);
    for (int i = 0; i < 3; ++i) {
      JoinOptions joins = joining(trainer->shipper->address());
      joins.name = "replica-" + std::to_string(i);
      replicas.emplace_back(joins, trainer->model);
    }
    EXPECT_TRUE(trainer->shipper->wait_for(3, kPatience).ok());
  }
  void expect_all_hold(uint64_t version) {
    for (FollowingReplica& replica : replicas) {
      ASSERT_TRUE(replica.wait_for_version(version)) << replica.error();
      EXPECT_TRUE(replica.memory.is(trainer->model));
    }
  }
  std::optional<Trainer> trainer;
  std::deque<FollowingReplica> replicas;
};

TEST(ShipFailures, BitsThatFlipOnTheWireAreFoundNamedAndReadAgain) {
  TrickyFleet fleet([](unsigned rank, std::span<uint8_t> bytes) -> Status {
    if (rank == 2 && !bytes.empty()) bytes[bytes.size() / 2] ^= 0x10;
    return {};
  });
  bool named = false;  // not where the replica has read a version before it looks at what came
  for (uint64_t version = 0; version < 3; ++version) {
    const ShipReport report = fleet.trainer->step();
    fleet.expect_all_hold(version);
    for (const std::string& warning : report.warnings) {
      named |= warning.find("arrived damaged") != std::string::npos;
    }
    for (const Shipped& one : report.replicas) EXPECT_EQ(one.version, version) << one.error;
  }
  EXPECT_TRUE(named);
}

TEST(ShipFailures, ARankThatDropsOutOfTheGroupGetsEverythingAllTheSame) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  TrickyFleet fleet([calls](unsigned rank, std::span<uint8_t>) -> Status {
    if (rank == 1 && ++*calls % 2 == 0) return unavailable("a trick");
    return {};
  });
  for (uint64_t version = 0; version < 5; ++version) {
    fleet.trainer->step();
    fleet.expect_all_hold(version);
  }
  EXPECT_GT(fleet.trainer->shipper->report().epoch, 1);
}

TEST(ShipFailures, AVersionWhoseAnswerWasLostIsShippedAllTheSame) {
  const auto lost = parse_faults("duplicate:op=put-if-absent:name=manifests/");
  const auto store = std::make_shared<FaultyStore>(std::make_shared<MemoryStore>("t"), *lost);
  Trainer trainer(Trainer::quick(), {}, store);
  FollowingReplica replica(joining(trainer.shipper->address()), trainer.model);
  ASSERT_TRUE(trainer.shipper->wait_for(1, kPatience).ok());
  for (uint64_t version = 0; version < 3; ++version) {
    const ShipReport report = trainer.step();
    EXPECT_EQ(report.version, version);
    ASSERT_EQ(report.replicas.size(), 1u);
    EXPECT_EQ(report.replicas[0].version, version) << report.replicas[0].error;
    EXPECT_GT(report.replicas[0].bytes, 0u);
  }
}

}  // namespace
}  // namespace deltawire::testing
