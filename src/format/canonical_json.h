// Canonical JSON: keys ascending, no spaces, integers only, the shortest escapes. One value has one
// text, so that digests and signatures of a record are those of what it says.
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
// Nothing when the text is not the one encoding of some bytes.
std::optional<std::string> base64_decode(std::string_view text);

// A text in quotes. Bytes that are not UTF-8 become "?".
std::string canonical_text(std::string_view text);

// Reads from front to back and accepts nothing but the canonical form, so what it has read needs no
// second look. The first defect makes it fail for good: from then on it gives empty values, no
// items, and status() says what was expected where. Views point into the text.
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
