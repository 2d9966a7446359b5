// What every store shares: names, bodies in memory, pages.
#include "deltawire/store.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/text.h"
#include "store/forwarding_store.h"

namespace deltawire {
namespace {

constexpr size_t kMaxNameBytes = 512, kMaxComponentBytes = 255;

bool is_name_component(std::string_view component) noexcept {
  return !component.empty() && component.size() <= kMaxComponentBytes && component[0] != '.' &&
         std::all_of(component.begin(), component.end(), is_name_char);
}

Status bad_name(std::string_view what, std::string_view name) {
  std::string shown;
  for (const char c : name.substr(0, 80)) shown.push_back(is_name_char(c) || c == '/' ? c : '?');
  return invalid_argument("not " + std::string(what) + ": \"" + shown + "\"");
}

}  // namespace

Status check_object_name(std::string_view name) {
  const auto components = split_text(name.substr(0, kMaxNameBytes + 1), '/');
  const bool good = name.size() <= kMaxNameBytes &&
                    std::all_of(components.begin(), components.end(), is_name_component);
  return good ? Status() : bad_name("the name of an object", name);
}

Status check_object_prefix(std::string_view prefix) {
  if (prefix.empty()) return {};
  // The beginning of a name: a name, or one that lacks what follows its last slash.
  const std::string_view name = prefix.substr(0, prefix.size() - (prefix.back() == '/' ? 1 : 0));
  return check_object_name(name).ok() ? Status() : bad_name("the beginning of a name", prefix);
}

MemoryBody::MemoryBody(std::string_view text) : bytes_(text_bytes(text)) {}

Status MemoryBody::read(uint64_t offset, std::span<uint8_t> out) const {
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
  return {};
}

Status list_all(Store& store, std::string_view prefix, std::string_view start_after,
                const std::function<bool(const ObjectInfo&)>& visit) {
  std::string after(start_after);
  while (true) {
    DW_ASSIGN_OR_RETURN(const std::vector<ObjectInfo> page, store.list(prefix, after, kMaxListed));
    for (const ObjectInfo& object : page) {
      if (!visit(object)) return {};
    }
    if (page.size() < kMaxListed) return {};
    after = page.back().name;
  }
}

StoreClock real_clock() {
  return {steady_seconds, [](double seconds) {
            if (seconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
          }};
}

}  // namespace deltawire
