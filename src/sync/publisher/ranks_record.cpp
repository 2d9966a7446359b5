#include "sync/publisher/ranks_record.h"

#include <cstdio>

#include "chain/names.h"
#include "format/record.h"

namespace deltawire {
namespace {

constexpr std::string_view kBeginFormat = "rank-begin/1";
constexpr std::string_view kReportFormat = "rank-report/1";
constexpr std::string_view kDoneFormat = "rank-done/1";
constexpr size_t kMaxAttemptDigits = 64;

// Without a signer nothing can fail.
std::string finish(RecordWriter record) { return std::move(record).finish({}).value(); }

std::string list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? "," : "") + item;
  return text + "]";
}

std::string pieces_json(const std::vector<PieceRecord>& pieces) {
  std::vector<std::string> items;
  for (const PieceRecord& piece : pieces) {
    std::vector<std::string> shape;
    for (const uint64_t extent : piece.shape) shape.push_back(std::to_string(extent));
    items.push_back(
        list({canonical_text(piece.tensor), canonical_text(dtype_name(piece.dtype)), list(shape),
              canonical_text(piece.box.whole() ? "-" : box_to_string(piece.box)),
              canonical_text(piece.digest.hex()), std::to_string(piece.changed ? 1 : 0),
              std::to_string(piece.num_elements), std::to_string(piece.num_changed)}));
  }
  return list(items);
}

// One piece, from the reader's place in a list of them.
Result<PieceRecord> read_piece(CanonicalReader* reader, DigestKind kind) {
  PieceRecord piece;
  const auto item = [&] {
    return reader->next_item() ? Status() : corruption("\"pieces\": expected eight fields of each");
  };
  reader->open_list();
  DW_RETURN_IF_ERROR(item());
  piece.tensor = reader->text();
  DW_RETURN_IF_ERROR(item());
  const std::string dtype_text = reader->text();
  const std::optional<DType> dtype = parse_dtype(dtype_text);
  DW_RETURN_IF_ERROR(item());
  for (reader->open_list(); reader->next_item();) piece.shape.push_back(reader->number());
  DW_RETURN_IF_ERROR(item());
  const std::string box = reader->text();
  DW_RETURN_IF_ERROR(item());
  const std::string digest = reader->text();
  DW_RETURN_IF_ERROR(item());
  piece.changed = reader->number() != 0;
  DW_RETURN_IF_ERROR(item());
  piece.num_elements = reader->number();
  DW_RETURN_IF_ERROR(item());
  piece.num_changed = reader->number();
  if (reader->next_item()) return corruption("\"pieces\": expected eight fields of each");
  DW_RETURN_IF_ERROR(reader->status());
  if (!dtype) return unsupported("dtype " + dtype_text);
  piece.dtype = *dtype;
  if (box != "-") {
    DW_ASSIGN_OR_RETURN(piece.box, parse_box(box));
  }
  DW_RETURN_IF_ERROR(tensor_size_bytes(piece.dtype, piece.shape).status());
  DW_RETURN_IF_ERROR(check_box(piece.box, piece.dtype, piece.shape));
  DW_ASSIGN_OR_RETURN(piece.digest, parse_digest(kind, digest));
  return piece;
}

std::string parts_json(const std::vector<PartRef>& parts) {
  std::vector<std::string> items;
  for (const PartRef& part : parts) {
    items.push_back(list({canonical_text(part.name), std::to_string(part.size_bytes),
                          canonical_text(part.sha256.hex())}));
  }
  return list(items);
}

Result<std::vector<PartRef>> parse_parts(std::string_view json) {
  const Status bad = corruption("\"parts\": expected name, bytes and sha-256 of each");
  std::vector<PartRef> parts;
  CanonicalReader reader(json);
  for (reader.open_list(); reader.next_item();) {
    PartRef part;
    reader.open_list();
    if (!reader.next_item()) return bad;
    part.name = reader.text();
    if (!reader.next_item()) return bad;
    part.size_bytes = reader.number();
    if (!reader.next_item()) return bad;
    DW_ASSIGN_OR_RETURN(part.sha256, parse_digest(DigestKind::kSha256, reader.text()));
    if (reader.next_item()) return bad;
    parts.push_back(std::move(part));
  }
  DW_RETURN_IF_ERROR(reader.status());
  return parts;
}

std::string rank_digits(unsigned rank) {
  char text[16];
  std::snprintf(text, sizeof text, "%05u", rank);
  return text;
}

}  // namespace

