#include "publish/ranks_record.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "base/hex.h"
#include "chain/names.h"
#include "format/base64.h"
#include "format/record.h"
#include "publish/ranks_pieces.h"

namespace deltawire {
namespace {

constexpr std::string_view kBeginFormat = "rank-begin/1";
constexpr std::string_view kReportFormat = "rank-report/1";
constexpr std::string_view kDoneFormat = "rank-done/1";
constexpr size_t kMaxAttemptDigits = 64;
constexpr unsigned kMaxWorld = 99'999;  // names have five digits
constexpr std::array<std::string_view, 3> kEndings = {"unchanged", "failed", "superseded"};

// ---- what all of them begin with

void write_attempt(const RankAttempt& of, RecordWriter* record) {
  record->text("run", of.run);
  record->number("version", of.version);
  record->text("attempt", of.attempt);
  record->number("step", of.step);
  record->number("world", of.world);
}

RankAttempt read_attempt(RecordReader* record) {
  RankAttempt of;
  of.run = record->run();
  of.version = record->number("version");
  of.attempt = record->text("attempt");
  of.step = record->number("step");
  const uint64_t world = record->number("world");
  // It becomes part of the names of objects.
  const bool hex = is_hex(of.attempt);
  if (of.attempt.empty() || of.attempt.size() > kMaxAttemptDigits || !hex) {
    record->fail(bad_field("attempt", "hex digits"));
  }
  if (of.version > kMaxVersion) record->fail(bad_field("version", "a version"));
  if (world < 1 || world > kMaxWorld) record->fail(bad_field("world", "a number of ranks"));
  of.world = unsigned(world);
  return of;
}

const char* mode_name(bool full) { return full ? "full" : "delta"; }

bool read_mode(RecordReader* record) {
  const std::string mode = record->text("mode");
  if (mode != mode_name(true) && mode != mode_name(false)) {
    record->fail(bad_field("mode", "delta or full"));
  }
  return mode == mode_name(true);
}

// ---- boxes

std::string blocks_text(const std::vector<Digest>& blocks) {
  std::string bytes;
  for (const Digest& block : blocks) {
    bytes.append(reinterpret_cast<const char*>(block.bytes.data()), block.size);
  }
  return base64_encode(bytes);
}

Result<std::vector<Digest>> parse_blocks(std::string_view text, uint64_t size_bytes) {
  const size_t digest_bytes = digest_size(DigestKind::kSha256);
  const std::optional<std::string> bytes = base64_decode(text);
  const uint64_t wanted = size_bytes / kBoxesBlockBytes + (size_bytes % kBoxesBlockBytes != 0);
  if (!bytes || bytes->size() % digest_bytes != 0 || bytes->size() / digest_bytes != wanted) {
    return bad_field("boxes_blocks", "the sha-256 of every block of the boxes");
  }
  std::vector<Digest> blocks(wanted);
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].kind = DigestKind::kSha256;
    blocks[i].size = uint8_t(digest_bytes);
    std::copy_n(bytes->data() + i * digest_bytes, digest_bytes, blocks[i].bytes.begin());
  }
  return blocks;
}

// Sizes that do not add up are more than any object has.
uint64_t bytes_of_pieces(const std::vector<PieceRecord>& pieces) {
  uint64_t bytes = 0;
  for (const PieceRecord& piece : pieces) {
    const uint64_t own = tensor_size_bytes(piece.dtype, box_shape(piece.box, piece.shape)).value();
    if (own > UINT64_MAX - bytes) return UINT64_MAX;
    bytes += own;
  }
  return bytes;
}

// ---- names

std::string rank_digits(unsigned rank) {
  char text[16];
  std::snprintf(text, sizeof text, "%05u", rank);
  return text;
}

template <class Value>
Status differs(const char* what, const Value& got, const Value& expected) {
  const auto text = [](const auto& value) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(value)>>) {
      return std::to_string(value);
    } else {
      return std::string(value);
    }
  };
  if (got == expected) return {};
  return corruption(std::string("belongs to ") + what + " " + text(got) + ", expected " +
                    text(expected));
}

}  // namespace

std::string begin_name(uint64_t version) {
  return std::string(kPendingPrefix) + number_name(version) + "/begin.json";
}

std::string pending_folder(uint64_t version, std::string_view attempt) {
  return std::string(kPendingPrefix) + number_name(version) + "-" + std::string(attempt) + "/";
}

std::string report_name(const RankAttempt& of, unsigned rank, bool full) {
  return pending_folder(of.version, of.attempt) + "rank-" + rank_digits(rank) +
         (full ? ".full.json" : ".json");
}

std::string boxes_name(const RankAttempt& of, unsigned rank) {
  return pending_folder(of.version, of.attempt) + "rank-" + rank_digits(rank) + ".boxes";
}

std::string done_name(uint64_t version, std::string_view attempt) {
  return pending_folder(version, attempt) + "done.json";
}

