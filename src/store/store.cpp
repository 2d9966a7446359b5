// What every store shares: names, small objects, pages.
#include "deltawire/store.h"

#include <cstring>

namespace deltawire {

namespace {

constexpr size_t kMaxNameBytes = 512;
constexpr size_t kPage = 1000;

bool allowed(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

}  // namespace

Status check_object_name(std::string_view name) {
  bool start = true, good = !name.empty() && name.size() <= kMaxNameBytes;
  for (const char c : name) {
    if (c == '/') {
      good = good && !start;
      start = true;
    } else {
      good = good && allowed(c) && !(start && c == '.');
      start = false;
    }
  }
  if (good && !start) return {};
  std::string shown;
  for (const char c : name.substr(0, 80)) shown.push_back(allowed(c) || c == '/' ? c : '?');
  return invalid_argument("not the name of an object: \"" + shown + "\"");
}

MemoryBody::MemoryBody(std::string_view text)
    : bytes_(reinterpret_cast<const uint8_t*>(text.data()), text.size()) {}

Status MemoryBody::read(uint64_t offset, std::span<uint8_t> out) const {
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return {};
}

// Stores that can answer in one request do.
Result<std::string> Store::get(std::string_view name, uint64_t max_bytes) {
  DW_ASSIGN_OR_RETURN(const ObjectInfo info, stat(name));
  if (info.size_bytes > max_bytes) {
    return corruption(url() + ": object " + std::string(name) + ": " +
                      std::to_string(info.size_bytes) + " bytes is over the limit of " +
                      std::to_string(max_bytes));
  }
  std::string text(info.size_bytes, '\0');
  DW_RETURN_IF_ERROR(read(name, 0, {reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  return text;
}

Status list_all(Store& store, std::string_view prefix, std::string_view start_after,
                const std::function<bool(const ObjectInfo&)>& visit) {
  std::string after(start_after);
  while (true) {
    DW_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> page, store.list(prefix, after, kPage));
    for (const ObjectInfo& object : page) {
      if (!visit(object)) return {};
    }
    if (page.size() < kPage) return {};
    after = page.back().name;
  }
}

}  // namespace deltawire
