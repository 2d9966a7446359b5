#include "faulty.h"

#include "conformance.h"
#include "fake_clock.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

struct FaultyRig {
  explicit FaultyRig(std::string_view spec)
      : memory(std::make_shared<MemoryStore>("rig")), store(memory, faults(spec), clock.clock()) {}

  Status put(std::string_view name, std::string_view text) {
    return store.put(name, MemoryBody(text));
  }
  Status put_if_absent(std::string_view name, std::string_view text) {
    return store.put_if_absent(name, MemoryBody(text));
  }
  std::string stored(std::string_view name) const {  // what is really there
    const auto text = memory->get(name, 1 << 20);
    return text.ok() ? *text : std::string(code_name(text.status().code()));
  }
  std::string seen(std::string_view name) {
    const auto text = store.get(name, 1 << 20);
    return text.ok() ? *text : std::string(code_name(text.status().code()));
  }
  std::string listed(std::string_view prefix = "", std::string_view after = "",
                     size_t limit = 1000) {
    std::string all;
    const auto page = must(store.list(prefix, after, limit));
    for (const ObjectInfo& object : page) all += (all.empty() ? "" : " ") + object.name;
    return all;
  }

  FakeClock clock;
  std::shared_ptr<MemoryStore> memory;
  FaultyStore store;
};

int differing_bits(std::string_view a, std::string_view b) {
  int count = a.size() == b.size() ? 0 : 1000;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    count += __builtin_popcount(uint8_t(a[i]) ^ uint8_t(b[i]));
  }
  return count;
}

::testing::AssertionResult spec_refused(std::string_view spec, const char* why) {
  const auto parsed = parse_faults(spec);
  if (parsed.ok()) return ::testing::AssertionFailure() << spec << " was taken";
  return is_failure(parsed.status(), Code::kInvalidArgument, "fault \"", why);
}

}  // namespace

TEST(FaultyStore, FailsTheNthCall) {
  FaultyRig rig("fail:n=3:code=i-o-error");
  EXPECT_TRUE(rig.put("a", "1").ok());
  EXPECT_TRUE(rig.store.stat("a").ok());
  EXPECT_FAILS(rig.put("b", "2"), kIo, "memory:rig: put b: injected fault");
  EXPECT_EQ(rig.stored("b"), "not found");  // nothing was done
  EXPECT_TRUE(rig.put("b", "2").ok());
}

TEST(FaultyStore, CountsMatchingCallsOnly) {
  FaultyRig rig("unavailable:n=2:op=put+remove:name=x/");
  EXPECT_TRUE(rig.put("x/1", "").ok());
  EXPECT_TRUE(rig.put("y/1", "").ok());
  EXPECT_TRUE(rig.store.stat("x/1").ok());
  EXPECT_TRUE(rig.put_if_absent("x/2", "").ok());
  EXPECT_FAILS(rig.store.remove("x/1"), kUnavailable);
  EXPECT_TRUE(rig.store.remove("x/1").ok());
}

TEST(FaultyStore, FailsTheGivenNumberOfTimes) {
  FaultyRig rig("unavailable:times=2");
  EXPECT_FALSE(rig.put("a", "").ok());
  EXPECT_FALSE(rig.put("a", "").ok());
  EXPECT_TRUE(rig.put("a", "").ok());
}

TEST(FaultyStore, ProbabilityIsReproducibleBySeed) {
  const auto run = [](const std::string& spec) {
    FaultyRig rig(spec);
    std::string outcome;
    for (int i = 0; i < 400; ++i) outcome += rig.put("a", "").ok() ? '.' : 'x';
    return outcome;
  };
  const std::string first = run("unavailable:p=0.25:seed=7");
  EXPECT_EQ(run("unavailable:p=0.25:seed=7"), first);
  EXPECT_NE(run("unavailable:p=0.25:seed=8"), first);
  EXPECT_NEAR(double(std::count(first.begin(), first.end(), 'x')), 100, 40);
  EXPECT_EQ(run("unavailable:p=0"), std::string(400, '.'));
  EXPECT_EQ(run("unavailable:p=1"), std::string(400, 'x'));
}

