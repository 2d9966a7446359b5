#include "format/canonical_json.h"

#include <openssl/evp.h>
#include <array>
#include <charconv>

#include "base/bytes.h"
#include "base/text.h"
#include "tensor/text.h"

namespace deltawire {

std::string base64_encode(std::string_view bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL adds a zero byte
  const int size =
      EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                      reinterpret_cast<const unsigned char*>(bytes.data()), int(bytes.size()));
  text.resize(size_t(size));
  return text;
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return {};
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                      reinterpret_cast<const unsigned char*>(text.data()), int(text.size()));
  if (size < 0) return {};
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  bytes.resize(size_t(size) - padding);
  // Padding bits and stray characters that OpenSSL forgives.
  if (base64_encode(bytes) != text) return {};
  return bytes;
}

namespace {

constexpr unsigned kMaxDepth = 16;  // no record of ours is half as deep

struct ShortEscape {
  char byte, letter;
};
constexpr ShortEscape kShortEscapes[] = {{'"', '"'},  {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'},
                                         {'\n', 'n'}, {'\r', 'r'},  {'\t', 't'}};

// Bytes that stand for themselves; the others end the fast scan.
constexpr std::array<bool, 256> plain_bytes() {
  std::array<bool, 256> plain{};
  for (int c = 0x20; c < 0x80; ++c) plain[size_t(c)] = c != '"' && c != '\\';
  return plain;
}
constexpr std::array<bool, 256> kPlain = plain_bytes();

void append_escaped(std::string* out, char c) {
  for (const ShortEscape& known : kShortEscapes) {
    if (c == known.byte) {
      out->push_back('\\');
      out->push_back(known.letter);
      return;
    }
  }
  out->append("\\u00").append(to_hex(std::string_view(&c, 1)));
}

size_t plain_length(std::string_view text, size_t from) {
  size_t at = from;
  while (at < text.size() && kPlain[uint8_t(text[at])]) ++at;
  return at - from;
}

void append_canonical(std::string* out, std::string_view text) {
  size_t at = plain_length(text, 0);
  out->append(text.substr(0, at));
  if (at == text.size()) return;
  const bool utf8 = is_utf8(text);
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (uint8_t(c) < 0x20 || c == '"' || c == '\\') {
      append_escaped(out, c);
    } else {
      out->push_back(uint8_t(c) < 0x80 || utf8 ? c : '?');
    }
  }
}

}  // namespace

std::string canonical_text(std::string_view text) {
  std::string out = "\"";
  append_canonical(&out, text);
  out.push_back('"');
  return out;
}

Status CanonicalReader::status() const {
  if (ok()) return {};
  return corruption("not canonical JSON: byte " + std::to_string(at_) + ": expected " + expected_);
}

void CanonicalReader::fail(std::string_view expected) {
  if (ok()) expected_ = expected;
}

bool CanonicalReader::take(char c, std::string_view expected) {
  if (ok() && peek() == c && at_ < text_.size()) {
    ++at_;
    return true;
  }
  fail(expected);
  return false;
}

bool CanonicalReader::take_null() {
  if (!ok() || !text_.substr(at_).starts_with("null")) return false;
  at_ += 4;
  return true;
}

uint64_t CanonicalReader::number() {
  uint64_t value = 0;
  const char *begin = text_.data() + at_, *end = text_.data() + text_.size();
  const auto [stop, error] = std::from_chars(begin, end, value);
  const bool leading_zero = stop - begin > 1 && *begin == '0';
  if (!ok() || error != std::errc() || leading_zero) {
    fail("a number from 0 to 2^64 - 1");
    return 0;
  }
  at_ += size_t(stop - begin);
  return value;
}

std::string_view CanonicalReader::word() {
  if (!take('"', "a text")) return {};
  const std::string_view word = text_.substr(at_, plain_length(text_, at_));
  at_ += word.size();
  return take('"', "a text without escapes") ? word : std::string_view();
}

// Reads the characters after a backslash.
char CanonicalReader::escape() {
  const char letter = peek();
  for (const ShortEscape& known : kShortEscapes) {
    if (letter == known.letter) {
      ++at_;
      return known.byte;
    }
  }
  const std::string_view code = text_.substr(at_, 5);
  uint8_t byte = 0xff;
  if (code.size() == 5 && code.starts_with("u00")) {
    std::from_chars(code.data() + 3, code.data() + 5, byte, 16);
  }
  std::string back;
  if (byte < 0x20) append_escaped(&back, char(byte));
  if (back.substr(back.empty() ? 0 : 1) != code) {
    fail("the shortest escape");
    return '\0';
  }
  at_ += code.size();
  return char(byte);
}

std::string CanonicalReader::text() {
  std::string out;
  if (!take('"', "a text")) return out;
  bool ascii = true;
  while (ok()) {
    const std::string_view plain = text_.substr(at_, plain_length(text_, at_));
    out.append(plain);
    at_ += plain.size();
    if (at_ == text_.size() || uint8_t(text_[at_]) < 0x20) {
      fail("the end of a text");
    } else if (text_[at_] == '"') {
      ++at_;
      break;
    } else if (text_[at_] == '\\') {
      ++at_;
      out.push_back(escape());
    } else {
      ascii = false;
      out.push_back(text_[at_++]);
    }
  }
  if (!ascii && !is_utf8(out)) fail("UTF-8");
  return ok() ? out : std::string();
}

void CanonicalReader::skip_text() {
  const size_t end = at_ + 1 + plain_length(text_, at_ + 1);
  if (end < text_.size() && text_[end] == '"') {
    at_ = end + 1;
  } else {
    text();
  }
}

bool CanonicalReader::open(char c, std::string_view expected) {
  if (!take(c, expected)) return false;
  frames_.emplace_back();
  return true;
}

void CanonicalReader::open_list() { open('[', "a list"); }

bool CanonicalReader::next_item() {
  if (!ok()) return false;
  if (peek() == ']') {
    ++at_;
    frames_.pop_back();
    return false;
  }
  if (!frames_.back().first && !take(',', "a comma or the end of the list")) return false;
  frames_.back().first = false;
  return true;
}

CanonicalReader& CanonicalReader::item() {
  if (ok() && !next_item()) fail("another item");
  return *this;
}

void CanonicalReader::close_list() {
  if (ok() && next_item()) fail("the end of the list");
}

void CanonicalReader::open_object() { open('{', "an object"); }

bool CanonicalReader::next_member(std::string* key) {
  if (!ok()) return false;
  if (peek() == '}') {
    ++at_;
    frames_.pop_back();
    return false;
  }
  Frame& frame = frames_.back();
  if (!frame.first && !take(',', "a comma or the end of the object")) return false;
  *key = text();
  if (!frame.first && *key <= frame.key) fail("keys in ascending order");
  frame.first = false;
  frame.key = *key;
  return take(':', "a colon");
}

void CanonicalReader::skip(unsigned depth) {
  if (depth == kMaxDepth) return fail("fewer levels");
  std::string key;
  switch (peek()) {
    case '{':
      for (open_object(); next_member(&key);) skip(depth + 1);
      return;
    case '[':
      for (open_list(); next_item();) skip(depth + 1);
      return;
    case '"':
      skip_text();
      return;
    default:
      if (!take_null()) number();
  }
}

std::string_view CanonicalReader::skip() {
  const size_t begin = at_;
  skip(0);
  return ok() ? text_.substr(begin, at_ - begin) : std::string_view();
}

void CanonicalReader::finish() {
  if (at_ != text_.size()) fail("the end");
}

}  // namespace deltawire
