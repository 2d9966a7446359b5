#include "publish/ranks.h"

#include "base/process.h"
#include "format/record.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr std::string_view kMessageFormat = "rank-message/1";
constexpr std::string_view kBeginFormat = "rank-begin/1";
constexpr std::string_view kReportFormat = "rank-report/1";
constexpr std::string_view kOutcomeFormat = "rank-outcome/1";
constexpr DigestKind kSha = DigestKind::kSha256;

// ---- lists

std::string json_list(const std::vector<std::string>& items) {
  std::string text = "[";
  for (const std::string& item : items) text += (text.size() > 1 ? "," : "") + item;
  return text + "]";
}

std::string pieces_json(const std::vector<PieceRecord>& pieces) {
  std::vector<std::string> items;
  for (const PieceRecord& piece : pieces) {
    std::vector<std::string> shape;
    for (const uint64_t extent : piece.shape) shape.push_back(std::to_string(extent));
    items.push_back(json_list(
        {canonical_text(piece.name), canonical_text(dtype_name(piece.dtype)), json_list(shape),
         canonical_text(piece.box.whole() ? "" : box_to_string(piece.box)),
         canonical_text(piece.digest.hex()), std::to_string(piece.changed ? 1 : 0),
         std::to_string(piece.num_elements), std::to_string(piece.num_changed),
         canonical_text(piece.sums ? piece.sums->to_string() : "")}));
  }
  return json_list(items);
}

Result<PieceRecord> read_piece(CanonicalReader* reader) {
  PieceRecord piece;
  const auto text = [&] { return reader->next_item() ? reader->text() : std::string(); };
  const auto number = [&] { return reader->next_item() ? reader->number() : 0; };
  reader->open_list();
  piece.name = text();
  const std::string dtype_text = text();
  if (reader->next_item()) {
    for (reader->open_list(); reader->next_item();) piece.shape.push_back(reader->number());
  }
  const std::string box = text(), digest = text();
  piece.changed = number() != 0;
  piece.num_elements = number();
  piece.num_changed = number();
  const std::string sums = text();
  if (reader->next_item()) return bad_field("pieces", "nine fields of each");
  DW_RETURN_IF_ERROR(reader->status());
  const std::optional<DType> dtype = parse_dtype(dtype_text);
  if (!dtype) return unsupported("dtype " + quote(dtype_text));
  piece.dtype = *dtype;
  if (!box.empty()) {
    DW_ASSIGN_OR_RETURN(piece.box, parse_box(box));
  }
  DW_RETURN_IF_ERROR(tensor_size_bytes(piece.dtype, piece.shape).status());
  DW_RETURN_IF_ERROR(check_box(piece.box, piece.dtype, piece.shape));
  DW_ASSIGN_OR_RETURN(piece.digest, parse_digest(DigestKind::kSum128, digest));
  if (!sums.empty()) {
    DW_ASSIGN_OR_RETURN(piece.sums, Sums::parse(sums));
  }
  return piece;
}

std::string parts_json(const std::vector<PartRef>& parts) {
  std::vector<std::string> items;
  for (const PartRef& part : parts) {
    items.push_back(json_list({canonical_text(part.name), std::to_string(part.size_bytes),
                               canonical_text(part.sha256.hex())}));
  }
  return json_list(items);
}

Result<PartRef> read_part(CanonicalReader* reader) {
  PartRef part;
  reader->open_list();
  if (reader->next_item()) part.name = reader->text();
  if (reader->next_item()) part.size_bytes = reader->number();
  const std::string sha = reader->next_item() ? reader->text() : std::string();
  if (reader->next_item()) return bad_field("parts", "name, bytes and sha-256 of each");
  DW_RETURN_IF_ERROR(reader->status());
  DW_ASSIGN_OR_RETURN(part.sha256, parse_digest(kSha, sha));
  return part;
}

template <class Item, class Read>
Result<std::vector<Item>> parse_list(std::string_view json, const Read& read) {
  std::vector<Item> items;
  CanonicalReader reader(json);
  for (reader.open_list(); reader.next_item();) {
    DW_ASSIGN_OR_RETURN(Item item, read(&reader));
    items.push_back(std::move(item));
  }
  DW_RETURN_IF_ERROR(reader.status());
  return items;
}

// ---- messages: a line of JSON, then the text of the rank

struct Message {
  std::string round, publisher;
  Status failure;
  std::string body;
};

std::string to_text(const std::string& round, const Result<std::string>& own) {
  RecordWriter record(kMessageFormat);
  record.text("round", round);
  record.text("publisher", process_name());
  record.number("code", uint64_t(own.status().code()));
  record.text("failure", own.status().message());
  return record.plain() + "\n" + (own.ok() ? *own : "");
}

