#include "chain/chain.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <mutex>

#include "base/process.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "chain/head.h"
#include "chain/heartbeat.h"
#include "chain/hop_records.h"
#include "chain/keys.h"
#include "chain/named_objects.h"
#include "chain/names.h"
#include "chain/part_reader.h"
#include "chain/plan.h"
#include "chain/retention.h"
#include "format/delta_part.h"

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

bool is_damage(const Status& status) {
  return status.code() == Code::kNotFound || status.code() == Code::kCorruption ||
         status.code() == Code::kUnsupported;
}

struct Chain::Impl {
  Impl(std::shared_ptr<Store> store_, Keys files_, ChainKeys keys_, std::string run_)
      : store(std::move(store_)),
        files(std::move(files_)),
        keys(std::move(keys_)),
        run(std::move(run_)) {}

  const std::shared_ptr<Store> store;
  const Keys files;
  const ChainKeys keys;
  const std::string run;

  // The schema of the last version that was requested.
  mutable std::mutex schema_mutex;
  mutable Digest schema_sha256;
  mutable Schema schema;
};

namespace {

Chain make_chain(std::shared_ptr<Store> store, Keys files, ChainKeys keys, std::string run) {
  return Chain(std::make_shared<const Chain::Impl>(std::move(store), std::move(files),
                                                   std::move(keys), std::move(run)));
}

Result<std::string> read_run(Store& store) {
  const Result<std::string> text = store.get(kRunName, kMaxHintBytes);
  if (!text.ok() && text.status().code() == Code::kNotFound) {
    std::error_code error;  // LocalLayout::own()
    if (const std::filesystem::path folder = store.local_folder();
        !folder.empty() && std::filesystem::is_directory(folder / ".deltawire", error)) {
      return invalid_argument(store.url() + ": is a replica's folder, not a store");
    }
    std::string message = store.url() + ": holds no run; `deltawire publish` makes one";
    // The bucket itself may be missing, which only the server knows.
    if (store.local_folder().empty()) message += " (" + text.status().message() + ")";
    return not_found(std::move(message));
  }
  DW_RETURN_IF_ERROR(Status(text.status()));
  return located(parse_run(*text), store.url() + "/" + std::string(kRunName));
}

}  // namespace

Chain::Chain(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<Chain> Chain::open(std::shared_ptr<Store> store, const Keys& files) {
  DW_ASSIGN_OR_RETURN(ChainKeys keys, read_keys(files));
  DW_ASSIGN_OR_RETURN(std::string run, read_run(*store));
  return make_chain(std::move(store), files, std::move(keys), std::move(run));
}

Result<Chain> open_with_keys(std::shared_ptr<Store> store, ChainKeys keys) {
  DW_ASSIGN_OR_RETURN(std::string run, read_run(*store));
  return make_chain(std::move(store), {}, std::move(keys), std::move(run));
}

Chain with_other_keys(const Chain& chain, ChainKeys keys) {
  return make_chain(chain.shared_store(), chain.keys(), std::move(keys), chain.run());
}

Result<Chain> create_chain(std::shared_ptr<Store> store, ChainKeys keys, bool single_writer) {
  DW_ASSIGN_OR_RETURN(const Capabilities can, store->capabilities());
  if (!can.put_if_absent && !single_writer) {
    return unsupported(store->url() +
                       ": this store cannot put an object only if it is absent, so two publishers "
                       "could overwrite each other");
  }
  const std::string run = random_hex(kRunDigits);
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_run(run));
  const MemoryBody body(text);
  DW_RETURN_IF_ERROR(can.put_if_absent ? store->put_if_absent(kRunName, body)
                                       : store->put(kRunName, body));
  return make_chain(std::move(store), {}, std::move(keys), run);
}

const std::string& Chain::run() const noexcept { return impl_->run; }
Store& Chain::store() const noexcept { return *impl_->store; }
const std::shared_ptr<Store>& Chain::shared_store() const noexcept { return impl_->store; }
const Keys& Chain::keys() const noexcept { return impl_->files; }
const ChainKeys& keys_of(const Chain& chain) { return chain.impl().keys; }

