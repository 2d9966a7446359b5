#include "chain/chain.h"

#include <unistd.h>

#include <charconv>
#include <ctime>
#include <nlohmann/json.hpp>

#include "chain/names.h"

namespace deltawire {
namespace {

constexpr std::string_view kRunFormat = "run/1";
constexpr uint64_t kMaxSmallBytes = 1 << 16;

std::string serialise_run(const std::string& run) {
  return nlohmann::json{
      {"format", kRunFormat}, {"run", run}, {"created", utc_now()}, {"publisher", process_name()}}
      .dump();
}

Result<std::string> parse_run(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("format") || !json.contains("run") ||
      !json.at("run").is_string()) {
    return corruption("expected the record of a run");
  }
  if (json.at("format") != kRunFormat) {
    return unsupported("format " + json.at("format").dump() + "; this build reads \"" +
                       std::string(kRunFormat) + "\"");
  }
  return json.at("run").get<std::string>();
}

// Where a record may say that its bytes lie.
Status check_parts(const Manifest& manifest) {
  for (const PartRef& part : manifest.parts) {
    DW_RETURN_IF_ERROR(check_object_name(part.name));
    const bool delta = manifest.kind == VersionKind::kDelta;
    if (!part.name.starts_with(delta ? kPartPrefix : kFullPrefix)) {
      return corruption("part " + part.name + " lies outside " +
                        std::string(delta ? kPartPrefix : kFullPrefix));
    }
  }
  return {};
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string process_name() {
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + ":" + std::to_string(::getpid());
}

Result<Chain> Chain::open(std::shared_ptr<Store> store, ChainOptions options) {
  Result<std::string> text = store->get(kRunName, kMaxSmallBytes);
  if (!text.ok() && text.status().code() == Code::kNotFound) {
    return not_found(store->url() + ": holds no run; `deltawire publish` makes one");
  }
  DW_RETURN_IF_ERROR(Status(text.status()));
  Result<std::string> run = parse_run(*text);
  if (!run.ok()) return std::move(run).status().at(store->url() + "/" + std::string(kRunName));
  return Chain(std::move(store), std::move(options), *run);
}

Result<Chain> Chain::create(std::shared_ptr<Store> store, ChainOptions options,
                            bool single_writer) {
  DW_ASSIGN_OR_RETURN(const Capabilities can, store->capabilities());
  if (!can.put_if_absent && !single_writer) {
    return unsupported(store->url() +
                       ": this store cannot put an object only if it is absent, so two publishers "
                       "could overwrite each other; say --single-writer if there will only be one");
  }
  const std::string run = random_hex(32), text = serialise_run(run);
  const MemoryBody body(text);
  DW_RETURN_IF_ERROR(can.put_if_absent ? store->put_if_absent(kRunName, body)
                                       : store->put(kRunName, body));
  return Chain(std::move(store), std::move(options), run);
}

Result<bool> Chain::exists(uint64_t version) const {
  const Result<ObjectInfo> info = store_->stat(manifest_name(version));
  if (info.ok()) return true;
  if (info.status().code() == Code::kNotFound) return false;
  return info.status();
}

// A version that is there, the newer the better: the hint's, or else one that a listing shows.
Result<std::optional<uint64_t>> Chain::some_version() const {
  const Result<std::string> hint = store_->get(kHeadName, kMaxSmallBytes);
  if (!hint.ok() && hint.status().code() != Code::kNotFound) return hint.status();
  uint64_t version = 0;
  if (hint.ok() &&
      std::from_chars(hint->data(), hint->data() + hint->size(), version).ec == std::errc() &&
      version <= kMaxVersion) {
    DW_ASSIGN_OR_RETURN(const bool there, exists(version));
    if (there) return std::optional(version);
  }
  // No use in the hint: bisects for the last manifest that listings show.
  const auto next_after = [&](std::string_view name) -> Result<std::optional<uint64_t>> {
    DW_ASSIGN_OR_RETURN(const auto page, store_->list(kManifestPrefix, name, 1));
    return page.empty() ? std::nullopt : version_of_manifest(page.front().name);
  };
  DW_ASSIGN_OR_RETURN(std::optional<uint64_t> found, next_after(""));
  uint64_t high = kMaxVersion;  // nothing lies above
  while (found && *found < high) {
    const uint64_t middle = *found + (high - *found) / 2;
    DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> next, next_after(manifest_name(middle)));
    if (next) {
      found = next;
    } else {
      high = middle;
    }
  }
  return found;
}

Result<std::optional<uint64_t>> Chain::head() const {
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> start, some_version());
  if (!start) {
    // A listing may lag behind; the seed is always the first.
    DW_ASSIGN_OR_RETURN(const bool seeded, exists(0));
    if (!seeded) return std::optional<uint64_t>();
  }
  // There are no holes above a version that exists: gallop, then bisect.
  uint64_t last = start.value_or(0), step = 1;
  while (true) {
    DW_ASSIGN_OR_RETURN(const bool there, exists(last + step));
    if (!there) break;
    last += step;
    step *= 2;
  }
  uint64_t missing = last + step;
  while (missing - last > 1) {
    const uint64_t middle = last + (missing - last) / 2;
    DW_ASSIGN_OR_RETURN(const bool there, exists(middle));
    (there ? last : missing) = middle;
  }
  return std::optional(last);
}

