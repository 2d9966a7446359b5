// Every possible failure while three ranks publish a version, one at a time: each call of each rank
// to the store or to its group fails before or after its effect, takes effect late, or is the last
// one that the rank makes. The ranks are real publishers.

#include "chain/names.h"
#include "store/bodies.h"
#include "store/forwarding_store.h"
#include "store/memory_store.h"
#include "support/published_model.h"
#include "support/shard.h"
#include "support/thread_group.h"

namespace deltawire::testing {
namespace {

constexpr unsigned kWorld = 3;

enum class Fault : uint8_t {
  kRefused,     // nothing happens, and it fails
  kLostAnswer,  // it happens, and it fails
  kLate,        // it fails, and happens when the publish is over: a put
  kEndsBefore,  // the rank ends instead of it
  kEndsAfter,   // the rank ends after it
};
constexpr Fault kFaults[] = {Fault::kRefused, Fault::kLostAnswer, Fault::kLate, Fault::kEndsBefore,
                             Fault::kEndsAfter};

// The calls of one rank. Thread-safe.
class Calls {
 public:
  // Injects the fault at call `at`, counted from 0.
  void plan(size_t at, Fault fault) {
    at_ = at;
    fault_ = fault;
  }
  size_t count() const { return count_; }
  bool ended() const { return ended_; }
  bool met() const { return at_ && count_ > *at_; }
  std::string where() const { return where_; }
  void do_late() {
    for (const auto& put : late_) put();
    late_.clear();
  }

  // `late` repeats the call later; null if that is not possible.
  template <class Answer, class Call>
  Answer make(const std::string& what, const Call& call, const std::function<void()>& late = {}) {
    bool now = false;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return unavailable("this rank has ended");
      now = at_ == count_++;
      if (now) where_ = what;
      ended_ = now && (fault_ == Fault::kEndsBefore || fault_ == Fault::kEndsAfter);
      if (now && fault_ == Fault::kLate && late) late_.push_back(late);
    }
    if (!now) return call();
    if (fault_ == Fault::kLostAnswer || fault_ == Fault::kEndsAfter) (void)call().ok();
    return unavailable("fault in " + what);
  }

 private:
  std::mutex mutex_;
  std::optional<size_t> at_;
  Fault fault_ = Fault::kRefused;
  size_t count_ = 0;
  bool ended_ = false;
  std::string where_;
  std::vector<std::function<void()>> late_;
};

class FaultyStore final : public ForwardingStore {
 public:
  FaultyStore(std::shared_ptr<Store> inner, Calls* calls)
      : ForwardingStore(std::move(inner)), calls_(*calls) {}

  Status put(std::string_view name, const Body& body) override {
    return putting("put", name, body,
                   [this](std::string_view to, const Body& what) { return inner().put(to, what); });
  }
  Status put_if_absent(std::string_view name, const Body& body) override {
    return putting("put_if_absent", name, body, [this](std::string_view to, const Body& what) {
      return inner().put_if_absent(to, what);
    });
  }
  Result<ObjectInfo> stat(std::string_view name) override {
    return calls_.make<Result<ObjectInfo>>(said("stat", name), [&] { return inner().stat(name); });
  }
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    return calls_.make<Result<std::string>>(said("get", name),
                                            [&] { return inner().get(name, max_bytes); });
  }
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    return calls_.make<Status>(said("read", name), [&] { return inner().read(name, offset, out); });
  }
  Status download(std::string_view name, uint64_t size, Sink* sink) override {
    return calls_.make<Status>(said("download", name),
                               [&] { return inner().download(name, size, sink); });
  }
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view after,
                                       size_t limit) override {
    return calls_.make<Result<std::vector<ObjectInfo>>>(
        said("list", prefix), [&] { return inner().list(prefix, after, limit); });
  }
  Status remove(std::string_view name) override {
    return calls_.make<Status>(said("remove", name), [&] { return inner().remove(name); });
  }

 private:
  template <class Put>
  Status putting(const char* what, std::string_view name, const Body& body, const Put& put) {
    std::vector<uint8_t> bytes(body.size());
    DW_RETURN_IF_ERROR(body.read(0, bytes));
    const auto late = [put, name = std::string(name), bytes] {
      (void)put(name, MemoryBody(bytes)).ok();
    };
    return calls_.make<Status>(
        said(what, name), [&] { return put(name, body); }, late);
  }
  static std::string said(const char* what, std::string_view name) {
    return std::string(what) + " " + std::string(name);
  }

  Calls& calls_;
};