Result<std::optional<uint64_t>> Chain::head() const { return find_head(store()); }

// No listing: a fleet asks this all day, and stores charge for a listing as for a dozen reads. Only
// a hole that gc left right above `known` needs one, and then the hint has gone on.
Result<Chain::Newest> Chain::newest_after(uint64_t known) const {
  Result<VersionRecord> next = not_found("");
  Result<bool> further = false, held = false;
  Result<std::optional<uint64_t>> hint = std::optional<uint64_t>();
  ThreadPool pool(4);
  pool.parallel_for(4, [&](size_t i, unsigned) {
    if (i == 0) next = version(known + 1);
    if (i == 1) further = has_version(store(), known + 2);
    if (i == 2) hint = read_hint(store());
    if (i == 3) held = has_version(store(), known);
  });
  for (const Status& status : {further.status(), hint.status(), held.status()}) {
    DW_RETURN_IF_ERROR(Status(status));
  }
  if (!*further && *hint && **hint <= known + 1) {
    if (next.ok()) return Newest{known + 1, std::move(*next)};
    if (next.status().code() == Code::kNotFound && *held) return Newest{known, {}};
  }
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> found, head());
  return Newest{found, {}};
}

Result<VersionRecord> Chain::version(uint64_t version) const {
  const Result<std::string> got = store().get(manifest_name(version), kMaxManifestBytes);
  if (!got.ok() && got.status().code() == Code::kNotFound) {
    return not_found(store().url() + ": there is no version " + std::to_string(version) +
                     ": it was never published, or gc has removed it");
  }
  DW_RETURN_IF_ERROR(Status(got.status()));
  return read_version(*this, version, *got);
}

Result<VersionRecord> read_version(const Chain& chain, uint64_t version, std::string_view text) {
  const std::string place = chain.store().url() + "/" + manifest_name(version);
  DW_ASSIGN_OR_RETURN(Manifest manifest,
                      located(parse_manifest(text, keys_of(chain).trust), place));
  if (manifest.run != chain.run()) {
    return corruption(place + ": belongs to run " + manifest.run + ", expected " + chain.run());
  }
  if (manifest.version != version) {
    return corruption(place + ": its record is of version " + std::to_string(manifest.version));
  }
  const bool delta = manifest.kind == VersionKind::kDelta;
  DW_RETURN_IF_ERROR(check_part_names(manifest.parts, delta ? kPartPrefix : kFullPrefix).at(place));
  DW_RETURN_IF_ERROR(check_side_objects(manifest).at(place));
  return VersionRecord{std::move(manifest), record_digest(text)};
}

Result<Schema> Chain::schema(const Manifest& manifest) const {
  const PartRef& ref = manifest.schema;
  const std::string place = store().url() + "/" + ref.name;
  if (ref.name != schema_name(ref.sha256.hex())) {
    return corruption("version " + std::to_string(manifest.version) + ": schema is named " +
                      ref.name + ", expected " + schema_name(ref.sha256.hex()));
  }
  {
    const std::lock_guard lock(impl_->schema_mutex);
    if (impl_->schema_sha256 == ref.sha256) return impl_->schema;
  }
  DW_ASSIGN_OR_RETURN(const std::string text, store().get(ref.name, kMaxSchemaBytes));
  const Digest got = record_digest(text);
  if (got != ref.sha256) {
    return corruption(place + ": sha-256: expected " + ref.sha256.hex() + ", got " + got.hex());
  }
  Result<Schema> schema = parse_schema(text);
  if (!schema.ok()) return std::move(schema).status().at(place);
  const std::lock_guard lock(impl_->schema_mutex);
  impl_->schema_sha256 = ref.sha256;
  impl_->schema = *schema;
  return schema;
}

Result<PartRef> put_schema(const Chain& chain, const Schema& schema) {
  const std::string text = serialise_schema(schema);
  const Digest digest = record_digest(text);
  PartRef ref{schema_name(digest.hex()), text.size(), digest};
  const Result<ObjectInfo> there = chain.store().stat(ref.name);
  if (there.ok() && there->size_bytes == text.size()) return ref;
  DW_RETURN_IF_ERROR(chain.store().put(ref.name, MemoryBody(text)));
  return ref;
}