TEST(FaultyStore, SlowDelaysCalls) {
  FaultyRig rig("slow:ms=250:op=get");
  EXPECT_TRUE(rig.put("a", "x").ok());
  EXPECT_EQ(rig.clock.now(), 1000);
  EXPECT_EQ(rig.seen("a"), "x");
  EXPECT_EQ(rig.clock.now(), 1000.25);
}

TEST(FaultyStore, TearStoresHalfAndReportsSuccess) {
  FaultyRig rig("tear:n=2");
  EXPECT_TRUE(rig.put("a", "12345678").ok());
  EXPECT_TRUE(rig.put("a", "abcdefgh").ok());
  EXPECT_EQ(rig.stored("a"), "abcd");
  EXPECT_TRUE(rig.put("a", "12345678").ok());
  EXPECT_EQ(rig.stored("a"), "12345678");
}

TEST(FaultyStore, LostWritesDisappearAtTheCrash) {
  FaultyRig rig("lost:n=2:op=put,lost:n=2:op=put-if-absent");
  EXPECT_TRUE(rig.put("old", "old").ok());
  EXPECT_TRUE(rig.put("old", "new").ok());  // lost
  EXPECT_TRUE(rig.put_if_absent("kept", "1").ok());
  EXPECT_TRUE(rig.put_if_absent("lost", "2").ok());  // lost
  EXPECT_FAILS(rig.put_if_absent("lost", "3"), kConflict);
  EXPECT_FAILS(rig.put_if_absent("kept", "3"), kConflict);
  EXPECT_EQ(rig.seen("old"), "new");
  EXPECT_EQ(rig.seen("lost"), "2");
  EXPECT_EQ(rig.listed(), "kept lost old");
  EXPECT_EQ(rig.listed("", "kept", 1), "lost");
  EXPECT_EQ(rig.stored("old"), "old");
  EXPECT_EQ(rig.stored("lost"), "not found");
  rig.store.crash();
  EXPECT_EQ(rig.seen("old"), "old");
  EXPECT_EQ(rig.seen("lost"), "not found");
  EXPECT_EQ(rig.listed(), "kept old");
  EXPECT_TRUE(rig.put_if_absent("lost", "again").ok());
  EXPECT_EQ(rig.stored("lost"), "again");
}

TEST(FaultyStore, WriteAfterALostOnePersists) {
  FaultyRig rig("lost:n=1");
  EXPECT_TRUE(rig.put("a", "lost").ok());
  EXPECT_TRUE(rig.put("a", "kept").ok());
  EXPECT_EQ(rig.seen("a"), "kept");
  rig.store.crash();
  EXPECT_EQ(rig.seen("a"), "kept");
}

TEST(FaultyStore, DuplicateIsStoredButReportsUnavailable) {
  FaultyRig rig("duplicate");
  EXPECT_FAILS(rig.put("a", "x"), kUnavailable, "a", "the answer was lost");
  EXPECT_EQ(rig.stored("a"), "x");
  EXPECT_FAILS(rig.put_if_absent("b", "y"), kUnavailable);
  EXPECT_EQ(rig.stored("b"), "y");
  EXPECT_FAILS(rig.store.remove("a"), kUnavailable);
  EXPECT_EQ(rig.stored("a"), "not found");
}

TEST(FaultyStore, TwiceReturnsTheSecondResult) {
  FaultyRig rig("twice");
  EXPECT_TRUE(rig.put("a", "x").ok());
  EXPECT_FAILS(rig.put_if_absent("b", "y"), kConflict);
  EXPECT_EQ(rig.stored("b"), "y");
  EXPECT_TRUE(rig.store.remove("a").ok());
}

