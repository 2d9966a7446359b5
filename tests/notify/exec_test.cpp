#include <signal.h>

#include "notify/engine_options.h"
#include "test_files.h"

namespace deltawire {
namespace {

using testing::is_failure;
using testing::kTo12;
using testing::quick;
using testing::TempFolder;

ReloadResult run(const std::string& command, const EngineOptions& options = quick()) {
  auto engine = make_engine("exec=" + command, options);
  EXPECT_TRUE((*engine)->pause().ok());
  ReloadResult result = (*engine)->reload(kTo12);
  EXPECT_TRUE((*engine)->resume().ok());
  return result;
}

TEST(Exec, RunsOnceWithTheVersionInItsEnvironment) {
  const TempFolder folder;
  const std::string out = (folder.path() / "out").string();
  const ReloadResult result =
      run("echo \"$DELTAWIRE_PHASE $DELTAWIRE_RUN $DELTAWIRE_VERSION $DELTAWIRE_PATH\" >> " + out);
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  EXPECT_EQ(result.weights, Weights::kNew);
  EXPECT_EQ(testing::read_file(out), "reload run-7 12 /models/local\n");
}

TEST(Exec, ARefusalIsNotRepeated) {
  const TempFolder folder;
  const std::string out = (folder.path() / "out").string();
  const ReloadResult result = run("echo x >> " + out + "; exit 3", quick(5));
  EXPECT_TRUE(is_failure(result.status, Code::kConflict, "exec=echo x", "status 3"));
  EXPECT_EQ(result.weights, Weights::kOld);
  EXPECT_EQ(testing::read_file(out), "x\n");
}

TEST(Exec, WhatNeverEndsIsKilledAndUnknown) {
  const ReloadResult result = run("sleep 1000", quick(0, 0.1));
  EXPECT_TRUE(is_failure(result.status, Code::kUnavailable, "did not end in 0.1 s"));
  EXPECT_EQ(result.weights, Weights::kUnknown);
}

TEST(Exec, WhatIsEndedOnRequestIsUnknown) {
  EngineOptions options = quick();
  options.cancelled = [] { return true; };
  const ReloadResult result = run("sleep 1000", options);
  EXPECT_TRUE(is_failure(result.status, Code::kCancelled, "exec=sleep 1000", "on request"));
  EXPECT_EQ(result.weights, Weights::kUnknown);
}

TEST(Exec, ARefusalIsHeardWhereSigchldIsIgnored) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  const ReloadResult result = run("exit 3");
  ::signal(SIGCHLD, before);
  EXPECT_TRUE(is_failure(result.status, Code::kConflict, "status 3"));
  EXPECT_EQ(result.weights, Weights::kOld);
}

}  // namespace
}  // namespace deltawire
