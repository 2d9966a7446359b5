// What all records of a chain share: canonical JSON with a format, a checksum of its own and,
// optionally, a signature. docs/format.md, "The chain".
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltawire/digest.h"
#include "deltawire/status.h"
#include "format/canonical_json.h"

namespace deltawire {

// Ed25519 over the canonical JSON without its "signature".
struct Signature {
  std::string key;    // public key, 64 hex digits
  std::string bytes;  // 128 hex digits
};
// Makes a signature of a text; null where nothing is signed.
using Signer = std::function<Result<Signature>(std::string_view text)>;
// Ok, or why a record with this signature (or none) is rejected.
using Verifier =
    std::function<Status(std::string_view text, const std::optional<Signature>& signature)>;

inline constexpr size_t kRunDigits = 32;
bool is_run_id(std::string_view text);  // 32 hex digits

// "field": expected ...
Status bad_field(std::string_view field, std::string_view expected);

// Digests of one kind, one after the other, in base64.
std::string join_digests(const std::vector<Digest>& digests);
Result<std::vector<Digest>> split_digests(std::string_view field, DigestKind kind,
                                          std::string_view text);

// Members in any order; the text has them sorted.
class RecordWriter {
 public:
  RecordWriter() = default;  // an object inside a record
  explicit RecordWriter(std::string_view format) { text("format", format); }

  void text(const char* key, std::string_view value) { fields_[key] = canonical_text(value); }
  void number(const char* key, uint64_t value) { fields_[key] = std::to_string(value); }
  void number(const char* key, const std::optional<uint64_t>& value);  // none: null
  void digest(const char* key, const std::optional<Digest>& value);    // none: null
  void json(const char* key, std::string value) { fields_[key] = std::move(value); }

  // The text so far, without a checksum.
  std::string plain() const;
  // With its checksum, and a signature when there is a key to make one.
  Result<std::string> finish(const Signer& sign) &&;

 private:
  std::map<std::string, std::string> fields_;  // key -> canonical JSON
};

// A record opened for reading; its members are read by name. The first wrong field is remembered,
// so callers check status() once at the end.
class RecordReader {
 public:
  // Parsed, canonical and of this format. Views into `text`. Unsupported for another format.
  static Result<RecordReader> open(std::string_view text, std::string_view format);
  // The same, whole (its checksum holds) and trusted.
  static Result<RecordReader> open(std::string_view text, std::string_view format,
                                   const Verifier& trust);
  // An object inside a record.
  static RecordReader inside(std::string_view object);

  const Status& status() const { return status_; }
  void fail(Status status);

  bool has(std::string_view key) const;  // present and not null
  std::string text(const char* key);
  std::string_view word(const char* key);  // a text without escapes
  uint64_t number(const char* key);
  std::optional<uint64_t> optional_number(const char* key);
  int64_t time(const char* key);  // seconds since 1970
  Digest digest(const char* key, DigestKind kind);
  std::optional<Digest> optional_digest(const char* key, DigestKind kind);
  std::string run();
  std::string signed_by() const;  // the key that "signature" names, checked or not; empty: none
  // The member's JSON, canonical; "null" when there is none.
  std::string_view json(std::string_view key) const;
  // The record without these members: what checksums and signatures are of.
  std::string without(std::string_view a, std::string_view b) const;

 private:
  struct Field {
    std::string key;
    std::string_view json;  // its value
    std::string_view both;  // "key":value
  };
  Status read(std::string_view text);
  Status check_whole() const;
  Status check_trusted(const Verifier& trust) const;

  std::vector<Field> fields_;
  Status status_;
};

// Digest of the bytes of a record: what links point to. sha-256.
Digest record_digest(std::string_view json);

}  // namespace deltawire