Result<std::string> serialise_begin(const RankBegin& begin, const Signer& sign) {
  RecordWriter record(kBeginFormat);
  write_attempt(begin.of, &record);
  record.text("mode", mode_name(begin.full));
  record.text("reason", begin.reason);
  return std::move(record).finish(sign);
}

Result<RankBegin> parse_begin(std::string_view json, const Verifier& trust) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(json, kBeginFormat, trust));
  RankBegin begin;
  begin.of = read_attempt(&record);
  begin.full = read_mode(&record);
  begin.reason = record.text("reason");
  DW_RETURN_IF_ERROR(Status(record.status()));
  return begin;
}

Result<std::string> serialise_report(const RankReport& report, const Signer& sign) {
  RecordWriter record(kReportFormat);
  write_attempt(report.of, &record);
  record.number("rank", report.rank);
  record.text("mode", mode_name(report.full));
  record.text("nonce", report.nonce);
  record.text("publisher", report.publisher);
  record.text("failure", report.failure);
  record.text("needs_full", report.needs_full);
  record.number("payload_bytes", report.payload_bytes);
  record.json("pieces", pieces_json(report.record.pieces));
  record.json("parts", parts_json(report.record.parts));
  record.number("boxes_bytes", report.boxes.size_bytes);
  record.text("boxes_blocks", blocks_text(report.boxes.blocks));
  return std::move(record).finish(sign);
}

Result<RankReport> parse_report(std::string_view json, const Verifier& trust) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(json, kReportFormat, trust));
  RankReport report;
  report.of = read_attempt(&record);
  const uint64_t rank = record.number("rank");
  if (rank < 1 || rank >= report.of.world) {
    record.fail(bad_field("rank", "one of the ranks that report"));
  }
  report.rank = unsigned(rank);
  report.full = read_mode(&record);
  report.nonce = record.text("nonce");
  report.publisher = record.text("publisher");
  report.failure = record.text("failure");
  report.needs_full = record.text("needs_full");
  report.payload_bytes = record.number("payload_bytes");
  report.boxes.size_bytes = record.number("boxes_bytes");
  const std::string blocks = record.text("boxes_blocks");
  DW_RETURN_IF_ERROR(Status(record.status()));
  DW_ASSIGN_OR_RETURN(report.record.pieces, parse_pieces(record.json("pieces")));
  DW_ASSIGN_OR_RETURN(report.record.parts, parse_parts(record.json("parts"), report.of.version));
  const bool has_boxes = report.full && report.failure.empty();
  if (report.boxes.size_bytes != (has_boxes ? bytes_of_pieces(report.record.pieces) : 0)) {
    return bad_field("boxes_bytes", "the bytes of the pieces where they are stored whole");
  }
  DW_ASSIGN_OR_RETURN(report.boxes.blocks, parse_blocks(blocks, report.boxes.size_bytes));
  return report;
}

Result<std::string> serialise_done(const RankDone& done, const Signer& sign) {
  RecordWriter record(kDoneFormat);
  write_attempt(done.of, &record);
  record.text("outcome", kEndings[size_t(done.ending)]);
  record.text("failure", done.failure);
  std::vector<std::string> nonces;
  for (const std::string& nonce : done.nonces) nonces.push_back(canonical_text(nonce));
  record.json("nonces", json_list(nonces));
  return std::move(record).finish(sign);
}

Result<RankDone> parse_done(std::string_view json, const Verifier& trust) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(json, kDoneFormat, trust));
  RankDone done;
  done.of = read_attempt(&record);
  const std::string outcome = record.text("outcome");
  const auto ending = std::find(kEndings.begin(), kEndings.end(), outcome);
  if (ending == kEndings.end()) {
    record.fail(bad_field("outcome", "unchanged, failed or superseded"));
  }
  done.ending = ranks::Ending(ending - kEndings.begin());
  done.failure = record.text("failure");
  CanonicalReader reader(record.json("nonces"));
  for (reader.open_list(); reader.next_item();) done.nonces.push_back(reader.text());
  DW_RETURN_IF_ERROR(Status(record.status()));
  DW_RETURN_IF_ERROR(reader.status());
  return done;
}

Status check_belongs(const RankAttempt& got, const RankAttempt& expected) {
  DW_RETURN_IF_ERROR(differs("run", got.run, expected.run));
  DW_RETURN_IF_ERROR(differs("version", got.version, expected.version));
  DW_RETURN_IF_ERROR(differs("attempt", got.attempt, expected.attempt));
  DW_RETURN_IF_ERROR(differs("step", got.step, expected.step));
  return differs("a world of", got.world, expected.world);
}

Status check_report(const RankReport& report, const RankAttempt& expected, unsigned rank,
                    bool full) {
  DW_RETURN_IF_ERROR(check_belongs(report.of, expected));
  DW_RETURN_IF_ERROR(differs("rank", report.rank, rank));
  return differs("mode", std::string(mode_name(report.full)), std::string(mode_name(full)));
}

}  // namespace deltawire
