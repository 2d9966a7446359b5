// A signed chain stays signed: unsigned writes are refused, and objects added by a third party
// do not block the publisher.

#include "chain/hop_records.h"
#include "chain/keys.h"
#include "chain/names.h"
#include "chain/plan.h"
#include "deltawire/maintain.h"
#include "deltawire/publisher.h"
#include "support/hooked_store.h"
#include "support/published_model.h"

namespace deltawire::testing {
namespace {

class SignedChainTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"mine", "other"}) ASSERT_TRUE(make_key_files(path(name)).ok());
    std::ofstream both(path("both.pub"));
    for (const char* name : {"mine.pub", "other.pub"}) both << std::ifstream(path(name)).rdbuf();
  }
  fs::path path(const std::string& name) const {
    return name.empty() ? fs::path() : folder.path() / name;
  }
  Result<PublishReport> publish(const std::string& sign, const std::string& trust = "",
                                KeyChange change = KeyChange::kNone) {
    PublishOptions options{.anchors = Anchors{.by_bytes = false},
                           .keys = {path(sign), path(trust), change},
                           .limits = {.threads = 1}};
    DW_ASSIGN_OR_RETURN(Publisher publisher, Publisher::open(store, options));
    model.step();
    return publisher.publish(model.views());
  }
  Result<Chain> open(const std::string& sign, const std::string& trust = "",
                     KeyChange change = KeyChange::kNone) const {
    return Chain::open(store, {path(sign), path(trust), change});
  }
  WorkOptions work() const { return {.folder = folder.path() / "work", .threads = 1}; }
  Result<AnchorReport> anchor_at(std::optional<uint64_t> version, const std::string& sign,
                                 const std::string& trust = "") const {
    DW_ASSIGN_OR_RETURN(const Chain chain, open(sign, trust));
    return make_anchor(chain, version, work());
  }
  Result<CompactReport> compact(const std::string& sign, const std::string& trust = "",
                                KeyChange change = KeyChange::kNone) const {
    DW_ASSIGN_OR_RETURN(const Chain chain, open(sign, trust, change));
    return compact_chain(chain, {.spans = {2}, .work = work()});
  }
  std::string signed_by(uint64_t version) const {
    return Chain::open(store, {})->version(version).value().manifest.signed_by;
  }
  std::string key(const std::string& name) const {
    return read_keys({.sign = path(name)}).value().key;
  }
  // Whether a reader with this trusted key can plan a path to the version.
  Status plan_with(const std::string& trust, uint64_t version,
                   std::optional<Held> held = {}) const {
    const Chain chain = open_with_keys(store, read_keys({.trust = path(trust)}).value()).value();
    return plan_catch_up(chain, held, version).status();
  }
  // Replaces every hop record by an unsigned twin, as anybody with write access to the store can.
  void forge_hops() const {
    const Chain chain = Chain::open(store, {}).value();
    for (const std::string& name : objects_of(*store, kHopPrefix)) {
      const HopRecord hop = read_hop(chain, *parse_hop_name(name)).value();
      ASSERT_TRUE(store->put(name, MemoryBody(serialise_hop(hop, {}).value())).ok());
    }
  }
  Status read_hops_with(const std::string& trust) const {
    const Chain chain = open_with_keys(store, read_keys({.trust = path(trust)}).value()).value();
    const auto hops = list_hops(chain, 0, 100, SIZE_MAX).value();
    for (const HopName& name : hops) DW_RETURN_IF_ERROR(read_hop(chain, name).status());
    return hops.empty() ? not_found("no hop") : Status();
  }

  TempFolder folder;
  std::shared_ptr<HookedStore> store = std::make_shared<HookedStore>();
  Model model = Model::make();
};

TEST_F(SignedChainTest, RefusesUnsignedWritesAndOtherKeys) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(publish("mine").ok());
  const std::vector<std::string> before = objects_of(*store, "");
  EXPECT_FAILS(publish(""), kInvalidArgument, "version 4", key("mine"),
               "the new record would be unsigned");
  EXPECT_FAILS(publish("other"), kInvalidArgument, key("mine"), key("other"),
               "the new record would be signed with");
  EXPECT_FAILS(compact(""), kInvalidArgument, "the new record would be unsigned");
  EXPECT_FAILS(compact("other"), kInvalidArgument, "the new record would be signed with");
  EXPECT_FAILS(compact("", "mine.pub"), kInvalidArgument, "the new record would be unsigned");
  EXPECT_FAILS(anchor_at({}, ""), kInvalidArgument, "the new record would be unsigned");
  EXPECT_FAILS(anchor_at(2, "other"), kInvalidArgument, "version 2",
               "the new record would be signed with");
  EXPECT_EQ(objects_of(*store, ""), before);
  ASSERT_TRUE(compact("mine").ok());
  ASSERT_TRUE(anchor_at({}, "mine").ok());
  EXPECT_TRUE(read_hops_with("mine.pub").ok());
}

