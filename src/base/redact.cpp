#include "base/redact.h"

#include <array>
#include <cctype>
#include <utility>

namespace deltawire {
namespace {

constexpr std::string_view kHidden = "***";

// Lower case, '-' for '_'. A name is a secret's when it ends in one of these.
constexpr std::array<std::string_view, 5> kSecretHeaders = {"authorization", "cookie", "api-key",
                                                            "security-token", "auth-token"};
// Of parameters and of JSON only: in prose "signature: expected 12, got 34" is no secret.
constexpr std::array<std::string_view, 9> kSecretParameters = {
    "signature", "credential", "apikey",        "access-key-id", "secret",
    "password",  "secret-key", "session-token", "access-token"};

char folded(char c) { return c == '_' ? '-' : char(std::tolower(static_cast<unsigned char>(c))); }

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

bool ends_with_folded(std::string_view text, std::string_view suffix) {
  if (text.size() < suffix.size()) return false;
  text.remove_prefix(text.size() - suffix.size());
  for (size_t i = 0; i < suffix.size(); ++i) {
    if (folded(text[i]) != suffix[i]) return false;
  }
  return true;
}

// Where the user and password of a URL end ('@'), when `begin` is just after "://"; npos: none.
size_t end_of_userinfo(std::string_view text, size_t begin) {
  const size_t authority_end = text.find_first_of("/?# \t\r\n\"'<>", begin);
  const std::string_view authority = text.substr(0, authority_end);
  const size_t at = authority.rfind('@');
  return at == std::string_view::npos || at < begin ? std::string_view::npos : at;
}

template <size_t n>
bool ends_with_any(std::string_view name, const std::array<std::string_view, n>& list) {
  for (const std::string_view suffix : list) {
    if (ends_with_folded(name, suffix)) return true;
  }
  return false;
}

bool is_quote(char c) { return c == '"' || c == '\''; }

// The value that follows the name of a secret, empty when none does. A header's value reaches to
// the end of the line or quote, a parameter's to the next blank, '&' or ','.
std::pair<size_t, size_t> secret_after(std::string_view text, std::string_view name, size_t end) {
  size_t at = end;
  const bool quoted = at < text.size() && is_quote(text[at]);
  if (quoted) ++at;
  while (at < text.size() && text[at] == ' ') ++at;
  if (at >= text.size() || (text[at] != ':' && text[at] != '=')) return {end, end};
  const bool header = text[at++] == ':';
  if (header && !quoted && !ends_with_any(name, kSecretHeaders)) return {end, end};
  while (at < text.size() && (text[at] == ' ' || is_quote(text[at]))) ++at;
  const size_t stop = text.find_first_of(header ? "\r\n\"'" : "&, \t\r\n\"'", at);
  return {at, stop == std::string_view::npos ? text.size() : stop};
}

void replace_all(std::string* text, std::string_view what, std::string_view with) {
  for (size_t at = 0; (at = text->find(what, at)) != std::string::npos; at += with.size()) {
    text->replace(at, what.size(), with);
  }
}

// The characters that JSON may, and libraries do, write with a backslash before them.
std::string in_json(std::string_view value, std::string_view escaped) {
  std::string out;
  for (const char c : value) {
    if (escaped.find(c) != std::string_view::npos) out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

std::string in_url(std::string_view value) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("-._~").find(c) != std::string_view::npos) {
      out.push_back(c);
    } else {
      out.append({'%', kDigits[byte >> 4], kDigits[byte & 15]});
    }
  }
  return out;
}

}  // namespace

std::string hide_secret(std::string text, const Secret& secret) {
  if (secret.empty()) return text;
  const std::string& value = secret.reveal();
  for (const std::string& form :
       {value, in_json(value, "\"\\"), in_json(value, "\"\\/"), in_url(value)}) {
    replace_all(&text, form, kHidden);
  }
  return text;
}

bool names_a_secret(std::string_view name) {
  return ends_with_any(name, kSecretHeaders) || ends_with_any(name, kSecretParameters);
}

std::string redact(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  while (at < text.size()) {
    if (text.substr(at).starts_with("://")) {
      out.append("://");
      at += 3;
      if (const size_t end = end_of_userinfo(text, at); end != std::string_view::npos) {
        out.append(kHidden);
        at = end;
      }
    } else if (is_name_character(text[at])) {
      const size_t begin = at;
      while (at < text.size() && is_name_character(text[at])) ++at;
      const std::string_view name = text.substr(begin, at - begin);
      out.append(name);
      if (!names_a_secret(name)) continue;
      const auto [value, end] = secret_after(text, name, at);
      if (value == end) continue;
      out.append(text.substr(at, value - at)).append(kHidden);
      at = end;
    } else {
      out.push_back(text[at++]);
    }
  }
  return out;
}

}  // namespace deltawire