// A trainer of three ranks that can be restarted.
class Trainer {
 public:
  explicit Trainer(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  // Starts with new calls and publishers.
  void start() {
    publishers_.clear();
    stores_.clear();
    calls_.clear();
    group_ = std::make_unique<ThreadGroup>(kWorld);
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      calls_.push_back(std::make_unique<Calls>());
      stores_.push_back(std::make_shared<FaultyStore>(store_, calls_[rank].get()));
      PublishOptions options{.ranks = group_->ranks(rank), .limits = {.threads = 1}};
      options.ranks.all_gather = [this, rank,
                                  gather = options.ranks.all_gather](std::string_view mine) {
        const auto met = calls_[rank]->met();
        auto all = calls_[rank]->make<Result<std::vector<std::string>>>(
            "all_gather", [&] { return gather(mine); });
        // A failure on a single rank leaves a group that no rank can use any more.
        if (!all.ok() && (!met || calls_[rank]->ended())) group_->leave(rank);
        return all;
      };
      publishers_.push_back(Publisher::open(stores_[rank], options).value());
    }
  }
  Calls& calls(unsigned rank) { return *calls_[rank]; }

  std::vector<Result<PublishReport>> publish(const Model& model) {
    std::vector<std::optional<Result<PublishReport>>> results(kWorld);
    in_threads(kWorld, [&](unsigned rank) {
      const Shard shard(model, rank, kWorld);
      results[rank].emplace(publishers_[rank].publish(shard.views()));
      if (calls_[rank]->ended()) group_->leave(rank);
    });
    std::vector<Result<PublishReport>> all;
    for (auto& result : results) all.push_back(std::move(*result));
    return all;
  }

 private:
  const std::shared_ptr<Store> store_;
  std::unique_ptr<ThreadGroup> group_;
  std::vector<std::unique_ptr<Calls>> calls_;
  std::vector<std::shared_ptr<FaultyStore>> stores_;
  std::vector<Publisher> publishers_;
};

// What is published during the fault.
struct Scenario {
  const char* name;
  bool seeded;     // there is a version before it
  double density;  // of what changes; 0: nothing does
  bool full;       // it is stored whole
};
void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

class RanksUnderFaults : public ::testing::TestWithParam<Scenario> {
 protected:
  std::shared_ptr<Store> store;
  std::unique_ptr<Trainer> trainer;
  std::vector<Model> versions;  // as committed

  // Prepares everything up to the observed publish; returns the model to publish.
  Model prepare() {
    store = std::make_shared<MemoryStore>();
    trainer = std::make_unique<Trainer>(store);
    Model model = Model::make();
    versions.clear();
    trainer->start();
    if (!GetParam().seeded) return model;
    expect_published(model);
    trainer->start();
    if (GetParam().full) {
      std::mt19937_64 random(7);
      for (auto& tensor : model.tensors) {
        for (uint8_t& byte : tensor.bytes) byte = uint8_t(random());
      }
    } else if (GetParam().density > 0) {
      model.step(GetParam().density);
    }
    return model;
  }
  void expect_published(const Model& model) {
    for (const auto& result : trainer->publish(model)) {
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      EXPECT_EQ(result->version, versions.size());
    }
    versions.push_back(model);
  }
  void expect_versions() {
    const auto head = head_of(store);
    ASSERT_EQ(head ? *head + 1 : 0, versions.size());
    for (uint64_t version = 0; version < versions.size(); ++version) {
      ASSERT_TRUE(holds(store, version, versions[version])) << "version " << version;
    }
  }
  // Publishes the model once more, with changes: this must work after any fault.
  void expect_next(Model model) {
    model.step();
    expect_published(model);
    expect_versions();
  }
  void check(unsigned rank, size_t at, Fault fault);
};

