// The messages of ranks, and the result of exchanging them.
#include "publish/ranks.h"

#include <future>

#include "support/thread_group.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

RankReport a_report() {
  RankReport report{.payload_bytes = 99};
  const std::vector<uint8_t> contents(20, 7);
  const Digest digest = digest_of(DigestKind::kSum128, contents),
               sha = digest_of(DigestKind::kSha256, {});
  report.record.pieces = {{"a\"b", DType::kBF16, {4, 5}, {{0, 0}, {2, 5}}, digest, true, 10, 3},
                          {"s", DType::kF32, {}, {}, digest, false, 1, 0}};
  report.record.pieces[0].sums.emplace();
  report.record.pieces[0].sums->add(contents, 0);
  report.record.parts = {{"parts/0000000007-ff/part-00000.safetensors", 12, sha}};
  report.boxes = {24, {sha}};
  return report;
}

TEST(RankMessages, RoundTrip) {
  for (const RankReport& report : {a_report(), RankReport{"schema", 0, {}, {}}}) {
    const auto parsed = must(parse_report(to_text(report)));
    EXPECT_EQ(to_text(parsed), to_text(report));
    EXPECT_EQ(parsed.needs_full, report.needs_full);
    EXPECT_EQ(parsed.record.parts, report.record.parts);
    EXPECT_EQ(parsed.boxes.blocks, report.boxes.blocks);
    ASSERT_EQ(parsed.record.pieces.size(), report.record.pieces.size());
    for (size_t i = 0; i < report.record.pieces.size(); ++i) {
      EXPECT_EQ(parsed.record.pieces[i].box, report.record.pieces[i].box);
      EXPECT_EQ(parsed.record.pieces[i].sums, report.record.pieces[i].sums);
    }
  }
  const Digest sha = digest_of(DigestKind::kSha256, {});
  for (const RankBegin& begin : {RankBegin{std::string(32, 'a'), "0123", {}, {}, "seed"},
                                 RankBegin{std::string(32, 'a'), "0123", 7, sha, ""}}) {
    const auto parsed = must(parse_begin(to_text(begin)));
    EXPECT_EQ(to_text(parsed), to_text(begin));
    EXPECT_EQ(parsed.base, begin.base);
  }
  for (const RankOutcome& outcome : {RankOutcome{"dense", {}}, RankOutcome{"", sha}}) {
    const auto parsed = must(parse_outcome(to_text(outcome)));
    EXPECT_EQ(parsed.full_reason, outcome.full_reason);
    EXPECT_EQ(parsed.committed, outcome.committed);
  }
}

TEST(RankMessages, RejectsInvalidReports) {
  struct Defect {
    const char* name;
    std::function<void(RankReport*)> make;
    Code code;
    const char* phrase;
  };
  const std::vector<Defect> defects = {
      {"box", [](auto* r) { r->record.pieces[0].box.extent[0] = 5; }, Code::kInvalidArgument,
       "box"},
      {"size",
       [](auto* r) {
         r->record.pieces[0].shape = {UINT64_MAX, 16};
       },
       Code::kInvalidArgument, "elements"},
      {"digest", [](auto* r) { r->record.pieces[1].digest.size = 8; }, Code::kCorruption,
       "32 hex digits"},
  };
  for (const Defect& defect : defects) {
    RankReport report = a_report();
    defect.make(&report);
    EXPECT_TRUE(is_failure(parse_report(to_text(report)), defect.code, defect.phrase))
        << defect.name;
  }
  EXPECT_FALSE(parse_report(to_text(RankOutcome{})).ok());
}

// ---- exchanges

using Bodies = Result<std::vector<std::string>>;

struct Said {
  std::string round;
  Result<std::string> own;
};

// What three ranks receive, and whether all know.
std::vector<std::pair<Bodies, bool>> exchange(const std::vector<Said>& said,
                                              const std::vector<std::optional<uint64_t>>& steps = {
                                                  {}, {}, {}}) {
  ThreadGroup group(unsigned(said.size()));
  std::vector<std::future<std::pair<Bodies, bool>>> heard;
  for (unsigned rank = 0; rank < said.size(); ++rank) {
    heard.push_back(std::async(std::launch::async, [&, rank] {
      const Ranks ranks = group.ranks(rank);
      RankExchange exchange(ranks, steps[rank]);
      Bodies bodies = exchange.exchange(said[rank].round, said[rank].own);
      return std::pair(std::move(bodies), exchange.all_know());
    }));
  }
  std::vector<std::pair<Bodies, bool>> all;
  for (auto& one : heard) all.push_back(one.get());
  return all;
}

