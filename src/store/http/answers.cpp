#include "store/http/answers.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/text.h"

namespace deltawire::http {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxNewsBytes = 20;  // digits of a number
constexpr size_t kMaxParts = 1000;

// The list in `json` under `key`; null: there is none.
const Json* list_in(const Json& json, const char* key) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(key);
  return found != json.end() && found->is_array() ? &*found : nullptr;
}

bool size_in(const Json& json, uint64_t* size) {
  const Json value = json.is_object() ? json.value("size", Json()) : Json();
  if (value.is_number_unsigned()) *size = value.get<uint64_t>();
  return value.is_number_unsigned();
}

}  // namespace

Result<std::vector<ObjectInfo>> parse_listing(const std::string& text, size_t limit) {
  const Status bad = corruption("malformed listing");
  const Json json = parse_json(text);
  const Json* const objects = list_in(json, "objects");
  if (objects == nullptr || objects->size() > limit) return bad;
  std::vector<ObjectInfo> found;
  for (const Json& one : *objects) {
    ObjectInfo info{.name = string_in(one, "name")};
    if (!check_object_name(info.name).ok() || !size_in(one, &info.size_bytes)) return bad;
    if (!one.value("modified", Json()).is_number_integer()) return bad;
    info.modified = one["modified"].get<int64_t>();
    if (!found.empty() && info.name <= found.back().name) return bad;
    found.push_back(std::move(info));
  }
  return found;
}

Result<NewsAnswer> parse_news(const std::string& text) {
  const Status bad = corruption("malformed answer to a request for changes");
  const Json json = parse_json(text);
  NewsAnswer answer{.news = string_in(json, "news")};
  if (answer.news.empty() || answer.news.size() > kMaxNewsBytes ||
      answer.news.find_first_not_of("0123456789") != std::string::npos) {
    return bad;
  }
  const Json* const parts = list_in(json, "parts");
  if (parts == nullptr) return answer;
  if (parts->size() > kMaxParts) return bad;
  for (const Json& one : *parts) {
    AnnouncedObject part{.name = string_in(one, "name")};
    const std::string number = string_in(one, "number");
    if (!parse_number(number, &part.number) || !check_object_name(part.name).ok() ||
        !size_in(one, &part.size_bytes)) {
      return bad;
    }
    if (!answer.parts.empty() && part.number <= answer.parts.back().number) return bad;
    answer.parts.push_back(std::move(part));
  }
  return answer;
}

}  // namespace deltawire::http
