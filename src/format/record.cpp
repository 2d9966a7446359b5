#include "format/record.h"

#include <algorithm>

#include "base/text.h"
#include "format/canonical_json.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr const char* kCheck = "check";
constexpr const char* kSignature = "signature";

Digest checksum_of(std::string_view text) {
  return digest_of(DigestKind::kXxh3_128, text_bytes(text));
}

}  // namespace

bool is_run_id(std::string_view text) { return text.size() == kRunDigits && is_hex(text); }

Status bad_field(std::string_view field, std::string_view expected) {
  return corruption(quote(field) + ": expected " + std::string(expected));
}

std::string join_digests(const std::vector<Digest>& digests) {
  std::string bytes;
  for (const Digest& digest : digests) {
    bytes.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.size);
  }
  return base64_encode(bytes);
}

Result<std::vector<Digest>> split_digests(std::string_view field, DigestKind kind,
                                          std::string_view text) {
  const std::optional<std::string> bytes = base64_decode(text);
  const size_t size = digest_size(kind);
  if (!bytes || bytes->size() % size != 0) return bad_field(field, "base64 of whole digests");
  std::vector<Digest> digests(bytes->size() / size);
  for (size_t i = 0; i < digests.size(); ++i) {
    digests[i].kind = kind;
    digests[i].size = uint8_t(size);
    std::copy_n(bytes->data() + i * size, size, digests[i].bytes.begin());
  }
  return digests;
}

void RecordWriter::number(const char* key, const std::optional<uint64_t>& value) {
  fields_[key] = value ? std::to_string(*value) : "null";
}

void RecordWriter::digest(const char* key, const std::optional<Digest>& value) {
  fields_[key] = value ? canonical_text(value->hex()) : "null";
}

std::string RecordWriter::plain() const {
  size_t size = 2;
  for (const auto& [key, json] : fields_) size += key.size() + json.size() + 4;
  std::string text;
  text.reserve(size);
  for (const auto& [key, json] : fields_) {
    text.append(text.empty() ? "{" : ",").append(canonical_text(key)).append(":").append(json);
  }
  return text + "}";
}

Result<std::string> RecordWriter::finish(const Signer& sign) && {
  digest(kCheck, checksum_of(plain()));
  std::string whole = plain();
  if (!sign) return whole;
  DW_ASSIGN_OR_RETURN(const Signature signature, sign(whole));
  json(kSignature, "{\"ed25519\":" + canonical_text(signature.bytes) +
                       ",\"key\":" + canonical_text(signature.key) + "}");
  return plain();
}

Status RecordReader::read(std::string_view text) {
  CanonicalReader reader(text);
  std::string key;
  size_t begin = 1;
  for (reader.open_object(); reader.next_member(&key);) {
    const std::string_view json = reader.skip();
    fields_.push_back({key, json, text.substr(begin, reader.offset() - begin)});
    begin = reader.offset() + 1;
  }
  reader.finish();
  return reader.status();
}

Result<RecordReader> RecordReader::open(std::string_view text, std::string_view format) {
  RecordReader record;
  DW_RETURN_IF_ERROR(record.read(text));
  const std::string got = record.text("format");
  DW_RETURN_IF_ERROR(Status(record.status()));
  if (got != format) {
    return unsupported("format " + quote(got) + "; this build reads " + quote(format));
  }
  return record;
}

Result<RecordReader> RecordReader::open(std::string_view text, std::string_view format,
                                        const Verifier& trust) {
  DW_ASSIGN_OR_RETURN(RecordReader record, open(text, format));
  DW_RETURN_IF_ERROR(record.check_whole());
  if (trust) DW_RETURN_IF_ERROR(record.check_trusted(trust));
  return record;
}

RecordReader RecordReader::inside(std::string_view object) {
  RecordReader record;
  record.status_ = record.read(object);
  return record;
}

std::string RecordReader::without(std::string_view a, std::string_view b) const {
  std::string text;
  for (const Field& field : fields_) {
    if (field.key == a || field.key == b) continue;
    text.append(text.empty() ? "{" : ",").append(field.both);
  }
  return text.empty() ? "{}" : text + "}";
}

Status RecordReader::check_whole() const {
  RecordReader copy = *this;
  const Digest expected = copy.digest(kCheck, DigestKind::kXxh3_128);
  DW_RETURN_IF_ERROR(Status(copy.status()));
  const Digest got = checksum_of(without(kCheck, kSignature));
  if (got != expected) {
    return corruption("checksum of the record: expected " + expected.hex() + ", got " + got.hex());
  }
  return {};
}

std::string RecordReader::signed_by() const {
  if (json(kSignature) == "null") return {};
  return inside(json(kSignature)).text("key");
}

Status RecordReader::check_trusted(const Verifier& trust) const {
  std::optional<Signature> signature;
  if (json(kSignature) != "null") {
    RecordReader own = inside(json(kSignature));
    signature = Signature{own.text("key"), own.text("ed25519")};
    DW_RETURN_IF_ERROR(Status(own.status()));
  }
  return trust(without(kSignature, kSignature), signature);
}

void RecordReader::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

std::string_view RecordReader::json(std::string_view key) const {
  for (const Field& field : fields_) {
    if (field.key == key) return field.json;
  }
  return "null";
}

bool RecordReader::has(std::string_view key) const { return json(key) != "null"; }

std::string RecordReader::text(const char* key) {
  CanonicalReader reader(json(key));
  std::string text = reader.text();
  if (!reader.ok()) fail(bad_field(key, "a text"));
  return text;
}

std::string_view RecordReader::word(const char* key) {
  CanonicalReader reader(json(key));
  const std::string_view word = reader.word();
  if (!reader.ok()) fail(bad_field(key, "a text without escapes"));
  return word;
}

uint64_t RecordReader::number(const char* key) {
  CanonicalReader reader(json(key));
  const uint64_t number = reader.number();
  if (!reader.ok()) fail(bad_field(key, "a number"));
  return number;
}

std::optional<uint64_t> RecordReader::optional_number(const char* key) {
  if (!has(key)) return {};
  return number(key);
}

int64_t RecordReader::time(const char* key) {
  constexpr uint64_t kLimit = uint64_t{1} << 40;  // sums of times never overflow
  const uint64_t seconds = number(key);
  if (seconds >= kLimit) fail(bad_field(key, "a time"));
  return seconds >= kLimit ? 0 : int64_t(seconds);
}

Digest RecordReader::digest(const char* key, DigestKind kind) {
  Result<Digest> parsed = parse_digest(kind, word(key));
  if (parsed.ok()) return *parsed;
  fail(std::move(parsed).status().at(key));
  return {};
}

std::optional<Digest> RecordReader::optional_digest(const char* key, DigestKind kind) {
  if (!has(key)) return {};
  return digest(key, kind);
}

std::string RecordReader::run() {
  std::string run(word("run"));
  if (!is_run_id(run)) fail(bad_field("run", "32 hex digits"));
  return run;
}

Digest record_digest(std::string_view json) {
  return digest_of(DigestKind::kSha256, text_bytes(json));
}

}  // namespace deltawire
