// What ranks tell each other: every way in which a record can be wrong has its name.
#include <gtest/gtest.h>

#include "chain/keys.h"
#include "publish/ranks_boxes.h"
#include "publish/ranks_record.h"
#include "test_files.h"

namespace deltawire {
namespace {

using testing::is_failure;
using testing::TempFolder;

const RankAttempt kOf{std::string(32, 'a'), 7, "0123456789ab", 41, 4};

RankReport a_report() {
  RankReport report;
  report.of = kOf;
  report.rank = 3;
  report.nonce = "abc";
  report.publisher = "host:1";
  report.payload_bytes = 99;
  const Digest digest = digest_of(DigestKind::kSum128, {});
  report.record.pieces = {{"a\"b", DType::kBF16, {4, 5}, {{0, 0}, {2, 5}}, digest, true, 10, 3},
                          {"s", DType::kF32, {}, {}, digest, false, 1, 0}};
  report.record.parts = {
      {"parts/0000000007-ff/part-00000.safetensors", 12, digest_of(DigestKind::kSha256, {})}};
  return report;
}

RankReport a_full_report() {
  RankReport report = a_report();
  report.full = true;
  report.record.parts.clear();
  report.boxes = {24, {digest_of(DigestKind::kSha256, {})}};
  return report;
}

std::string text_of(const RankReport& report) { return serialise_report(report, {}).value(); }

// With what its box adds to the tensor.
RankReport a_summed_report() {
  RankReport report = a_report();
  std::vector<uint8_t> contents(20, 7);
  for (PieceRecord& piece : report.record.pieces)
    piece.digest = digest_of(DigestKind::kSum128, contents);
  report.record.pieces[0].sums.emplace();
  report.record.pieces[0].sums->add(contents, 0);
  return report;
}

TEST(RankRecords, SumsOfBoxesTravel) {
  const auto parsed = parse_report(text_of(a_summed_report()), {});
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->record.pieces[0].sums, a_summed_report().record.pieces[0].sums);
  EXPECT_FALSE(parsed->record.pieces[1].sums);
}

TEST(RankRecords, RoundTrip) {
  for (const RankReport& report : {a_report(), a_full_report(), a_summed_report()}) {
    const auto parsed = parse_report(text_of(report), {});
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(text_of(*parsed), text_of(report));
    EXPECT_EQ(parsed->of, kOf);
    EXPECT_EQ(parsed->record.pieces[0].box, report.record.pieces[0].box);
    EXPECT_EQ(parsed->record.parts, report.record.parts);
    EXPECT_EQ(parsed->boxes.blocks, report.boxes.blocks);
  }
  const RankBegin begin{kOf, true, "dense: x"};
  const std::string text = serialise_begin(begin, {}).value();
  EXPECT_EQ(serialise_begin(*parse_begin(text, {}), {}).value(), text);
  using ranks::Ending;
  for (const Ending ending : {Ending::kUnchanged, Ending::kFailed, Ending::kSuperseded}) {
    const RankDone done{kOf, ending, "why", {"x", "y"}};
    const auto parsed = parse_done(serialise_done(done, {}).value(), {});
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(parsed->ending, ending);
    EXPECT_EQ(parsed->nonces, done.nonces);
  }
}

// The bytes are a contract between ranks of different builds.
TEST(RankRecords, AreTheseBytes) {
  EXPECT_EQ(serialise_begin({kOf, false, ""}, {}).value(),
            R"({"attempt":"0123456789ab","check":"b92ea73d067be38ccd98da92ca6506ab","format":)"
            R"("rank-begin/1","mode":"delta","reason":"","run":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",)"
            R"("step":41,"version":7,"world":4})");
  EXPECT_EQ(
      serialise_done({kOf, ranks::Ending::kFailed, "disk full", {"x"}}, {}).value(),
      R"({"attempt":"0123456789ab","check":"767fe07c80ec64087a196e1684fbdb9c","failure":"disk full","format":"rank-done/1",)"
      R"("nonces":["x"],"outcome":"failed","run":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","step":41,)"
      R"("version":7,"world":4})");
}

