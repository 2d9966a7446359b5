#include "store/s3/wire/answers.h"

#include <charconv>
#include <chrono>
#include <cstdio>

#include "store/s3/wire/xml.h"

namespace deltawire::s3 {
namespace {

Result<uint64_t> parse_number(const std::string& text) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return corruption("a size is not a number");
  return value;
}

}  // namespace

Result<int64_t> parse_time(std::string_view text) {
  int year, month, day, hour, minute, second;
  const std::string copy(text);
  if (std::sscanf(copy.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d", &year, &month, &day, &hour, &minute,
                  &second) != 6 ||
      !copy.ends_with('Z')) {
    return corruption("not a time");
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(unsigned(month)),
                                         std::chrono::day(unsigned(day))};
  if (!date.ok() || hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 ||
      second > 60) {
    return corruption("not a time");
  }
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return int64_t(days) * 86400 + hour * 3600 + minute * 60 + second;
}

ErrorAnswer parse_error(std::string_view xml) {
  ErrorAnswer answer;
  const Status read = read_elements(xml, [&](std::string_view path, const std::string& text) {
    if (path == "/Error/Code") answer.code = text;
    if (path == "/Error/Message") answer.message = text;
    if (path == "/Error/RequestId") answer.request_id = text;
    if (path == "/Error/Region") answer.region = text;
    return Status();
  });
  return read.ok() ? answer : ErrorAnswer();
}

Result<ListAnswer> parse_list(std::string_view xml) {
  ListAnswer answer;
  ListedObject object;
  bool is_list = false, truncated = false;
  const auto on_close = [&](std::string_view path, const std::string& text) -> Status {
    constexpr std::string_view kRoot = "/ListBucketResult";
    if (!path.starts_with(kRoot)) return {};
    path.remove_prefix(kRoot.size());
    if (path.empty()) is_list = true;
    if (path == "/IsTruncated") truncated = text == "true";
    if (path == "/NextContinuationToken") answer.continuation_token = text;
    if (path == "/Contents/Key") object.key = text;
    if (path == "/Contents/Size") {
      DW_ASSIGN_OR_RETURN(object.size_bytes, parse_number(text));
    }
    if (path == "/Contents/LastModified") {
      DW_ASSIGN_OR_RETURN(object.modified, parse_time(text));
    }
    if (path == "/Contents") {
      if (object.key.empty()) return corruption("a listed object has no key");
      answer.objects.push_back(std::move(object));
      object = {};
    }
    return {};
  };
  DW_RETURN_IF_ERROR(read_elements(xml, on_close));
  if (!is_list) return corruption("not a ListBucketResult");
  if (!truncated) answer.continuation_token.clear();
  if (truncated && answer.continuation_token.empty()) {
    return corruption("a truncated list without a continuation token");
  }
  return answer;
}

Result<std::string> parse_upload_id(std::string_view xml) {
  std::string id;
  DW_RETURN_IF_ERROR(read_elements(xml, [&](std::string_view path, const std::string& text) {
    if (path == "/InitiateMultipartUploadResult/UploadId") id = text;
    return Status();
  }));
  if (id.empty()) return corruption("an upload without an id");
  return id;
}

bool is_completed(std::string_view xml) {
  bool completed = false;
  const Status read = read_elements(xml, [&](std::string_view path, const std::string&) {
    if (path == "/CompleteMultipartUploadResult") completed = true;
    return Status();
  });
  return read.ok() && completed;
}

}  // namespace deltawire::s3