void RanksUnderFaults::check(unsigned rank, size_t at, Fault fault) {
  const Model model = prepare();
  Calls& calls = trainer->calls(rank);
  calls.plan(calls.count() + at, fault);
  const auto results = trainer->publish(model);
  if (!calls.met()) return;  // threads of a rank may take another order, with fewer calls
  SCOPED_TRACE("rank " + std::to_string(rank) + ", call " + std::to_string(at) + ": " +
               calls.where() + ", fault " + std::to_string(int(fault)));
  const bool in_group = calls.where() == "all_gather";
  // Either a complete version of this step was committed, or none.
  const auto head = head_of(store);
  const bool committed = (head ? *head + 1 : 0) > versions.size();
  if (committed) versions.push_back(model);
  expect_versions();
  size_t num_failed = 0;
  for (unsigned one = 0; one < kWorld; ++one) {
    const Result<PublishReport>& result = results[one];
    if (result.ok()) {
      EXPECT_EQ(result->committed, committed) << "rank " << one;
      continue;
    }
    ++num_failed;
    EXPECT_EQ(result.status().code(), Code::kUnavailable) << result.status().to_string();
    if (in_group || calls.ended() || one == rank) continue;
    const std::string name = "rank " + std::to_string(rank) + " (";
    EXPECT_TRUE(contains(result.status().message(), name)) << result.status().to_string();
  }
  // A fault in the store fails all ranks or none; the one exception is a rank that cannot read what
  // rank 0 has committed.
  if (!in_group && !calls.ended()) {
    const bool alone = num_failed == 1 && !results[rank].ok() && committed && rank != 0;
    EXPECT_TRUE(num_failed == 0 || num_failed == kWorld || alone) << num_failed << " failed";
    const bool kept = calls.where().starts_with("remove ");
    EXPECT_TRUE(kept || objects_of(*store, kPendingPrefix).empty());
  }
  calls.do_late();
  const auto later = head_of(store);
  if (!committed && (later ? *later + 1 : 0) > versions.size()) versions.push_back(model);
  expect_versions();
  if (in_group || calls.ended()) trainer->start();
  expect_next(model);
  if (HasFatalFailure()) return;
  trainer->start();
  expect_next(versions.back());
}

TEST_P(RanksUnderFaults, VersionsAreNeverMixedAndAllRanksContinue) {
  std::vector<size_t> num_calls;
  {
    const Model model = prepare();
    std::vector<size_t> before;
    for (unsigned rank = 0; rank < kWorld; ++rank) before.push_back(trainer->calls(rank).count());
    for (const auto& result : trainer->publish(model)) {
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      EXPECT_EQ(result->full && result->committed, GetParam().full);
    }
    for (unsigned rank = 0; rank < kWorld; ++rank) {
      num_calls.push_back(trainer->calls(rank).count() - before[rank]);
      EXPECT_GE(num_calls[rank], 3u);
    }
  }
  for (const unsigned rank : {0U, 1U}) {  // the last one is like rank 1
    for (size_t at = 0; at < num_calls[rank]; ++at) {
      for (const Fault fault : kFaults) {
        check(rank, at, fault);
        if (HasFailure()) return;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Publishing, RanksUnderFaults,
                         ::testing::Values(Scenario{"Seed", false, 0, true},
                                           Scenario{"Delta", true, 0.02, false},
                                           Scenario{"DeltaThatDoesNotPay", true, 1, true},
                                           Scenario{"NothingChanged", true, 0, false}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace deltawire::testing
