// Peers that say what no sender or receiver says: refused before memory is taken, and what is held
// stays.
#include "cluster.h"
#include "shard/encode.h"
#include "shard/messages.h"

namespace deltawire::testing {
namespace {

using namespace shard;

class ShardHostileTest : public ::testing::Test {
 protected:
  ShardHostileTest() {
    plan_ = std::make_shared<const ShardPlan>(*plan_shards(layout_, layout_));
    engine_.emplace(layout_, 0);
    for (uint8_t& byte : engine_->live()[0].bytes) byte = 5;
  }

  Hello good_hello() const {
    Hello hello;
    std::copy_n(plan_->digest.bytes.begin(), hello.plan.size(), hello.plan.begin());
    hello.version = 1;
    hello.state = 7;
    hello.slice_bytes = 4096;
    return hello;
  }

  // A sender that says these words; what the receiver makes of them.
  Status receive(const Hello& hello, std::vector<uint8_t> head = {},
                 std::vector<uint8_t> body = {}) {
    auto group = make_local_group(2).value();
    std::thread thread([&] {
      const std::vector<uint8_t> said = pack(hello);
      std::vector<uint8_t> heard(Hello::kBytes), verdict(Verdict::kBytes);
      const ToRank to{1, said};
      const FromRank from{1, heard};
      EXPECT_TRUE(group[0]->exchange({&to, 1}, {&from, 1}, 60).ok());
      for (const std::vector<uint8_t>* bytes : {&head, &body}) {
        const ToRank next{1, *bytes};
        if (!bytes->empty()) std::ignore = group[0]->exchange({&next, 1}, {}, 60);
      }
      group[0].reset();  // gone
    });
    auto receiver = ShardReceiver::create(plan_, 0, *read_live(engine_->live()));
    const Status status = receiver->receive(*group[1]).status();
    thread.join();
    EXPECT_TRUE(receiver->staged().empty());
    for (const uint8_t byte : engine_->live()[0].bytes) EXPECT_EQ(byte, 5);
    return status;
  }

  Status receive_round(RoundHead head, const std::vector<uint8_t>& body) {
    head.body_bytes = body.size();
    head.checksum = body_checksum(body);
    return receive(good_hello(), pack(head), body);
  }

  const ShardLayout layout_ = layout_for("tp=1", {{"w", DType::kBF16, {64, 64}}});
  std::shared_ptr<const ShardPlan> plan_;
  std::optional<Rank> engine_;
};

TEST_F(ShardHostileTest, HellosThatNoSenderSays) {
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, UINT64_MAX}) {
    Hello hello = good_hello();
    hello.slice_bytes = size;
    EXPECT_FAILS(receive(hello), kCorruption) << size;
  }
  Hello hello = good_hello();
  hello.state = 0;
  EXPECT_FAILS(receive(hello), kCorruption);
  hello = good_hello();
  hello.plan[3] ^= 1;
  EXPECT_FAILS(receive(hello), kConflict);
}

TEST_F(ShardHostileTest, LengthsThatAreNotThere) {
  RoundHead head;
  head.last = true;
  for (const uint64_t size : {uint64_t{1} << 40, uint64_t{1} << 60, UINT64_MAX}) {
    head.body_bytes = size;
    EXPECT_FAILS(receive(good_hello(), pack(head)), kCorruption) << size;
  }
  head.num_records = UINT64_MAX;
  EXPECT_FAILS(receive_round(head, std::vector<uint8_t>(100)), kCorruption);
  head.num_records = 0;
  EXPECT_FAILS(receive_round(head, std::vector<uint8_t>(100)), kCorruption);
  head.round = 3;
  EXPECT_FAILS(receive_round(head, std::vector<uint8_t>(100)), kCorruption);
}

TEST_F(ShardHostileTest, RecordsThatFitNothing) {
  RecordHead good;
  std::copy_n("raw", 3, good.codec.begin());
  for (const auto& change : std::initializer_list<void (*)(RecordHead*)>{
           [](RecordHead* head) { head->item = 99; },
           [](RecordHead* head) { head->item = UINT64_MAX; },
           [](RecordHead* head) { head->payload_bytes = UINT64_MAX; },
           [](RecordHead* head) { head->codec.fill('x'); },
           [](RecordHead* head) { std::copy_n("tight", 5, head->codec.begin()); },
           [](RecordHead*) {},
       }) {
    RecordHead record = good;
    change(&record);
    std::vector<uint8_t> body;
    append(record, &body);
    RoundHead head;
    head.last = true;
    head.num_records = 1;
    EXPECT_FAILS(receive_round(head, body), kCorruption);
  }
}

TEST_F(ShardHostileTest, BitsThatTurnOnTheWay) {
  RoundHead head;
  head.body_bytes = 64;
  head.num_records = 1;
  head.last = true;
  EXPECT_FAILS(receive(good_hello(), pack(head), std::vector<uint8_t>(64)), kCorruption);
  std::vector<uint8_t> words = pack(head);
  words[0] ^= 1;
  EXPECT_FAILS(receive(good_hello(), words), kCorruption);
}

// A receiver that takes nothing at once gets its boxes slice by slice; nonsense ends the call.
TEST_F(ShardHostileTest, AReceiverOfNonsenseHurtsNobodyElse) {
  const ShardLayout two = layout_for("dp=2", {{"w", DType::kBF16, {64, 64}}});
  auto plan = std::make_shared<const ShardPlan>(*plan_shards(layout_, two));
  Rank trainer(layout_, 0), good(two, 0);
  auto group = make_local_group(3).value();
  auto sender = ShardSender::create(plan, 0, *read_live(trainer.live()));
  auto receiver = ShardReceiver::create(plan, 0, *read_live(good.live()));
  Status received;
  std::thread honest([&] { received = receiver->receive(*group[1]).status(); });
  std::thread liar([&] {
    Hello hello = good_hello();
    std::copy_n(plan->digest.bytes.begin(), hello.plan.size(), hello.plan.begin());
    hello.bases.fill(UINT64_MAX);
    hello.bucket_bytes = 0;
    const std::vector<uint8_t> said = pack(hello);
    std::vector<uint8_t> heard(Hello::kBytes);
    const ToRank to{0, said};
    const FromRank from{0, heard};
    EXPECT_TRUE(group[2]->exchange({&to, 1}, {&from, 1}, 60).ok());
    group[2].reset();
  });
  const Result<ShardReport> sent = sender->send(*group[0], 1);
  honest.join();
  liar.join();
  ASSERT_TRUE(sent.ok()) << sent.status().to_string();
  EXPECT_EQ(sent->lost, std::vector<unsigned>{2});
  EXPECT_TRUE(received.ok()) << received.to_string();
}

}  // namespace
}  // namespace deltawire::testing