// What Chain offers beside its records: each method is one function of this layer.
Result<std::vector<uint64_t>> Chain::versions() const {
  DW_ASSIGN_OR_RETURN(const ChainNames names, list_names(*this));
  return std::vector<uint64_t>(names.versions.begin(), names.versions.end());
}

Result<std::vector<ChangeCounts>> Chain::changes(uint64_t number) const {
  DW_ASSIGN_OR_RETURN(const VersionRecord record, version(number));
  std::vector<ChangeCounts> changes;
  if (record.manifest.kind == VersionKind::kFull) return changes;
  std::map<std::string, ChangeCounts> by_tensor;  // one in boxes has several entries
  for (const PartRef& ref : record.manifest.parts) {
    DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, read_part(store(), ref, {}));
    DW_ASSIGN_OR_RETURN(const DeltaPart part, parse_part(bytes));
    for (const PayloadView& view : part.entries) {
      ChangeCounts& own = by_tensor[view.entry.tensor];
      own.tensor = view.entry.tensor;
      own.num_changed += view.entry.num_changed;
      own.num_elements += view.entry.num_elements();
    }
  }
  for (auto& [name, own] : by_tensor) changes.push_back(std::move(own));
  return changes;
}

std::string_view hop_kind_name(HopKind kind) noexcept {
  switch (kind) {
    case HopKind::kAnchor:
      return "anchor";
    case HopKind::kMerged:
      return "merged";
    case HopKind::kVersion:
      break;
  }
  return "delta";
}

Result<std::vector<AddedHop>> Chain::added_hops(uint64_t first, uint64_t last) const {
  DW_ASSIGN_OR_RETURN(const auto names, list_hops(*this, first, last, SIZE_MAX));
  std::vector<AddedHop> hops;
  for (const HopName& name : names) hops.push_back({name.version, name.base, name.bytes});
  return hops;
}

Result<Plan> Chain::plan(std::optional<uint64_t> from, std::optional<uint64_t> to) const {
  if (!to) {
    DW_ASSIGN_OR_RETURN(to, head());
  }
  if (!to) return not_found(store().url() + ": nothing was published yet");
  std::optional<Held> held;
  if (from) {
    DW_ASSIGN_OR_RETURN(const VersionRecord record, version(*from));
    held = Held{*from, record.digest};
  }
  return plan_catch_up(*this, held, *to);
}

Result<std::vector<ListedHeartbeat>> Chain::replicas() const {
  DW_ASSIGN_OR_RETURN(std::vector<ListedHeartbeat> found, list_heartbeats(store()));
  if (found.empty()) return found;
  const Result<int64_t> asked = store().clock();
  const int64_t now = asked.ok() ? *asked : unix_seconds();
  for (ListedHeartbeat& listed : found) {
    const int64_t written = listed.object.modified != 0 || !listed.heartbeat.ok()
                                ? listed.object.modified
                                : listed.heartbeat->seen;
    listed.age_seconds = std::max<int64_t>(0, now - written);
  }
  return found;
}

Result<uint64_t> Chain::forget(const std::string& name, bool force) const {
  DW_ASSIGN_OR_RETURN(const std::vector<ListedHeartbeat> all, replicas());
  uint64_t removed = 0;
  const ListedHeartbeat* live = nullptr;
  for (const ListedHeartbeat& listed : all) {
    const bool named = listed.heartbeat.ok() && listed.heartbeat->name == name;
    if (!named && listed.object.name != name) continue;
    if (!force && !listed.is_gone()) {
      live = &listed;
      continue;
    }
    DW_RETURN_IF_ERROR(store().remove(listed.object.name));
    ++removed;
  }
  if (removed != 0) return removed;
  const std::string place = store().url() + ": replica " + name;
  if (live == nullptr) return not_found(place + ": there is no such replica");
  return conflict(place + ": is not gone; its last heartbeat was " +
                  std::to_string(live->age_seconds) + " s ago");
}

}  // namespace deltawire
