#include "notify/notifier.h"

#include "notify/engine_options.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

using Calls = std::vector<std::string>;
using Path = fs::path;

const Identity kNew{"run-7", 12, "manifest of 12"}, kOld{"run-7", 11, "manifest of 11"};
const Change kChange{kNew, 11, true, kOld};
const Calls kWholeSglang = {
    "POST /pause_generation", "GET /model_info",   "POST /update_weights_from_disk",
    "GET /model_info",        "POST /flush_cache", "POST /continue_generation"};

// A patch that records the engine's calls at the time it is made.
class Patch {
 public:
  explicit Patch(const HttpScript* server, Result<Path> result = Path("/models/local"))
      : server_(server), result_(std::move(result)) {}
  std::function<Result<Path>()> function() {
    return [this] {
      ++count;
      if (server_ != nullptr) calls_before = server_->calls();
      return result_;
    };
  }
  int count = 0;
  Calls calls_before;

 private:
  const HttpScript* server_;
  const Result<Path> result_;
};

Notifier notifier_of(std::unique_ptr<Engine> first, std::unique_ptr<Engine> second = nullptr) {
  Notifier notifier;
  notifier.add(std::move(first));
  if (second != nullptr) notifier.add(std::move(second));
  return notifier;
}

// A script that accepts everything except for these answers.
Json script_of(const std::string& kind, const Json& answers) {
  Json script = kind == "vllm" ? vllm_script() : sglang_script();
  script.update(answers);
  return script;
}

// The outcome of kChange with one engine that follows this script.
NotifyOutcome outcome_of(const std::string& kind, const HttpScript& server, Patch patch,
                         const EngineOptions& options = quick()) {
  return notifier_of(engine_at(kind, server, options)).around(kChange, patch.function());
}

TEST(Notifier, PatchesBetweenPauseAndReload) {
  HttpScript server(sglang_script());
  Patch patch(&server);
  const NotifyOutcome outcome =
      notifier_of(engine_at("sglang", server)).around(kChange, patch.function());
  EXPECT_TRUE(outcome.status().ok()) << outcome.status().to_string();
  EXPECT_EQ(patch.calls_before, (Calls{"POST /pause_generation"}));
  EXPECT_EQ(server.calls(), kWholeSglang);
  ASSERT_EQ(outcome.engines.size(), 1U);
  EXPECT_EQ(outcome.engines[0].engine, "sglang=" + server.url());
  EXPECT_TRUE(outcome.engines[0].reloaded && outcome.engines[0].resumed);
  EXPECT_EQ(outcome.serving(), kNew);
  EXPECT_GT(outcome.pause_seconds, 0);
}

TEST(Notifier, WithoutEnginesOnlyPatches) {
  Notifier notifier;
  Patch patch(nullptr);
  const NotifyOutcome outcome = notifier.around(kChange, patch.function());
  EXPECT_TRUE(outcome.status().ok());
  EXPECT_TRUE(outcome.patched);
  EXPECT_EQ(patch.count, 1);
  EXPECT_EQ(outcome.serving(), std::nullopt);
  EXPECT_EQ(outcome.pause_seconds, 0);
}

TEST(Notifier, MakesTheCheckpointPathAbsolute) {
  HttpScript server(sglang_script());
  Patch patch(nullptr, Path("local/./x"));
  notifier_of(engine_at("sglang", server)).around(kChange, patch.function());
  EXPECT_EQ(server.requests()[2].body["model_path"], (fs::current_path() / "local/x").string());
}

TEST(Notifier, FailedPauseStopsThePatch) {
  HttpScript good(sglang_script()), bad(vllm_script());
  bad.load(
      {{"POST /pause", steps(step(400, {{"error", "no"}}))}, {"POST /resume", steps(step(200))}});
  Patch patch(nullptr);
  const NotifyOutcome outcome = notifier_of(engine_at("sglang", good), engine_at("vllm", bad))
                                    .around(kChange, patch.function());
  EXPECT_EQ(patch.count, 0);
  EXPECT_FALSE(outcome.patched);
  EXPECT_FAILS(outcome.status(), kInvalidArgument, "version 12 was not applied",
               "vllm=" + bad.url(), "POST /pause");
  EXPECT_EQ(good.calls(), (Calls{"POST /pause_generation", "POST /continue_generation"}));
  // The answer may have been lost: the engine is told to resume as well.
  EXPECT_EQ(bad.calls(), (Calls{"POST /pause?mode=keep&clear_cache=false", "POST /resume"}));
  EXPECT_TRUE(outcome.engines[0].status.ok());
  EXPECT_EQ(outcome.serving(), kOld);
}