// Forgetting to give the key does not stop the signing.
TEST_F(SignedChainTest, RefusesAKeyChangeThatContradictsTheKey) {
  ASSERT_TRUE(publish("mine").ok());
  const std::vector<std::string> before = objects_of(*store, "");
  EXPECT_FAILS(publish("", "", KeyChange::kNewKey), kInvalidArgument, "no signing key is given",
               "give the new key", "unsigned");
  EXPECT_FAILS(publish("mine", "", KeyChange::kUnsigned), kInvalidArgument, path("mine").string(),
               "exclude each other");
  EXPECT_FAILS(compact("", "", KeyChange::kNewKey), kInvalidArgument, "no signing key is given");
  EXPECT_EQ(objects_of(*store, ""), before);
}

TEST_F(SignedChainTest, KeysChangeOnRequest) {
  ASSERT_TRUE(publish("mine").ok());
  EXPECT_TRUE(publish("other", "", KeyChange::kNewKey).ok());
  EXPECT_EQ(signed_by(1), key("other"));
  EXPECT_TRUE(publish("other").ok());  // once is enough
  // A trust file with both keys is enough.
  EXPECT_TRUE(publish("mine", "both.pub").ok());
  EXPECT_TRUE(publish("other", "both.pub").ok());
  EXPECT_TRUE(plan_with("both.pub", 4).ok());
  // To unsigned, and to signed again.
  EXPECT_TRUE(publish("", "", KeyChange::kUnsigned).ok());
  EXPECT_EQ(signed_by(5), "");
  EXPECT_TRUE(publish("").ok());
  EXPECT_FAILS(publish("mine"), kInvalidArgument, "version 6", "is not signed",
               "the new record would be, with key");
  EXPECT_TRUE(publish("mine", "", KeyChange::kNewKey).ok());
  EXPECT_TRUE(publish("mine").ok());
  EXPECT_TRUE(holds(store, 8, model));
}

// A forged head makes no publisher continue from it, nor stop signing.
TEST_F(SignedChainTest, RefusesToContinueAForgedHead) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(publish("mine").ok());
  const Chain anyone = Chain::open(store, {}).value();
  Manifest forged = anyone.version(2).value().manifest;
  forged.version = 3;
  forged.base = 2;
  forged.parent = anyone.version(2).value().digest;
  ASSERT_TRUE(commit_version(anyone, forged).ok());
  EXPECT_FAILS(publish("mine"), kInvalidArgument, "version 3", "is not signed");
  EXPECT_FAILS(publish("mine", "mine.pub"), kCorruption, "signature");
  // With a signature of another text.
  const Signature old = read_keys({.sign = path("mine")}).value().sign("another text").value();
  const std::string text = serialise_manifest(forged, [&](std::string_view) -> Result<Signature> {
                             return old;
                           }).value();
  ASSERT_TRUE(store->put(manifest_name(3), MemoryBody(text)).ok());
  EXPECT_FAILS(publish("mine"), kCorruption, "signature: invalid");
}

TEST_F(SignedChainTest, ForeignHopRecordsAreReplaced) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(publish("mine").ok());
  ASSERT_TRUE(compact("mine").ok());
  ASSERT_TRUE(anchor_at({}, "mine").ok());
  for (const char* trust : {"", "mine.pub"}) {
    forge_hops();
    EXPECT_FAILS(read_hops_with("mine.pub"), kCorruption, "signature");
    const auto report = must(compact("mine", trust));
    EXPECT_EQ(report.num_there, 0U);
    for (const MergedDelta& merged : report.merged) EXPECT_TRUE(merged.written) << merged.skipped;
    const auto anchor = must(anchor_at({}, "mine", trust));
    EXPECT_TRUE(anchor.written);
    EXPECT_TRUE(read_hops_with("mine.pub").ok());
    EXPECT_EQ(compact("mine", trust)->num_there, 2U);
    EXPECT_FALSE(anchor_at({}, "mine", trust)->written);
  }
  EXPECT_TRUE(holds(store, 4, model));
}

// The same for a publisher's own anchors.
TEST_F(SignedChainTest, ForeignAnchorIsReplacedByThePublisher) {
  PublishOptions options{
      .anchors = Anchors{.every = 1}, .keys = {.sign = path("mine")}, .limits = {.threads = 1}};
  Publisher publisher = Publisher::open(store, options).value();
  ASSERT_TRUE(publisher.publish(model.views()).ok());
  bool forged = false;
  store->before_put = [&](std::string_view name) -> Status {
    if (!name.starts_with(kHopPrefix) || forged) return {};
    forged = true;
    HopRecord hop{.run = publisher.run(),
                  .version = 1,
                  .manifest = Chain::open(store, {})->version(1).value().digest,
                  .created = utc_now()};
    hop.parts = {{full_folder(1, "dead") + "model.safetensors", parse_hop_name(name)->bytes,
                  record_digest("x")}};
    return store->put(name, MemoryBody(serialise_hop(hop, {}).value()));
  };
  model.step();
  const auto report = must(publisher.publish(model.views()));
  EXPECT_TRUE(forged);
  EXPECT_TRUE(report.anchored);
  EXPECT_TRUE(read_hops_with("mine.pub").ok());
  EXPECT_TRUE(holds(store, 1, model));
}

}  // namespace
}  // namespace deltawire::testing
