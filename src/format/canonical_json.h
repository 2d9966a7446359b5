// Canonical JSON: keys ascending, no spaces, integers only, the shortest escapes. Each value has
// exactly one text, so that the digest of a record depends only on its contents.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

// Base64 (RFC 4648, padded) through OpenSSL.
std::string base64_encode(std::string_view bytes);
// None unless the text is the canonical encoding of some bytes.
std::optional<std::string> base64_decode(std::string_view text);

// A text in quotes. Bytes that are not UTF-8 become "?".
std::string canonical_text(std::string_view text);

// Reads from front to back and accepts only the canonical form. After the first defect it returns
// empty values and no items, and status() says what was expected where. Views point into the text.
class CanonicalReader {
 public:
  explicit CanonicalReader(std::string_view text) : text_(text) {}

  bool ok() const noexcept { return expected_.empty(); }
  Status status() const;  // Corruption, naming the byte
  size_t offset() const noexcept { return at_; }

  char peek() const noexcept { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take_null();  // true when the next value is null
  uint64_t number();
  std::string text();
  std::string_view word();  // a text that needs no escapes
  // Passes over any value, checking all of it; returns its text.
  std::string_view skip();

  // for (reader.open_list(); reader.next_item();) ...
  void open_list();
  bool next_item();
  // The next item of a list that must have one: a missing one makes the reader fail.
  CanonicalReader& item();
  void close_list();  // no item may follow
  // for (reader.open_object(); reader.next_member(&key);) ...
  void open_object();
  bool next_member(std::string* key);
  void finish();  // nothing may follow

 private:
  struct Frame {
    bool first = true;
    std::string key;
  };
  bool take(char c, std::string_view expected);
  bool open(char c, std::string_view expected);
  void fail(std::string_view expected);
  char escape();
  void skip(unsigned depth);
  void skip_text();

  std::string_view text_;
  size_t at_ = 0;
  std::vector<Frame> frames_;
  std::string expected_;
};

}  // namespace deltawire
