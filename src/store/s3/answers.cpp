#include "store/s3/answers.h"

#include <expat.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/guard.h"
#include "base/text.h"
#include "http/http_client.h"

namespace deltawire::s3 {
namespace {

constexpr size_t kMaxDepth = 32;

// What expat's callbacks share. They may be called again after XML_StopParser, and no exception may
// pass through them.
struct Reading {
  XML_Parser parser;
  const std::function<Status(std::string_view path, const std::string& text)>& on_close;
  std::string path = {};
  std::vector<std::string> texts = {};  // of the open elements
  Status failed = {};

  template <class Work>
  void guarded(const Work& work) {
    if (!failed.ok()) return;
    failed = guard_memory("reading XML", work);
    if (!failed.ok()) XML_StopParser(parser, XML_FALSE);
  }
  Status defect(std::string_view what) const {
    return corruption("XML at byte " + std::to_string(XML_GetCurrentByteIndex(parser)) + ": " +
                      std::string(what));
  }
};

Reading& reading_of(void* user) { return *static_cast<Reading*>(user); }

void on_start(void* user, const char* name, const char**) {
  Reading& reading = reading_of(user);
  reading.guarded([&]() -> Status {
    if (reading.texts.size() == kMaxDepth) return reading.defect("elements are nested too deep");
    std::string_view own = name;
    own.remove_prefix(own.rfind(':') + 1);  // of its namespace; npos + 1 is 0
    reading.path.append("/").append(own);
    reading.texts.emplace_back();
    return {};
  });
}

void on_end(void* user, const char*) {
  Reading& reading = reading_of(user);
  reading.guarded([&]() -> Status {
    DW_RETURN_IF_ERROR(reading.on_close(reading.path, reading.texts.back()));
    reading.texts.pop_back();
    reading.path.resize(reading.path.rfind('/'));
    return {};
  });
}

void on_text(void* user, const char* text, int size) {
  Reading& reading = reading_of(user);
  reading.guarded([&]() -> Status {
    reading.texts.back().append(text, size_t(size));
    return {};
  });
}

void on_doctype(void* user, const char*, const char*, const char*, int) {
  Reading& reading = reading_of(user);
  reading.guarded([&] { return reading.defect("a document type is not accepted"); });
}

}  // namespace

Status read_elements(
    std::string_view xml,
    const std::function<Status(std::string_view path, const std::string& text)>& on_close) {
  if (xml.size() > HttpClient::kMaxTextBytes) return corruption("XML of more than 8 MiB");
  // Servers send white space to keep a connection open while they work.
  xml.remove_prefix(std::min(xml.size(), xml.find_first_not_of(" \t\r\n")));
  const std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)> parser(
      XML_ParserCreate("UTF-8"), XML_ParserFree);
  if (parser == nullptr) return out_of_memory("reading XML");
  Reading reading{parser.get(), on_close};
  XML_SetUserData(parser.get(), &reading);
  XML_SetElementHandler(parser.get(), on_start, on_end);
  XML_SetCharacterDataHandler(parser.get(), on_text);
  XML_SetStartDoctypeDeclHandler(parser.get(), on_doctype);
  const XML_Status status = XML_Parse(parser.get(), xml.data(), int(xml.size()), XML_TRUE);
  if (!reading.failed.ok()) return std::move(reading.failed);
  if (status == XML_STATUS_OK) return {};
  const XML_Error error = XML_GetErrorCode(parser.get());
  if (error == XML_ERROR_NO_MEMORY) return out_of_memory("reading XML");
  return reading.defect(XML_ErrorString(error));
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
    if (path == "/Contents/Size" && !parse_number(text, &object.size_bytes)) {
      return corruption("a size is not a number");
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
