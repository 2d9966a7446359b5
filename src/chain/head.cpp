#include "chain/head.h"

#include <algorithm>
#include <charconv>

#include "chain/names.h"

namespace deltawire {

Result<bool> has_version(Store& store, uint64_t version) {
  const Result<ObjectInfo> info = store.stat(manifest_name(version));
  if (info.ok()) return true;
  if (info.status().code() == Code::kNotFound) return false;
  return info.status();
}

Result<std::vector<uint64_t>> listed_from(Store& store, uint64_t from) {
  const std::string after = from == 0 ? "" : manifest_name(from - 1);
  DW_ASSIGN_OR_RETURN(const auto page, store.list(kManifestPrefix, after, kListPage));
  std::vector<uint64_t> versions;
  for (const ObjectInfo& object : page) {
    if (const auto version = version_of_manifest(object.name)) versions.push_back(*version);
  }
  return versions;
}

namespace {

// The newest version that listings show; none when they show none from `from` on. Retention leaves
// holes, so a version that is missing says nothing about those above it.
Result<std::optional<uint64_t>> newest_listed(Store& store, uint64_t from) {
  std::optional<uint64_t> newest;
  // Nothing lies above `high`. Probes go up at growing distances, and bisect once one was too far.
  uint64_t probe = from, low = from, high = kMaxVersion, step = kListPage;
  while (low <= high) {
    DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> page, listed_from(store, probe));
    if (!page.empty()) {
      newest = page.back();
      if (page.size() < kListPage) break;
      low = page.back() + 1;
      step *= 2;
    } else if (probe == low) {
      break;
    } else {
      high = probe - 1;
    }
    probe = high == kMaxVersion ? std::min(low + step, high) : low + (high - low) / 2;
  }
  return newest;
}

}  // namespace

Result<std::optional<uint64_t>> read_hint(Store& store) {
  const Result<std::string> text = store.get(kHeadName, kMaxHintBytes);
  if (!text.ok() && text.status().code() != Code::kNotFound) return text.status();
  uint64_t version = 0;
  if (text.ok() &&
      std::from_chars(text->data(), text->data() + text->size(), version).ec == std::errc() &&
      version <= kMaxVersion) {
    return std::optional(version);
  }
  return std::optional<uint64_t>();
}

Result<std::optional<uint64_t>> find_head(Store& store) {
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> start, read_hint(store));
  DW_ASSIGN_OR_RETURN(std::optional<uint64_t> newest, newest_listed(store, start.value_or(0)));
  // Nothing where the hint points: it is wrong, or the listing is behind it.
  if (!newest && start.value_or(0) != 0) {
    DW_ASSIGN_OR_RETURN(const bool there, has_version(store, *start));
    if (there) {
      newest = start;
    } else {
      DW_ASSIGN_OR_RETURN(newest, newest_listed(store, 0));
    }
  }
  if (!newest) {
    DW_ASSIGN_OR_RETURN(const bool seeded, has_version(store, 0));
    if (!seeded) return std::optional<uint64_t>();
  }
  // The listing may have missed the newest ones, and there are no holes above those it shows:
  // gallops, then bisects.
  uint64_t last = newest.value_or(0), step = 1;
  while (true) {
    DW_ASSIGN_OR_RETURN(const bool there, has_version(store, last + step));
    if (!there) break;
    last += step;
    step *= 2;
  }
  uint64_t missing = last + step;
  while (missing - last > 1) {
    const uint64_t middle = last + (missing - last) / 2;
    DW_ASSIGN_OR_RETURN(const bool there, has_version(store, middle));
    (there ? last : missing) = middle;
  }
  return std::optional(last);
}

}  // namespace deltawire