TEST(FaultyStore, LateWritesArriveAfterOthers) {
  FaultyRig rig("late:n=1:calls=3");
  EXPECT_FAILS(rig.put("HEAD", "1"), kUnavailable, "the answer was lost");
  EXPECT_TRUE(rig.put("HEAD", "2").ok());  // one call later
  EXPECT_EQ(rig.seen("HEAD"), "2");        // two
  EXPECT_EQ(rig.seen("HEAD"), "1");        // three: the first one arrives
  FaultyRig crashed("late:n=1:calls=2");
  EXPECT_FALSE(crashed.put("HEAD", "1").ok());
  crashed.store.crash();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(crashed.seen("HEAD"), "not found");
}

TEST(FaultyStore, StaleListsShowAnEarlierState) {
  FaultyRig rig("stale-list:calls=3");
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_TRUE(rig.put(name, name).ok());  // 1 to 4
  EXPECT_EQ(rig.listed(), "a b");      // call 5 shows what call 2 left
  EXPECT_EQ(rig.listed(), "a b c");    // 6
  EXPECT_EQ(rig.listed(), "a b c d");  // 7
  EXPECT_TRUE(rig.store.remove("b").ok());
  EXPECT_TRUE(rig.put("a", "longer").ok());
  const auto page = rig.store.list("", "", 2);  // what is removed is still shown, sizes are old
  ASSERT_TRUE(page.ok() && page->size() == 2);
  EXPECT_EQ((*page)[0].size_bytes, 1u);
  EXPECT_EQ((*page)[1].name, "b");
  EXPECT_EQ(rig.seen("a"), "longer");     // only lists lie
  EXPECT_EQ(rig.listed("", "a"), "c d");  // the removal shows
  EXPECT_EQ(rig.listed("c"), "c");
}

TEST(FaultyStore, StaleListsHideYoungObjects) {
  FaultyRig rig("stale-list:seconds=3600:name=m/");
  EXPECT_TRUE(rig.put("m/1", "").ok() && rig.put("n/1", "").ok());
  EXPECT_EQ(rig.listed("m/"), "");
  EXPECT_EQ(rig.listed("n/"), "n/1");
  EXPECT_TRUE(rig.store.stat("m/1").ok());
}

TEST(FaultyStore, FlipChangesOneBit) {
  const std::string text = "what was stored";
  FaultyRig rig("flip");
  ASSERT_TRUE(rig.put("a", text).ok());
  std::string out(text.size(), ' ');
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(differing_bits(rig.seen("a"), text), 1);
    ASSERT_TRUE(rig.store.read("a", 0, {reinterpret_cast<uint8_t*>(out.data()), out.size()}).ok());
    EXPECT_EQ(differing_bits(out, text), 1);
    BytesSink sink(text.size());
    ASSERT_TRUE(rig.store.download("a", text.size(), &sink).ok());
    EXPECT_EQ(differing_bits(as_string(sink.bytes), text), 1);
  }
  EXPECT_EQ(rig.stored("a"), text);
  ASSERT_TRUE(rig.put("empty", "").ok());
  EXPECT_EQ(rig.seen("empty"), "");
}