Result<Message> parse_message(std::string text) {
  const size_t end = text.find('\n');
  if (end == std::string::npos) return corruption("not a message of a rank");
  DW_ASSIGN_OR_RETURN(RecordReader record,
                      RecordReader::open(std::string_view(text).substr(0, end), kMessageFormat));
  Message message;
  message.round = record.text("round");
  message.publisher = record.text("publisher");
  const uint64_t code = record.number("code");
  if (code > uint64_t(Code::kInternal)) record.fail(bad_field("code", "a code"));
  message.failure = Status(Code(code), record.text("failure"));
  DW_RETURN_IF_ERROR(Status(record.status()));
  message.body = std::move(text.erase(0, end + 1));
  return message;
}

}  // namespace

std::string to_text(const RankBegin& begin) {
  RecordWriter record(kBeginFormat);
  record.text("run", begin.run);
  record.text("attempt", begin.attempt);
  record.number("base", begin.base);
  record.digest("base_manifest", begin.base_manifest);
  record.text("full_reason", begin.full_reason);
  return record.plain();
}

Result<RankBegin> parse_begin(std::string_view text) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(text, kBeginFormat));
  RankBegin begin;
  begin.run = record.run();
  begin.attempt = record.text("attempt");
  begin.base = record.optional_number("base");
  begin.base_manifest = record.optional_digest("base_manifest", kSha);
  begin.full_reason = record.text("full_reason");
  if (begin.base.has_value() != begin.base_manifest.has_value()) {
    record.fail(bad_field("base_manifest", "the manifest of \"base\""));
  }
  DW_RETURN_IF_ERROR(Status(record.status()));
  return begin;
}

std::string to_text(const RankReport& report) {
  RecordWriter record(kReportFormat);
  record.text("needs_full", report.needs_full);
  record.number("payload_bytes", report.payload_bytes);
  record.json("pieces", pieces_json(report.record.pieces));
  record.json("parts", parts_json(report.record.parts));
  record.number("boxes_bytes", report.boxes.size_bytes);
  record.text("boxes_blocks", join_digests(report.boxes.blocks));
  return record.plain();
}

Result<RankReport> parse_report(std::string_view text) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(text, kReportFormat));
  RankReport report;
  report.needs_full = record.text("needs_full");
  report.payload_bytes = record.number("payload_bytes");
  report.boxes.size_bytes = record.number("boxes_bytes");
  const std::string blocks = record.text("boxes_blocks");
  DW_RETURN_IF_ERROR(Status(record.status()));
  DW_ASSIGN_OR_RETURN(report.record.pieces,
                      parse_list<PieceRecord>(record.json("pieces"), read_piece));
  DW_ASSIGN_OR_RETURN(report.record.parts, parse_list<PartRef>(record.json("parts"), read_part));
  DW_ASSIGN_OR_RETURN(report.boxes.blocks, split_digests("boxes_blocks", kSha, blocks));
  return report;
}

std::string to_text(const RankOutcome& outcome) {
  RecordWriter record(kOutcomeFormat);
  record.text("full_reason", outcome.full_reason);
  record.digest("committed", outcome.committed);
  return record.plain();
}

Result<RankOutcome> parse_outcome(std::string_view text) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(text, kOutcomeFormat));
  RankOutcome outcome;
  outcome.full_reason = record.text("full_reason");
  outcome.committed = record.optional_digest("committed", kSha);
  DW_RETURN_IF_ERROR(Status(record.status()));
  return outcome;
}

RankExchange::RankExchange(const Ranks& ranks, std::optional<uint64_t> step)
    : ranks_(ranks), step_(step ? "step " + std::to_string(*step) + ", " : "") {}

Result<std::vector<std::string>> RankExchange::exchange(std::string_view round,
                                                        const Result<std::string>& own) {
  all_know_ = false;
  const std::string here = step_ + std::string(round);
  Result<std::vector<std::string>> texts = ranks_.all_gather(to_text(here, own));
  if (!texts.ok()) {
    return own.ok() ? std::move(texts).status().at("exchange " + quote(here)) : own.status();
  }
  if (texts->size() != ranks_.world) {
    return internal_error("all_gather gave " + std::to_string(texts->size()) + " messages of " +
                          std::to_string(ranks_.world) + " ranks");
  }
  std::vector<Message> messages;
  for (size_t rank = 0; rank < texts->size(); ++rank) {
    Result<Message> message = parse_message(std::move((*texts)[rank]));
    if (!message.ok()) {
      return std::move(message).status().at("message of rank " + std::to_string(rank));
    }
    messages.push_back(std::move(*message));
  }
  all_know_ = true;
  for (size_t rank = 1; rank < messages.size(); ++rank) {
    if (messages[rank].round == messages[0].round) continue;
    return invalid_argument("rank 0 is at " + quote(messages[0].round) + ", rank " +
                            std::to_string(rank) + " at " + quote(messages[rank].round) +
                            ": every rank must publish every version, with the same step");
  }
  DW_RETURN_IF_ERROR(Status(own.status()));
  std::vector<std::string> bodies;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    Message& message = messages[rank];
    if (!message.failure.ok()) {
      return std::move(message.failure)
          .at("rank " + std::to_string(rank) + " (" + message.publisher + ") failed");
    }
    bodies.push_back(std::move(message.body));
  }
  return bodies;
}

}  // namespace deltawire
