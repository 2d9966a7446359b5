// One file of a foreign version, mapped or in memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/file.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// Numbers in file names, as Python's "%06d" writes them.
inline std::string padded_number(uint64_t number, size_t min_digits) {
  std::string text = std::to_string(number);
  if (text.size() < min_digits) text.insert(0, min_digits - text.size(), '0');
  return text;
}

// The number, or none where padded_number() would not have written `text`: one file has one name.
std::optional<uint64_t> parse_padded_number(std::string_view text, size_t min_digits) noexcept;

// Takes `prefix`, a number and `suffix` apart; none where `text` is not made of them.
std::optional<uint64_t> parse_numbered_name(std::string_view text, std::string_view prefix,
                                            size_t min_digits, std::string_view suffix) noexcept;

// Mapped if the store is a local folder, otherwise fetched into memory. A handle: copies share the
// bytes. Thread-safe.
class ForeignFile {
 public:
  static Result<ForeignFile> open(Store& store, const ObjectInfo& info);

  const std::string& where() const noexcept { return where_; }  // "STORE/NAME", for messages
  Bytes bytes() const noexcept { return bytes_; }
  // Io when a mapped file was cut off or written to since it was opened.
  Status check_unchanged() const { return mapped_ ? mapped_->check_unchanged() : Status(); }
  // Distinguishes the content from others of the same size: a digest of the file or, for a large
  // file, of samples from all parts of it.
  std::string sample() const;

 private:
  std::string where_;
  Bytes bytes_;
  std::shared_ptr<MappedFile> mapped_;
  std::shared_ptr<uint8_t[]> fetched_;
};

}  // namespace deltawire