TEST(FaultSpec, ParsesEveryKind) {
  const auto parsed =
      must(parse_faults("unavailable:p=0.1:seed=3,slow:ms=50,tear:n=4,stale-list:calls=3,lost:n=2,"
                        "duplicate:p=0.05,flip:n=7,fail:code=corruption:op=get+read,twice:times=2,"
                        "late:calls=5:name=manifests/,stale-list:seconds=1.5"));
  const std::vector<Fault>& faults = parsed;
  ASSERT_EQ(faults.size(), 11u);
  EXPECT_EQ(faults[0].kind, FaultKind::kUnavailable);
  EXPECT_EQ(faults[0].p, 0.1);
  EXPECT_EQ(faults[0].seed, 3u);
  EXPECT_TRUE(faults[0].applies_to(StoreOperation::kStat));
  EXPECT_EQ(faults[1].kind, FaultKind::kSlow);
  EXPECT_EQ(faults[1].seconds, 0.05);
  EXPECT_EQ(faults[1].p, 1);
  EXPECT_EQ(faults[2].kind, FaultKind::kTear);
  EXPECT_EQ(faults[2].n, 4u);
  EXPECT_TRUE(faults[2].applies_to(StoreOperation::kPutIfAbsent));
  EXPECT_FALSE(faults[2].applies_to(StoreOperation::kRemove));
  EXPECT_EQ(faults[3].kind, FaultKind::kStaleList);
  EXPECT_EQ(faults[3].calls, 3u);
  EXPECT_EQ(faults[4].kind, FaultKind::kLost);
  EXPECT_EQ(faults[5].kind, FaultKind::kDuplicate);
  EXPECT_EQ(faults[6].kind, FaultKind::kFlip);
  EXPECT_TRUE(faults[6].applies_to(StoreOperation::kDownload));
  EXPECT_EQ(faults[7].kind, FaultKind::kFail);
  EXPECT_EQ(faults[7].code, Code::kCorruption);
  EXPECT_TRUE(faults[7].applies_to(StoreOperation::kRead));
  EXPECT_FALSE(faults[7].applies_to(StoreOperation::kPut));
  EXPECT_EQ(faults[8].kind, FaultKind::kTwice);
  EXPECT_EQ(faults[8].times, 2u);
  EXPECT_EQ(faults[9].kind, FaultKind::kLate);
  EXPECT_EQ(faults[9].name, "manifests/");
  EXPECT_EQ(faults[10].seconds, 1.5);
}

TEST(FaultSpec, ErrorsNameTheMistake) {
  EXPECT_TRUE(spec_refused("", "there is no fault \"\"; there are fail, unavailable, slow, tear,"));
  EXPECT_TRUE(spec_refused("tear,", "there is no fault \"\""));
  EXPECT_TRUE(spec_refused("explode", "there is no fault \"explode\""));
  EXPECT_TRUE(spec_refused("tear:n", "expected KEY=VALUE, got \"n\""));
  EXPECT_TRUE(spec_refused("tear:", "expected KEY=VALUE, got \"\""));
  EXPECT_TRUE(spec_refused("tear:ms=5", "has no key \"ms\""));
  EXPECT_TRUE(spec_refused("tear:=5", "has no key \"\""));
  EXPECT_TRUE(spec_refused("tear:n=4:n=5", "has key \"n\" twice"));
  EXPECT_TRUE(spec_refused("tear:n=0", "n: \"0\" is not a number from 1 to 1e+09"));
  EXPECT_TRUE(spec_refused("tear:n=-1", "\"-1\" is not a number"));
  EXPECT_TRUE(spec_refused("tear:n=4x", "\"4x\" is not a number"));
  EXPECT_TRUE(spec_refused("tear:n=", "\"\" is not a number"));
  EXPECT_TRUE(spec_refused("tear:p=1.5", "p: \"1.5\" is not a number from 0 to 1"));
  EXPECT_TRUE(spec_refused("tear:p=nan", "\"nan\" is not a number"));
  EXPECT_TRUE(spec_refused("slow", "needs ms=NUMBER"));
  EXPECT_TRUE(spec_refused("late", "needs calls=NUMBER"));
  EXPECT_TRUE(spec_refused("stale-list", "needs calls=NUMBER or seconds=NUMBER"));
  EXPECT_TRUE(spec_refused("fail:code=broken", "code: there is no failure \"broken\""));
  EXPECT_TRUE(spec_refused("fail:code=ok", "there is no failure \"ok\""));
  EXPECT_TRUE(spec_refused("tear:op=get", "op: cannot befall operation \"get\""));
  EXPECT_TRUE(spec_refused("tear:op=put+", "op: there is no operation \"\""));
  EXPECT_TRUE(spec_refused("slow:ms=1:op=jump", "there is no operation \"jump\""));
  EXPECT_TRUE(spec_refused("tear:name=../x", "name: not the beginning of a name"));
}

}  // namespace deltawire::testing
