#include "chain/chain.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <mutex>

#include "base/thread_pool.h"
#include "chain/edges.h"
#include "chain/names.h"
#include "chain/side_objects.h"

namespace deltawire {
namespace {

constexpr std::string_view kRunFormat = "run/1";

Result<std::string> serialise_run(const std::string& run) {
  RecordWriter record(kRunFormat);
  record.text("run", run);
  record.text("created", utc_now());
  record.text("publisher", process_name());
  return std::move(record).finish({});
}

Result<std::string> parse_run(std::string_view text) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(text, kRunFormat, {}));
  std::string run = record.run();
  DW_RETURN_IF_ERROR(Status(record.status()));
  return run;
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

bool is_damage(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kCorruption ||
         status.code() == Code::kUnsupported;
}

std::string process_name() {
  char host[256] = "unknown";
  ::gethostname(host, sizeof host - 1);
  return std::string(host) + ":" + std::to_string(::getpid());
}

struct Chain::LastSchema {
  std::mutex mutex;
  Digest sha256;
  Schema schema;
};

Chain::Chain(std::shared_ptr<Store> store, ChainOptions options, std::string run)
    : store_(std::move(store)),
      options_(std::move(options)),
      run_(std::move(run)),
      last_schema_(std::make_shared<LastSchema>()) {}

Result<Chain> Chain::open(std::shared_ptr<Store> store, ChainOptions options) {
  Result<std::string> text = store->get(kRunName, kMaxHintBytes);
  if (!text.ok() && text.status().code() == Code::kNotFound) {
    std::string message = store->url() + ": holds no run; `deltawire publish` makes one";
    // A bucket may be missing altogether, which only the server knows.
    if (store->local_folder().empty()) message += " (" + text.status().message() + ")";
    return not_found(std::move(message));
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
  const std::string run = random_hex(kRunDigits);
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_run(run));
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

// The versions from `from` on that a listing shows, up to a page of them. Lists may lag behind.
Result<std::vector<uint64_t>> Chain::listed_from(uint64_t from) const {
  const std::string after = from == 0 ? "" : manifest_name(from - 1);
  DW_ASSIGN_OR_RETURN(const auto page, store_->list(kManifestPrefix, after, kListPage));
  std::vector<uint64_t> versions;
  for (const ObjectInfo& object : page) {
    if (const auto version = version_of_manifest(object.name)) versions.push_back(*version);
  }
  return versions;
}

// The newest version that listings show; none when they show none from `from` on. Retention leaves
// holes, so a version that is missing says nothing about those above it.
Result<std::optional<uint64_t>> Chain::newest_listed(uint64_t from) const {
  std::optional<uint64_t> newest;
  // Nothing lies above `high`. Probes go up at growing distances, and bisect once one was too far.
  uint64_t probe = from, low = from, high = kMaxVersion, step = kListPage;
  while (low <= high) {
    DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> page, listed_from(probe));
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

Result<std::optional<uint64_t>> Chain::hint() const {
  const Result<std::string> text = store_->get(kHeadName, kMaxHintBytes);
  if (!text.ok() && text.status().code() != Code::kNotFound) return text.status();
  uint64_t version = 0;
  if (text.ok() &&
      std::from_chars(text->data(), text->data() + text->size(), version).ec == std::errc() &&
      version <= kMaxVersion) {
    return std::optional(version);
  }
  return std::optional<uint64_t>();
}

Result<std::optional<uint64_t>> Chain::head() const {
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> start, hint());
  DW_ASSIGN_OR_RETURN(std::optional<uint64_t> newest, newest_listed(start.value_or(0)));
  // Nothing where the hint points: it is wrong, or the listing is behind it.
  if (!newest && start.value_or(0) != 0) {
    DW_ASSIGN_OR_RETURN(const bool there, exists(*start));
    if (there) {
      newest = start;
    } else {
      DW_ASSIGN_OR_RETURN(newest, newest_listed(0));
    }
  }
  if (!newest) {
    DW_ASSIGN_OR_RETURN(const bool seeded, exists(0));
    if (!seeded) return std::optional<uint64_t>();
  }
  // The listing may have missed the newest ones, and there are no holes above those it shows:
  // gallops, then bisects.
  uint64_t last = newest.value_or(0), step = 1;
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

// What head() would ask one after the other, had the hint named `known`: a listing from there, and
// probes of what the listing may have missed.
Result<Chain::Newest> Chain::newest_after(uint64_t known) const {
  Result<std::vector<uint64_t>> listed = std::vector<uint64_t>();
  Result<VersionRecord> next = not_found("");
  Result<bool> further = false;
  ThreadPool pool(3);
  pool.parallel_for(3, [&](size_t i, unsigned) {
    if (i == 0) next = version(known + 1);
    if (i == 1) listed = listed_from(known);
    if (i == 2) further = exists(known + 2);
  });
  DW_RETURN_IF_ERROR(Status(listed.status()));
  DW_RETURN_IF_ERROR(Status(further.status()));
  const bool none_beyond = !*further && (listed->empty() || listed->back() <= known + 1);
  if (none_beyond && next.ok()) return Newest{known + 1, std::move(*next)};
  const bool none_next = next.status().code() == Code::kNotFound;
  if (none_beyond && none_next && !listed->empty() && listed->back() == known) {
    return Newest{known, {}};
  }
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> found, head());
  return Newest{found, {}};
}

Result<VersionRecord> Chain::version(uint64_t version) const {
  const std::string name = manifest_name(version);
  const Result<std::string> got = store_->get(name, kMaxManifestBytes);
  if (!got.ok() && got.status().code() == Code::kNotFound) {
    return not_found(store_->url() + ": there is no version " + std::to_string(version) +
                     ": it was never published, or gc has removed it");
  }
  DW_RETURN_IF_ERROR(Status(got.status()));
  const std::string& text = *got;
  const std::string place = store_->url() + "/" + name;
  Result<Manifest> manifest = parse_manifest(text, options_.trust);
  if (!manifest.ok()) return std::move(manifest).status().at(place);
  if (manifest->run != run_) {
    return corruption(place + ": belongs to run " + manifest->run + ", expected " + run_);
  }
  if (manifest->version != version) {
    return corruption(place + ": says that it is version " + std::to_string(manifest->version));
  }
  const bool delta = manifest->kind == VersionKind::kDelta;
  DW_RETURN_IF_ERROR(
      check_part_names(manifest->parts, delta ? kPartPrefix : kFullPrefix).at(place));
  DW_RETURN_IF_ERROR(check_side_objects(*manifest).at(place));
  return VersionRecord{std::move(*manifest), record_digest(text)};
}

Result<Schema> Chain::schema(const Manifest& manifest) const {
  const PartRef& ref = manifest.schema;
  const std::string place = store_->url() + "/" + ref.name;
  if (ref.name != schema_name(ref.sha256.hex())) {
    return corruption("version " + std::to_string(manifest.version) + ": schema is named " +
                      ref.name + ", expected " + schema_name(ref.sha256.hex()));
  }
  {
    const std::lock_guard lock(last_schema_->mutex);
    if (last_schema_->sha256 == ref.sha256) return last_schema_->schema;
  }
  DW_ASSIGN_OR_RETURN(const std::string text, store_->get(ref.name, kMaxSchemaBytes));
  const Digest got = record_digest(text);
  if (got != ref.sha256) {
    return corruption(place + ": sha-256: expected " + ref.sha256.hex() + ", got " + got.hex());
  }
  Result<Schema> schema = parse_schema(text);
  if (!schema.ok()) return std::move(schema).status().at(place);
  const std::lock_guard lock(last_schema_->mutex);
  last_schema_->sha256 = ref.sha256;
  last_schema_->schema = *schema;
  return schema;
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