TEST(RankExchanges, EveryRankReceivesAllMessages) {
  for (const auto& [bodies, known] : exchange({{"begin", std::string("a\nb")},
                                               {"begin", std::string()},
                                               {"begin", std::string("c")}})) {
    ASSERT_TRUE(bodies.ok()) << bodies.status().to_string();
    EXPECT_EQ(*bodies, (std::vector<std::string>{"a\nb", "", "c"}));
  }
}

TEST(RankExchanges, FailureOfOneFailsAllWithItsCode) {
  const auto heard = exchange({{"begin", std::string("a")},
                               {"begin", io_error("disk full")},
                               {"begin", conflict("was first")}});
  EXPECT_FAILS(heard[0].first, kIo, "rank 1 (", ") failed: disk full");
  EXPECT_EQ(heard[1].first.status().message(), "disk full");
  EXPECT_EQ(heard[2].first.status().message(), "was first");
  for (const auto& [bodies, known] : heard) EXPECT_TRUE(known);
}

TEST(RankExchanges, NamesRanksAtAnotherRoundOrStep) {
  for (const auto& [bodies, known] : exchange({{"begin", std::string("a")},
                                               {"begin", std::string("b")},
                                               {"delta", std::string("c")}})) {
    EXPECT_TRUE(known);
    EXPECT_FAILS(bodies, kInvalidArgument, "rank 0 is at \"begin\"", "rank 2 at \"delta\"");
  }
  for (const auto& [bodies, known] : exchange(
           {{"begin", std::string("a")}, {"begin", std::string("b")}, {"begin", std::string("c")}},
           {7, 8, 7})) {
    EXPECT_FAILS(bodies, kInvalidArgument, "rank 0 is at \"step 7, begin\"",
                 "rank 1 at \"step 8, begin\"");
  }
}

TEST(RankExchanges, RejectsMalformedMessages) {
  const auto said = [](std::vector<std::string> texts) {
    const Ranks ranks{0, 2, [texts](std::string_view) -> Bodies { return texts; }};
    return RankExchange(ranks, {}).exchange("begin", std::string()).status();
  };
  EXPECT_FAILS(said({"x", "y"}), kCorruption, "message of rank 0");
  EXPECT_FAILS(said({"x"}), kInternal, "1 messages of 2 ranks");
}

TEST(RankBoxes, SealCoversAllBlocksAndDetectsChanges) {
  std::vector<uint8_t> first(kBoxesBlockBytes + 100, 1), second(kBoxesBlockBytes - 7, 2);
  const auto piece = [](std::string name, Bytes bytes) {
    return PieceRecord{std::move(name),
                       DType::kU8,
                       {bytes.size()},
                       {},
                       digest_of(DigestKind::kSum128, bytes),
                       true,
                       0,
                       0};
  };
  const std::vector<PieceRecord> pieces = {piece("first", first), piece("none", {}),
                                           piece("second", second)};
  std::vector<uint8_t> all = first;
  all.insert(all.end(), second.begin(), second.end());
  const MemoryBody body(all);
  std::vector<uint8_t> out(all.size());
  for (const bool in_order : {true, false}) {
    SealingBody sealing(body, pieces);
    const uint64_t half = in_order ? 0 : 1000;  // begins in the middle
    ASSERT_TRUE(sealing.read(half, MutableBytes(out).subspan(half)).ok());
    const auto seal = must(sealing.seal());
    ASSERT_EQ(seal.blocks.size(), 3);
    for (size_t i = 0; i < 3; ++i) {
      const size_t begin = i * kBoxesBlockBytes;
      const size_t size = std::min<size_t>(kBoxesBlockBytes, all.size() - begin);
      EXPECT_EQ(seal.blocks[i], digest_of(DigestKind::kSha256, Bytes(all).subspan(begin, size)));
    }
  }
  all[first.size() + 5] = 9;
  SealingBody sealing(body, pieces);
  ASSERT_TRUE(sealing.read(0, out).ok());
  EXPECT_FAILS(sealing.seal(), kIo, "\"second\"", "changed while");
}

}  // namespace
}  // namespace deltawire::testing
