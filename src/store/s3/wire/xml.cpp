#include "store/s3/wire/xml.h"

#include <cstdint>

namespace deltawire::s3 {
namespace {

constexpr size_t kMaxDepth = 32;
constexpr std::string_view kSpace = " \t\r\n";

bool name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == ':';
}

std::string_view without_namespace(std::string_view name) {
  const size_t colon = name.rfind(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

bool append_utf8(uint32_t c, std::string* out) {
  if (c == 0 || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return false;
  if (c < 0x80) {
    out->push_back(char(c));
  } else if (c < 0x800) {
    out->push_back(char(0xC0 | c >> 6));
    out->push_back(char(0x80 | (c & 63)));
  } else if (c < 0x10000) {
    out->push_back(char(0xE0 | c >> 12));
    out->push_back(char(0x80 | (c >> 6 & 63)));
    out->push_back(char(0x80 | (c & 63)));
  } else {
    out->push_back(char(0xF0 | c >> 18));
    out->push_back(char(0x80 | (c >> 12 & 63)));
    out->push_back(char(0x80 | (c >> 6 & 63)));
    out->push_back(char(0x80 | (c & 63)));
  }
  return true;
}

// "#65" or "#x41"
bool append_character(std::string_view reference, std::string* out) {
  const bool is_hex = reference.starts_with("#x");
  reference.remove_prefix(is_hex ? 2 : 1);
  if (reference.empty() || reference.size() > 7) return false;
  uint32_t c = 0;
  for (const char digit : reference) {
    uint32_t value = 16;
    if (digit >= '0' && digit <= '9') value = uint32_t(digit - '0');
    if (is_hex && digit >= 'a' && digit <= 'f') value = uint32_t(digit - 'a' + 10);
    if (is_hex && digit >= 'A' && digit <= 'F') value = uint32_t(digit - 'A' + 10);
    if (value >= (is_hex ? 16U : 10U)) return false;
    c = c * (is_hex ? 16 : 10) + value;
  }
  return append_utf8(c, out);
}

}  // namespace

Status XmlReader::defect(const char* what) const {
  return corruption("XML at byte " + std::to_string(at_) + ": " + what);
}

void XmlReader::skip_space() {
  while (at_ < xml_.size() && kSpace.find(xml_[at_]) != kSpace.npos) ++at_;
}

std::string_view XmlReader::take_name() {
  const size_t start = at_;
  while (at_ < xml_.size() && name_char(xml_[at_])) ++at_;
  return xml_.substr(start, at_ - start);
}

Status XmlReader::skip_past(std::string_view end, const char* what) {
  const size_t found = xml_.find(end, at_);
  if (found == xml_.npos) return defect(what);
  at_ = found + end.size();
  return {};
}

Result<XmlReader::Event> XmlReader::next() {
  if (empty_element_) {
    empty_element_ = false;
    name_ = without_namespace(open_.back());
    open_.pop_back();
    return Event::kClose;
  }
  while (true) {
    if (open_.empty()) {  // before the root or after it
      skip_space();
      if (at_ == xml_.size()) return seen_root_ ? Result<Event>(Event::kEnd) : defect("no element");
      if (xml_[at_] != '<') return defect("text outside of the root element");
    }
    const std::string_view rest = xml_.substr(at_);
    if (rest.starts_with("<?")) {
      DW_RETURN_IF_ERROR(skip_past("?>", "a processing instruction does not end"));
    } else if (rest.starts_with("<!--")) {
      at_ += 4;
      DW_RETURN_IF_ERROR(skip_past("-->", "a comment does not end"));
    } else if (rest.starts_with("</")) {
      return close();
    } else if (rest.starts_with("<!") && !rest.starts_with("<![CDATA[")) {
      return defect("a document type is not accepted");
    } else if (rest.starts_with("<") && !rest.starts_with("<![CDATA[")) {
      return open();
    } else if (open_.empty()) {
      return defect("text outside of the root element");
    } else {
      return character_data();
    }
  }
}

Result<XmlReader::Event> XmlReader::open() {
  if (open_.empty() && seen_root_) return defect("a second root element");
  if (open_.size() == kMaxDepth) return defect("elements are nested too deep");
  ++at_;
  const std::string_view name = take_name();
  if (name.empty()) return defect("an element has no name");
  DW_RETURN_IF_ERROR(skip_attributes());
  if (xml_[at_] == '/') {
    ++at_;
    if (at_ == xml_.size() || xml_[at_] != '>') return defect("expected '>'");
    empty_element_ = true;
  }
  ++at_;
  seen_root_ = true;
  open_.push_back(name);
  name_ = without_namespace(name);
  return Event::kOpen;
}

// Ends at '>' or '/'.
Status XmlReader::skip_attributes() {
  while (true) {
    skip_space();
    if (at_ == xml_.size()) return defect("an element does not end");
    if (xml_[at_] == '>' || xml_[at_] == '/') return {};
    if (take_name().empty()) return defect("expected the name of an attribute");
    skip_space();
    if (at_ == xml_.size() || xml_[at_] != '=') return defect("an attribute has no value");
    ++at_;
    skip_space();
    if (at_ == xml_.size() || (xml_[at_] != '"' && xml_[at_] != '\'')) {
      return defect("the value of an attribute is not quoted");
    }
    const char quote = xml_[at_++];
    DW_RETURN_IF_ERROR(skip_past({&quote, 1}, "the value of an attribute does not end"));
  }
}

Result<XmlReader::Event> XmlReader::close() {
  at_ += 2;
  const std::string_view name = take_name();
  skip_space();
  if (at_ == xml_.size() || xml_[at_] != '>') return defect("a closing tag does not end");
  if (open_.empty() || open_.back() != name) return defect("a closing tag does not match");
  ++at_;
  open_.pop_back();
  name_ = without_namespace(name);
  return Event::kClose;
}

Result<XmlReader::Event> XmlReader::character_data() {
  text_.clear();
  while (true) {
    if (at_ == xml_.size()) return defect("an element does not end");
    if (xml_[at_] == '&') {
      DW_RETURN_IF_ERROR(decode_reference());
    } else if (xml_.substr(at_).starts_with("<![CDATA[")) {
      const size_t start = at_ += 9;
      DW_RETURN_IF_ERROR(skip_past("]]>", "a CDATA section does not end"));
      text_.append(xml_.substr(start, at_ - 3 - start));
    } else if (xml_[at_] == '<') {
      return Event::kText;
    } else {
      const size_t end = xml_.find_first_of("<&", at_);
      text_.append(xml_.substr(at_, end == xml_.npos ? end : end - at_));
      at_ = end == xml_.npos ? xml_.size() : end;
    }
  }
}

Status XmlReader::decode_reference() {
  static constexpr std::pair<std::string_view, char> kNamed[] = {
      {"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
  constexpr size_t kLongest = 10;  // "#x" and seven digits
  const size_t end = xml_.substr(at_, kLongest + 2).find(';');
  if (end == xml_.npos) return defect("an entity does not end");
  const std::string_view name = xml_.substr(at_ + 1, end - 1);
  bool known = name.starts_with('#') && append_character(name, &text_);
  for (const auto& [entity, character] : kNamed) {
    if (name == entity) {
      text_.push_back(character);
      known = true;
    }
  }
  if (!known) return defect("an entity is not known");
  at_ += end + 1;
  return {};
}

Status read_elements(
    std::string_view xml,
    const std::function<Status(std::string_view path, const std::string& text)>& on_close) {
  XmlReader reader(xml);
  std::string path;
  std::vector<std::string> texts;
  while (true) {
    DW_ASSIGN_OR_RETURN(const XmlReader::Event event, reader.next());
    switch (event) {
      case XmlReader::Event::kOpen:
        path.append("/").append(reader.name());
        texts.emplace_back();
        break;
      case XmlReader::Event::kText:
        texts.back().append(reader.text());
        break;
      case XmlReader::Event::kClose:
        DW_RETURN_IF_ERROR(on_close(path, texts.back()));
        texts.pop_back();
        path.resize(path.size() - reader.name().size() - 1);
        break;
      case XmlReader::Event::kEnd:
        return {};
    }
  }
}

std::string xml_escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out.append("&amp;");
        break;
      case '<':
        out.append("&lt;");
        break;
      case '>':
        out.append("&gt;");
        break;
      case '"':
        out.append("&quot;");
        break;
      default:
        out.push_back(c);
    }
  }
  return out;
}

}  // namespace deltawire::s3