TEST(Notifier, SkipsOnlyTheFailedEngineWhenOpenFilesStay) {
  const Change copy{kNew, 11, false, kOld};
  const Change first{kNew, std::nullopt, true, std::nullopt};
  for (const Change& change : {copy, first}) {
    HttpScript good(sglang_script()), bad;
    bad.stop();
    Patch patch(nullptr);
    const NotifyOutcome outcome = notifier_of(engine_at("vllm", bad), engine_at("sglang", good))
                                      .around(change, patch.function());
    EXPECT_TRUE(outcome.patched);
    EXPECT_TRUE(outcome.patch.ok());
    EXPECT_FAILS(outcome.status(), kUnavailable, bad.url());
    EXPECT_EQ(outcome.engines[0].serving, change.serving);
    EXPECT_FALSE(outcome.engines[0].resumed);
    EXPECT_EQ(outcome.engines[1].serving, kNew);
    EXPECT_EQ(good.calls(), kWholeSglang);
    EXPECT_EQ(outcome.serving(), std::nullopt);
  }
}

TEST(Notifier, FailedPatchResumesWithTheOldVersion) {
  HttpScript server(vllm_script());
  const NotifyOutcome outcome =
      outcome_of("vllm", server, Patch(&server, base_mismatch("layer 3")));
  EXPECT_FAILS(outcome.status(), kBaseMismatch, "layer 3");
  EXPECT_FALSE(outcome.patched);
  EXPECT_EQ(server.calls(), (Calls{"POST /pause?mode=keep&clear_cache=false", "POST /resume"}));
  EXPECT_EQ(outcome.serving(), kOld);
  EXPECT_TRUE(outcome.engines[0].status.ok());
}

// The files have moved on since the engine refused an earlier version.
TEST(Notifier, EngineThatRefusesAgainServesItsOldVersion) {
  HttpScript server(script_of("vllm", {{"POST /collective_rpc", steps(step(400))}}));
  for (const std::optional<Identity>& serving :
       {std::optional(Identity{"run-7", 9, ""}), std::optional<Identity>()}) {
    Patch patch(nullptr);
    const NotifyOutcome outcome =
        notifier_of(engine_at("vllm", server)).around({kNew, 12, false, serving}, patch.function());
    EXPECT_FALSE(outcome.engines[0].reloaded);
    EXPECT_EQ(outcome.serving(), serving);
  }
}

TEST(Notifier, RefusedReloadResumesWithTheOldVersion) {
  HttpScript server(script_of("vllm", {{"POST /collective_rpc", steps(step(400))}}));
  const NotifyOutcome outcome = outcome_of("vllm", server, Patch(nullptr));
  EXPECT_TRUE(outcome.patched);
  EXPECT_FAILS(outcome.status(), kInvalidArgument, "/collective_rpc");
  EXPECT_EQ(server.calls().back(), "POST /resume");
  EXPECT_TRUE(outcome.engines[0].resumed);
  EXPECT_FALSE(outcome.engines[0].reloaded);
  EXPECT_EQ(outcome.serving(), kOld);
}

TEST(Notifier, HangingReloadIsResumedWithVersionUnknown) {
  HttpScript server(script_of("vllm", {{"POST /collective_rpc", steps(does("hang"))}}));
  const NotifyOutcome outcome = outcome_of("vllm", server, Patch(nullptr), quick(1, 1.5));
  EXPECT_FAILS(outcome.status(), kUnavailable, "no answer");
  EXPECT_EQ(server.calls(),
            (Calls{"POST /pause?mode=keep&clear_cache=false", "POST /collective_rpc",
                   "POST /collective_rpc", "POST /resume"}));
  EXPECT_TRUE(outcome.engines[0].resumed);
  EXPECT_EQ(outcome.serving(), std::nullopt);
}

TEST(Notifier, EngineDeathAfterPauseIsReportedOthersContinue) {
  for (const char* kind : {"sglang", "vllm"}) {
    const std::string pause =
        kind == std::string("sglang") ? "POST /pause_generation" : "POST /pause";
    HttpScript dying(Json{{pause, steps(Json{{"status", 200}, {"then", "die"}})}});
    HttpScript good(sglang_script());
    Patch patch(&good);
    const NotifyOutcome outcome =
        notifier_of(engine_at(kind, dying, quick(1)), engine_at("sglang", good))
            .around(kChange, patch.function());
    dying.wait_for_end();
    EXPECT_TRUE(outcome.patched);
    EXPECT_FAILS(outcome.status(), kUnavailable, dying.url());
    EXPECT_EQ(outcome.engines[0].serving, std::nullopt);
    EXPECT_FALSE(outcome.engines[0].resumed);
    EXPECT_EQ(outcome.engines[1].serving, kNew);
    EXPECT_TRUE(outcome.engines[1].resumed);
    EXPECT_EQ(good.calls(), kWholeSglang);
  }
}

