#include "store/faulty_store.h"

#include "test_files.h"

namespace deltawire::testing {
namespace {

::testing::AssertionResult refused(std::string_view spec, const char* why) {
  const auto parsed = parse_faults(spec);
  if (parsed.ok()) return ::testing::AssertionFailure() << spec << " was taken";
  return is_failure(parsed.status(), Code::kInvalidArgument, "fault \"", why);
}

}  // namespace

TEST(FaultSpec, ReadsEveryKind) {
  const auto parsed = parse_faults(
      "unavailable:p=0.1:seed=3,slow:ms=50,tear:n=4,stale-list:calls=3,lost:n=2,"
      "duplicate:p=0.05,flip:n=7,fail:code=corruption:op=get+read,twice:times=2,"
      "late:calls=5:name=manifests/,stale-list:seconds=1.5");
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  const std::vector<Fault>& faults = *parsed;
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

TEST(FaultSpec, EveryMistakeIsNamed) {
  EXPECT_TRUE(refused("", "there is no fault \"\"; there are fail, unavailable, slow, tear,"));
  EXPECT_TRUE(refused("tear,", "there is no fault \"\""));
  EXPECT_TRUE(refused("explode", "there is no fault \"explode\""));
  EXPECT_TRUE(refused("tear:n", "expected KEY=VALUE, got \"n\""));
  EXPECT_TRUE(refused("tear:", "expected KEY=VALUE, got \"\""));
  EXPECT_TRUE(refused("tear:ms=5", "has no key \"ms\""));
  EXPECT_TRUE(refused("tear:=5", "has no key \"\""));
  EXPECT_TRUE(refused("tear:n=4:n=5", "has key \"n\" twice"));
  EXPECT_TRUE(refused("tear:n=0", "n: \"0\" is not a number from 1 to 1e+09"));
  EXPECT_TRUE(refused("tear:n=-1", "\"-1\" is not a number"));
  EXPECT_TRUE(refused("tear:n=4x", "\"4x\" is not a number"));
  EXPECT_TRUE(refused("tear:n=", "\"\" is not a number"));
  EXPECT_TRUE(refused("tear:p=1.5", "p: \"1.5\" is not a number from 0 to 1"));
  EXPECT_TRUE(refused("tear:p=nan", "\"nan\" is not a number"));
  EXPECT_TRUE(refused("slow", "needs ms=NUMBER"));
  EXPECT_TRUE(refused("late", "needs calls=NUMBER"));
  EXPECT_TRUE(refused("stale-list", "needs calls=NUMBER or seconds=NUMBER"));
  EXPECT_TRUE(refused("fail:code=broken", "code: there is no failure \"broken\""));
  EXPECT_TRUE(refused("fail:code=ok", "there is no failure \"ok\""));
  EXPECT_TRUE(refused("tear:op=get", "op: cannot befall operation \"get\""));
  EXPECT_TRUE(refused("tear:op=put+", "op: there is no operation \"\""));
  EXPECT_TRUE(refused("slow:ms=1:op=jump", "there is no operation \"jump\""));
  EXPECT_TRUE(refused("tear:name=../x", "name: not the beginning of a name"));
}

}  // namespace deltawire::testing
