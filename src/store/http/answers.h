// Parses answers of a chain's server, which is not trusted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deltawire/store.h"

namespace deltawire::http {

// {"objects": [{"name", "size", "modified"}]}: at most `limit` objects, in byte order of their
// names.
Result<std::vector<ObjectInfo>> parse_listing(const std::string& text, size_t limit);

// An object of a version that is not committed yet.
struct AnnouncedObject {
  uint64_t number = 0;  // the server's
  std::string name = {};
  uint64_t size_bytes = 0;
};
struct NewsAnswer {
  std::string news = {};                    // changes with each version
  std::vector<AnnouncedObject> parts = {};  // numbers grow
};
Result<NewsAnswer> parse_news(const std::string& text);

}  // namespace deltawire::http