TEST(Notifier, RetriesAfterResetAndStatus500) {
  HttpScript server(script_of(
      "sglang", {{"POST /pause_generation", steps(does("reset"), step(200))},
                 {"POST /update_weights_from_disk", steps(step(500), does("close"), step(200))},
                 {"POST /continue_generation", steps(step(503), step(200))}}));
  const NotifyOutcome outcome = outcome_of("sglang", server, Patch(nullptr), quick(2));
  EXPECT_TRUE(outcome.status().ok()) << outcome.status().to_string();
  EXPECT_EQ(outcome.serving(), kNew);
}

TEST(Notifier, FailedResumeIsReportedWithTheNewVersion) {
  HttpScript server(script_of("sglang", {{"POST /continue_generation", steps(step(500))}}));
  const NotifyOutcome outcome = outcome_of("sglang", server, Patch(nullptr), quick(1));
  EXPECT_FAILS(outcome.status(), kUnavailable, "/continue_generation");
  EXPECT_FALSE(outcome.engines[0].resumed);
  EXPECT_EQ(outcome.serving(), kNew);
}

// ---- cancellation

// True once the engine has received a request that starts with `what`.
std::function<bool()> once_asked(const HttpScript& server, const std::string& what) {
  return [&server, what] {
    const Calls calls = server.calls();
    return std::any_of(calls.begin(), calls.end(),
                       [&](const std::string& call) { return call.starts_with(what); });
  };
}

NotifyOutcome cancelled_around(const std::string& kind, const HttpScript& server, Change change,
                               std::function<bool()> cancelled, Patch* patch) {
  EngineOptions options = quick(2, 600);
  options.cancelled = cancelled;
  Notifier notifier(cancelled);
  notifier.add(engine_at(kind, server, options));
  return notifier.around(change, patch->function());
}

TEST(Notifier, CancelledPausePatchesNothingAndResumes) {
  for (const bool in_place : {true, false}) {
    HttpScript server(script_of("vllm", {{"POST /pause", steps(does("hang"))}}));
    Patch patch(nullptr);
    const NotifyOutcome outcome = cancelled_around("vllm", server, {kNew, 11, in_place, kOld},
                                                   once_asked(server, "POST /pause"), &patch);
    EXPECT_FAILS(outcome.status(), kCancelled, "before version 12 was applied");
    EXPECT_EQ(patch.count, 0);
    EXPECT_EQ(server.calls().back(), "POST /resume");
    EXPECT_TRUE(outcome.engines[0].resumed);
    EXPECT_EQ(outcome.serving(), kOld);
  }
}

TEST(Notifier, CancelledReloadResumesWithVersionUnknown) {
  for (const std::string kind : {"vllm", "sglang"}) {
    const bool vllm = kind == "vllm";
    const std::string reload = vllm ? "POST /collective_rpc" : "POST /update_weights_from_disk";
    HttpScript server(script_of(kind, {{reload, steps(does("hang"))}}));
    Patch patch(nullptr);
    const NotifyOutcome outcome =
        cancelled_around(kind, server, kChange, once_asked(server, reload), &patch);
    EXPECT_FAILS(outcome.status(), kCancelled, server.url(), "stopped on request");
    EXPECT_TRUE(outcome.patched);
    EXPECT_EQ(server.calls().back(), vllm ? "POST /resume" : "POST /continue_generation");
    EXPECT_TRUE(outcome.engines[0].resumed);
    EXPECT_FALSE(outcome.engines[0].reloaded);
    EXPECT_EQ(outcome.serving(), std::nullopt);
  }
}

TEST(Notifier, CancelledAfterThePatchKeepsTheOldVersion) {
  HttpScript server(vllm_script());
  bool patched = false;
  EngineOptions options = quick();
  options.cancelled = [&] { return patched; };
  Notifier notifier(options.cancelled);
  notifier.add(engine_at("vllm", server, options));
  const NotifyOutcome outcome = notifier.around(kChange, [&]() -> Result<Path> {
    patched = true;
    return Path("/models/local");
  });
  EXPECT_FAILS(outcome.status(), kCancelled, "before it was told to reload");
  EXPECT_EQ(server.calls(), (Calls{"POST /pause?mode=keep&clear_cache=false", "POST /resume"}));
  EXPECT_EQ(outcome.serving(), kOld);
}

}  // namespace
}  // namespace deltawire::testing
