// The XML of an S3 server, which is not trusted, and what it says as structs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire::s3 {

// Calls `on_close` with the path ("/ListBucketResult/Contents/Key", without namespaces) and the own
// text of every element as it closes: children before their parents. Any defect is Corruption with
// its byte offset. A document type is refused, so that no entity is ever defined; depth and size
// are limited.
Status read_elements(
    std::string_view xml,
    const std::function<Status(std::string_view path, const std::string& text)>& on_close);

// For XML that is sent.
std::string xml_escape(std::string_view text);

struct ErrorAnswer {
  std::string code;  // "NoSuchBucket"; empty when the body is not S3's
  std::string message;
  std::string request_id;
  std::string region;  // of AuthorizationHeaderMalformed and PermanentRedirect
};
// Never fails: an answer that cannot be read is one without a code.
ErrorAnswer parse_error(std::string_view xml);

struct ListedObject {
  std::string key;
  uint64_t size_bytes = 0;
  int64_t modified = 0;
};
struct ListAnswer {
  std::vector<ListedObject> objects;
  std::string continuation_token;  // empty: this is the last page
};
Result<ListAnswer> parse_list(std::string_view xml);

// Of CreateMultipartUpload.
Result<std::string> parse_upload_id(std::string_view xml);

// CompleteMultipartUpload may fail after its 200 was sent: then the body is an error. True when it
// says that the object is there.
bool is_completed(std::string_view xml);

// "2009-10-12T17:50:30.000Z" in seconds since 1970; Corruption when it is none.
Result<int64_t> parse_time(std::string_view text);

}  // namespace deltawire::s3
