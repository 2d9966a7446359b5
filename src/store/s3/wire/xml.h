// The XML that S3 answers with, read defensively: a store is not trusted.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire::s3 {

// A pull parser for the part of XML that data uses: elements, text, CDATA, the five named entities
// and character references. Attributes, comments and processing instructions are read over. A
// document type is refused, so that no entity is ever defined; depth is limited; memory is bounded
// by the input. Any defect is Corruption with its byte offset. The input must outlive the reader.
class XmlReader {
 public:
  enum class Event { kOpen, kText, kClose, kEnd };

  explicit XmlReader(std::string_view xml) : xml_(xml) {}

  // After kEnd or an error it must not be called again.
  Result<Event> next();
  std::string_view name() const { return name_; }    // of kOpen and kClose, without "ns:"
  const std::string& text() const { return text_; }  // of kText, decoded

 private:
  Status defect(const char* what) const;
  Result<Event> open();
  Result<Event> close();
  Result<Event> character_data();
  Status skip_past(std::string_view end, const char* what);
  Status skip_attributes();
  Status decode_reference();
  std::string_view take_name();
  void skip_space();

  std::string_view xml_;
  size_t at_ = 0;
  std::vector<std::string_view> open_;  // full names, to match the closing tags
  std::string_view name_;
  std::string text_;
  bool seen_root_ = false;
  bool empty_element_ = false;  // "<a/>" was opened: its close comes next
};

// Calls `on_close` with the path ("/ListBucketResult/Contents/Key") and the own text of every
// element as it closes: children before their parents.
Status read_elements(
    std::string_view xml,
    const std::function<Status(std::string_view path, const std::string& text)>& on_close);

// For what we send ourselves.
std::string xml_escape(std::string_view text);

}  // namespace deltawire::s3
