#include "chain/names.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>

namespace deltawire {
namespace {

constexpr size_t kNumberDigits = 10, kBytesDigits = 14;
constexpr std::string_view kFull = "full", kRank = "rank-";

std::string hex_bytes(uint64_t bytes) {
  char text[kBytesDigits + 3];
  std::snprintf(text, sizeof text, "%014llx", static_cast<unsigned long long>(bytes));
  return text;
}

// Takes exactly `digits` digits off the front of `text`.
bool take(std::string_view* text, size_t digits, int base, uint64_t* out) {
  if (text->size() < digits) return false;
  const char *begin = text->data(), *end = begin + digits;
  const auto [at, error] = std::from_chars(begin, end, *out, base);
  text->remove_prefix(digits);
  return error == std::errc() && at == end;
}

bool take(std::string_view* text, std::string_view expected) {
  if (!text->starts_with(expected)) return false;
  text->remove_prefix(expected.size());
  return true;
}

}  // namespace

std::string number_name(uint64_t version) {
  char text[24];
  std::snprintf(text, sizeof text, "%010llu", static_cast<unsigned long long>(version));
  return text;
}

std::string manifest_name(uint64_t version) {
  return std::string(kManifestPrefix) + number_name(version) + std::string(kJsonSuffix);
}

std::optional<uint64_t> version_of_manifest(std::string_view name) {
  uint64_t version = 0;
  if (take(&name, kManifestPrefix) && take(&name, kNumberDigits, 10, &version) &&
      name == kJsonSuffix) {
    return version;
  }
  return {};
}

std::string schema_name(std::string_view sha256_hex) {
  return std::string(kSchemaPrefix) + std::string(sha256_hex) + std::string(kJsonSuffix);
}

std::string pin_name(uint64_t version, std::string_view id) {
  return std::string(kPinPrefix) + number_name(version) + "-" + std::string(id);
}

std::string part_folder(uint64_t version, std::string_view attempt, unsigned rank) {
  return std::string(kPartPrefix) + number_name(version) + "-" + std::string(attempt) +
         (rank == 0 ? "" : "-" + std::string(kRank) + std::to_string(rank)) + "/";
}

std::string full_folder(uint64_t version, std::string_view attempt) {
  return std::string(kFullPrefix) + number_name(version) + "-" + std::string(attempt) + "/";
}

std::string side_attempt(uint64_t version, std::string_view attempt) {
  return number_name(version) + "-" + std::string(attempt);
}

std::optional<AttemptFolder> attempt_folder(const std::string_view name) {
  for (const std::string_view prefix : {kPartPrefix, kFullPrefix, kPendingPrefix, kFilePrefix}) {
    std::string_view rest = name;
    uint64_t version = 0;
    if (!take(&rest, prefix)) continue;
    if (!take(&rest, kNumberDigits, 10, &version) || !take(&rest, "-")) return {};
    const size_t slash = rest.find('/');
    if (slash == 0 || slash == std::string_view::npos || slash + 1 == rest.size()) return {};
    return AttemptFolder{version, name.substr(0, name.size() - rest.size() + slash + 1)};
  }
  return {};
}

std::optional<unsigned> rank_of_object(const std::string_view name) {
  const std::optional<AttemptFolder> found = attempt_folder(name);
  if (!found) return {};
  const bool is_pending = name.starts_with(kPendingPrefix);
  const size_t at = name.rfind(kRank, is_pending ? name.npos : found->folder.size());
  if (at == name.npos || name[at - 1] != (is_pending ? '/' : '-')) return {};
  const char* const begin = name.data() + at + kRank.size();
  unsigned rank = 0;
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), rank);
  if (error != std::errc() || end == name.data() + name.size()) return {};
  return *end == (is_pending ? '.' : '/') ? std::optional(rank) : std::nullopt;
}

std::optional<uint64_t> version_of_pin(std::string_view name) {
  uint64_t version = 0;
  if (!take(&name, kPinPrefix) || !take(&name, kNumberDigits, 10, &version)) return {};
  // Whatever else somebody put there: a pin too many does no harm.
  if (name.empty() || (name[0] == '-' && name.find('/') == std::string_view::npos)) return version;
  return {};
}

bool is_immutable_object(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {kPartPrefix, kFullPrefix, kSchemaPrefix, kFilePrefix,
                                            kPendingPrefix};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string hop_name(const HopName& hop) {
  return std::string(kHopPrefix) + number_name(hop.version) + "-" +
         (hop.base ? number_name(*hop.base) : std::string(kFull)) + "-" + hex_bytes(hop.bytes) +
         "-" + hex_bytes(hop.base_chain_bytes) + "-" + hex_bytes(hop.chain_bytes) +
         std::string(kJsonSuffix);
}

std::optional<HopName> parse_hop_name(const std::string_view whole) {
  HopName hop;
  std::string_view name = whole;
  if (!take(&name, kHopPrefix) || !take(&name, kNumberDigits, 10, &hop.version)) return {};
  if (!take(&name, "-full-")) {
    uint64_t base = 0;
    if (!take(&name, "-") || !take(&name, kNumberDigits, 10, &base) || !take(&name, "-")) return {};
    if (base >= hop.version) return {};
    hop.base = base;
  }
  if (!take(&name, kBytesDigits, 16, &hop.bytes) || !take(&name, "-") ||
      !take(&name, kBytesDigits, 16, &hop.base_chain_bytes) || !take(&name, "-") ||
      !take(&name, kBytesDigits, 16, &hop.chain_bytes)) {
    return {};
  }
  if (hop.base_chain_bytes > (hop.base ? hop.chain_bytes : 0)) return {};
  // One hop record has one name: no capital digits, nothing after it.
  if (hop_name(hop) != whole) return {};
  return hop;
}

}  // namespace deltawire