// A record with one thing wrong, and a check that says that nothing is.
template <class Record>
struct Defect {
  const char* name;
  std::function<void(Record*)> make;
  Code code;
  const char* phrase;
};

TEST(RankRecords, EveryDefectOfAReportHasItsName) {
  const std::vector<Defect<RankReport>> defects = {
      {"attempt", [](auto* r) { r->of.attempt = "../x"; }, Code::kCorruption, "\"attempt\""},
      {"no attempt", [](auto* r) { r->of.attempt = ""; }, Code::kCorruption, "\"attempt\""},
      {"long attempt", [](auto* r) { r->of.attempt = std::string(65, 'a'); }, Code::kCorruption,
       "\"attempt\""},
      {"run", [](auto* r) { r->of.run = "x"; }, Code::kCorruption, "\"run\""},
      {"version", [](auto* r) { r->of.version = 10'000'000'000; }, Code::kCorruption,
       "\"version\""},
      {"world", [](auto* r) { r->of.world = 100'000; }, Code::kCorruption, "\"world\""},
      {"rank 0", [](auto* r) { r->rank = 0; }, Code::kCorruption, "\"rank\""},
      {"rank beyond", [](auto* r) { r->rank = 4; }, Code::kCorruption, "\"rank\""},
      {"part elsewhere", [](auto* r) { r->record.parts[0].name = "parts/0000000006-ff/x"; },
       Code::kCorruption, "not of version 7"},
      {"part of no name", [](auto* r) { r->record.parts[0].name = "parts/0000000007-ff/../../x"; },
       Code::kInvalidArgument, ".."},
      {"box", [](auto* r) { r->record.pieces[0].box.extent[0] = 5; }, Code::kInvalidArgument,
       "box"},
      {"size",
       [](auto* r) {
         r->record.pieces[0].shape = {UINT64_MAX, 16};
       },
       Code::kInvalidArgument, "elements"},
      {"digest", [](auto* r) { r->record.pieces[1].digest.size = 8; }, Code::kCorruption,
       "32 hex digits"},
      {"sums of another box",
       [](auto* r) {
         *r = a_summed_report();
         r->record.pieces[0].sums->add(std::vector<uint8_t>(2), 20);
       },
       Code::kCorruption, "sums of another box"},
      {"sums of all of a tensor",
       [](auto* r) {
         *r = a_summed_report();
         r->record.pieces[1].sums.emplace();
         r->record.pieces[1].sums->add(std::vector<uint8_t>(4), 0);
       },
       Code::kCorruption, "sums of another box"},
      {"boxes of a delta", [](auto* r) { r->boxes.size_bytes = 24; }, Code::kCorruption,
       "\"boxes_bytes\""},
      {"boxes too small",
       [](auto* r) {
         *r = a_full_report();
         r->boxes.size_bytes = 23;
       },
       Code::kCorruption, "\"boxes_bytes\""},
      {"blocks missing",
       [](auto* r) {
         *r = a_full_report();
         r->boxes.blocks.clear();
       },
       Code::kCorruption, "\"boxes_blocks\""},
      {"blocks too many",
       [](auto* r) {
         *r = a_full_report();
         r->boxes.blocks.resize(2, r->boxes.blocks[0]);
       },
       Code::kCorruption, "\"boxes_blocks\""},
  };
  for (const auto& defect : defects) {
    RankReport report = a_report();
    defect.make(&report);
    EXPECT_TRUE(is_failure(parse_report(text_of(report), {}).status(), defect.code, defect.phrase))
        << defect.name;
  }
  std::string text = text_of(a_report());
  text[text.find("BF16")] = 'Q';
  EXPECT_TRUE(is_failure(parse_report(text, {}).status(), Code::kCorruption, "checksum"));
}

TEST(RankRecords, AReportBelongsWhereItSays) {
  const std::vector<Defect<RankReport>> defects = {
      {"run", [](auto* r) { r->of.run = std::string(32, 'b'); }, {}, "belongs to run bbb"},
      {"version", [](auto* r) { r->of.version = 6; }, {}, "belongs to version 6, expected 7"},
      {"attempt",
       [](auto* r) { r->of.attempt = "ff"; },
       {},
       "belongs to attempt ff, expected 0123"},
      {"step", [](auto* r) { r->of.step = 40; }, {}, "belongs to step 40, expected 41"},
      {"world", [](auto* r) { r->of.world = 5; }, {}, "belongs to a world of 5, expected 4"},
      {"rank", [](auto* r) { r->rank = 2; }, {}, "belongs to rank 2, expected 3"},
      {"mode", [](auto* r) { r->full = true; }, {}, "belongs to mode full, expected delta"},
  };
  EXPECT_TRUE(check_report(a_report(), kOf, 3, false).ok());
  for (const auto& defect : defects) {
    RankReport report = a_report();
    defect.make(&report);
    EXPECT_TRUE(is_failure(check_report(report, kOf, 3, false), Code::kCorruption, defect.phrase))
        << defect.name;
  }
}

TEST(RankRecords, SignedOnesAreTakenFromTheSameKeyOnly) {
  const TempFolder folder;
  const auto signer = [&](const char* name) {
    EXPECT_TRUE(make_key_files(folder.path() / name).ok());
    return make_signer(folder.path() / name).value();
  };
  const Signer ours = signer("ours"), theirs = signer("theirs");
  const Verifier trust = verifier_of_signer(ours).value();
  const RankBegin begin{kOf, false, ""};
  const RankDone done{kOf, ranks::Ending::kFailed, "", {}};
  const auto check = [&](const auto& serialise, const auto& parse, const auto& record) {
    EXPECT_TRUE(parse(serialise(record, ours).value(), trust).ok());
    EXPECT_TRUE(is_failure(parse(serialise(record, {}).value(), trust).status(), Code::kCorruption,
                           "signature: expected one by a trusted key, got none"));
    EXPECT_TRUE(is_failure(parse(serialise(record, theirs).value(), trust).status(),
                           Code::kCorruption, "which is not trusted"));
    auto forged = record;
    forged.of.attempt = "ff";
    const std::string good = serialise(record, ours).value(), bad = serialise(forged, {}).value();
    const size_t at = good.find("\"signature\"");
    std::string moved = bad.substr(0, bad.find("\"step\""));
    moved += good.substr(at);
    EXPECT_TRUE(is_failure(parse(moved, trust).status(), Code::kCorruption, "does not hold"));
  };
  check(serialise_begin, parse_begin, begin);
  check(serialise_done, parse_done, done);
  check(serialise_report, parse_report, a_report());
}

TEST(RankBoxes, ASealIsOfWhatWasPut) {
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
    const auto seal = sealing.seal();
    ASSERT_TRUE(seal.ok()) << seal.status().to_string();
    ASSERT_EQ(seal->blocks.size(), 3);
    for (size_t i = 0; i < 3; ++i) {
      const size_t begin = i * kBoxesBlockBytes;
      const size_t size = std::min<size_t>(kBoxesBlockBytes, all.size() - begin);
      EXPECT_EQ(seal->blocks[i], digest_of(DigestKind::kSha256, Bytes(all).subspan(begin, size)));
    }
  }
  all[first.size() + 5] = 9;
  SealingBody sealing(body, pieces);
  ASSERT_TRUE(sealing.read(0, out).ok());
  EXPECT_TRUE(is_failure(sealing.seal().status(), Code::kIo, "\"second\"", "changed while"));
}

}  // namespace
}  // namespace deltawire
