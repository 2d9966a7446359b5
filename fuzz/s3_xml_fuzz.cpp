// Answers of a hostile S3 server: no XML makes a reader crash, hang or allocate too much.
#include <cstdint>
#include <cstdlib>

#include "store/s3/answers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view xml(reinterpret_cast<const char*>(data), size);
  size_t text_bytes = 0;
  const deltawire::Status read =
      deltawire::s3::read_elements(xml, [&](std::string_view, const std::string& text) {
        text_bytes += text.size();
        return deltawire::Status();
      });
  if (text_bytes > size) std::abort();  // nothing expands
  static_cast<void>(deltawire::s3::parse_error(xml));
  static_cast<void>(deltawire::s3::parse_list(xml));
  static_cast<void>(deltawire::s3::parse_upload_id(xml));
  static_cast<void>(deltawire::s3::is_completed(xml));
  return 0;
}