Result<VersionRecord> Chain::version(uint64_t version) const {
  const std::string name = manifest_name(version);
  DW_ASSIGN_OR_RETURN(const std::string text, store_->get(name, kMaxManifestBytes));
  const std::string place = store_->url() + "/" + name;
  Result<Manifest> manifest = parse_manifest(text, options_.trust);
  if (!manifest.ok()) return std::move(manifest).status().at(place);
  if (manifest->run != run_) {
    return corruption(place + ": belongs to run " + manifest->run + ", expected " + run_);
  }
  if (manifest->version != version) {
    return corruption(place + ": says that it is version " + std::to_string(manifest->version));
  }
  DW_RETURN_IF_ERROR(check_parts(*manifest).at(place));
  return VersionRecord{std::move(*manifest), record_digest(text)};
}

Result<Schema> Chain::schema(const Manifest& manifest) const {
  const PartRef& ref = manifest.schema;
  const std::string place = store_->url() + "/" + ref.name;
  if (ref.name != schema_name(ref.sha256.hex())) {
    return corruption("version " + std::to_string(manifest.version) + ": schema is named " +
                      ref.name + ", expected " + schema_name(ref.sha256.hex()));
  }
  DW_ASSIGN_OR_RETURN(const std::string text, store_->get(ref.name, kMaxSchemaBytes));
  const Digest got = record_digest(text);
  if (got != ref.sha256) {
    return corruption(place + ": sha-256: expected " + ref.sha256.hex() + ", got " + got.hex());
  }
  Result<Schema> schema = parse_schema(text);
  if (!schema.ok()) return std::move(schema).status().at(place);
  return schema;
}

Result<Digest> Chain::commit(const Manifest& manifest) const {
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_manifest(manifest, options_.sign));
  const std::string name = manifest_name(manifest.version);
  DW_ASSIGN_OR_RETURN(const Capabilities can, store_->capabilities());
  Status status;
  if (can.put_if_absent) {
    status = store_->put_if_absent(name, MemoryBody(text));
  } else {
    DW_ASSIGN_OR_RETURN(const bool taken, exists(manifest.version));
    status = taken ? conflict(name) : store_->put(name, MemoryBody(text));
  }
  if (status.code() == Code::kConflict) {
    Result<std::string> theirs = store_->get(name, kMaxManifestBytes);
    // A retried put finds what its first attempt had left: that is a success.
    if (!theirs.ok() || *theirs != text) {
      std::string message = store_->url() + ": version " + std::to_string(manifest.version) +
                            " was published by another";
      if (theirs.ok()) {
        const Result<Manifest> other = parse_manifest(*theirs, {});
        if (other.ok()) message += ": " + other->publisher + " at " + other->created;
      }
      return conflict(std::move(message));
    }
  } else {
    DW_RETURN_IF_ERROR(std::move(status));
  }
  // Only a hint: the version is committed whether or not this works.
  const std::string hint = std::to_string(manifest.version) + "\n";
  (void)store_->put(kHeadName, MemoryBody(hint));
  return record_digest(text);
}

Result<PartRef> Chain::put_schema(const Schema& schema) const {
  const std::string text = serialise_schema(schema);
  const Digest digest = record_digest(text);
  PartRef ref{schema_name(digest.hex()), text.size(), digest};
  const Result<ObjectInfo> there = store_->stat(ref.name);
  if (there.ok() && there->size_bytes == text.size()) return ref;
  DW_RETURN_IF_ERROR(store_->put(ref.name, MemoryBody(text)));
  return ref;
}

}  // namespace deltawire
