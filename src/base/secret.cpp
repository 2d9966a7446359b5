#include "base/secret.h"

#include <algorithm>
#include <string_view>

#include "base/file.h"
#include "base/text.h"

namespace deltawire {

Result<Secret> read_secret(const std::filesystem::path& file) {
  constexpr uint64_t kMaxBytes = 4096;
  if (file.empty()) return Secret();
  DW_ASSIGN_OR_RETURN(std::string text, read_text_file(file, kMaxBytes));
  text.resize(std::min(text.find_first_of("\r\n"), text.size()));
  if (text.empty()) return invalid_argument(file.string() + ": contains no secret");
  return Secret(std::move(text));
}

namespace {

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

}  // namespace

std::string hide_secret(std::string text, const Secret& secret) {
  if (secret.empty()) return text;
  const std::string& value = secret.reveal();
  for (const std::string& form :
       {value, in_json(value, "\"\\"), in_json(value, "\"\\/"), percent_encode(value, false)}) {
    replace_all(&text, form, "***");
  }
  return text;
}

}  // namespace deltawire