std::string begin_name(uint64_t version) {
  return std::string(kPendingPrefix) + number_name(version) + "/begin.json";
}

std::string pending_folder(uint64_t version, std::string_view attempt) {
  return std::string(kPendingPrefix) + number_name(version) + "-" + std::string(attempt) + "/";
}

std::string report_name(uint64_t version, std::string_view attempt, unsigned rank) {
  return pending_folder(version, attempt) + "rank-" + rank_digits(rank) + ".json";
}

std::string boxes_name(uint64_t version, std::string_view attempt, unsigned rank) {
  return pending_folder(version, attempt) + "rank-" + rank_digits(rank) + ".boxes";
}

std::string done_name(uint64_t version, std::string_view attempt) {
  return pending_folder(version, attempt) + "done.json";
}

std::string serialise_begin(const RankBegin& begin) {
  RecordWriter record(kBeginFormat);
  record.text("run", begin.run);
  record.number("version", begin.version);
  record.text("attempt", begin.attempt);
  record.number("world", begin.world);
  record.text("mode", begin.full ? "full" : "delta");
  record.text("reason", begin.reason);
  return finish(std::move(record));
}

Result<RankBegin> parse_begin(std::string_view json) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(json, kBeginFormat, {}));
  RankBegin begin;
  begin.run = record.run();
  begin.version = record.number("version");
  begin.attempt = record.text("attempt");
  begin.world = unsigned(record.number("world"));
  begin.full = record.text("mode") == "full";
  begin.reason = record.text("reason");
  DW_RETURN_IF_ERROR(Status(record.status()));
  // It becomes part of the names of objects.
  const bool hex = begin.attempt.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (begin.attempt.empty() || begin.attempt.size() > kMaxAttemptDigits || !hex) {
    return bad_field("attempt", "hex digits");
  }
  return begin;
}

std::string serialise_report(const RankReport& report) {
  RecordWriter record(kReportFormat);
  record.number("rank", report.rank);
  record.text("nonce", report.nonce);
  record.text("publisher", report.publisher);
  record.text("failure", report.failure);
  record.text("needs_full", report.needs_full);
  record.number("payload_bytes", report.payload_bytes);
  const auto& pieces = report.record.pieces;
  record.text("digest",
              digest_name(pieces.empty() ? DigestKind::kXxh3_128 : pieces[0].digest.kind));
  record.json("pieces", pieces_json(pieces));
  record.json("parts", parts_json(report.record.parts));
  return finish(std::move(record));
}

Result<RankReport> parse_report(std::string_view json) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(json, kReportFormat, {}));
  RankReport report;
  report.rank = unsigned(record.number("rank"));
  report.nonce = record.text("nonce");
  report.publisher = record.text("publisher");
  report.failure = record.text("failure");
  report.needs_full = record.text("needs_full");
  report.payload_bytes = record.number("payload_bytes");
  const std::optional<DigestKind> kind = parse_digest_kind(record.text("digest"));
  DW_RETURN_IF_ERROR(Status(record.status()));
  if (!kind) return unsupported("its digest");
  CanonicalReader reader(record.json("pieces"));
  for (reader.open_list(); reader.next_item();) {
    DW_ASSIGN_OR_RETURN(PieceRecord piece, read_piece(&reader, *kind));
    report.record.pieces.push_back(std::move(piece));
  }
  DW_RETURN_IF_ERROR(reader.status());
  DW_ASSIGN_OR_RETURN(report.record.parts, parse_parts(record.json("parts")));
  return report;
}

std::string serialise_done(const RankDone& done) {
  RecordWriter record(kDoneFormat);
  record.text("outcome", done.unchanged ? "unchanged" : "failed");
  record.text("failure", done.failure);
  std::vector<std::string> nonces;
  for (const std::string& nonce : done.nonces) nonces.push_back(canonical_text(nonce));
  record.json("nonces", list(nonces));
  return finish(std::move(record));
}

Result<RankDone> parse_done(std::string_view json) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(json, kDoneFormat, {}));
  RankDone done;
  done.unchanged = record.text("outcome") == "unchanged";
  done.failure = record.text("failure");
  CanonicalReader reader(record.json("nonces"));
  for (reader.open_list(); reader.next_item();) done.nonces.push_back(reader.text());
  DW_RETURN_IF_ERROR(Status(record.status()));
  DW_RETURN_IF_ERROR(reader.status());
  return done;
}

}  // namespace deltawire
