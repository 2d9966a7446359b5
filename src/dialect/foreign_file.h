// One file of a foreign version, at hand as bytes.
#pragma once

#include <memory>
#include <string>

#include "base/allocate.h"
#include "base/bytes.h"
#include "base/file.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// Mapped where the store is a local folder, else fetched into memory. A handle; copies share the
// bytes. Thread-safe.
class ForeignFile {
 public:
  static Result<ForeignFile> open(Store& store, const ObjectInfo& info);

  const std::string& where() const noexcept { return where_; }  // "STORE/NAME", for messages
  Bytes bytes() const noexcept { return bytes_; }
  // Io when a mapped file was cut off or written to since it was opened.
  Status check_unchanged() const { return mapped_ ? mapped_->check_unchanged() : Status(); }
  // Tells its content from others of the same size: a digest of it, or, of a large file, of pieces
  // all over it.
  std::string sample() const;

 private:
  std::string where_;
  Bytes bytes_;
  std::shared_ptr<MappedFile> mapped_;
  std::shared_ptr<uint8_t[]> fetched_;
};

}  // namespace deltawire
