#include "chain/heartbeat.h"

#include <algorithm>
#include <ctime>

#include "base/text.h"
#include "chain/chain.h"
#include "chain/names.h"
#include "chain/read_records.h"
#include "format/record.h"

namespace deltawire {
namespace {

constexpr std::string_view kHeartbeatFormat = "heartbeat/1";
constexpr size_t kMaxNameBytes = 100, kMaxErrorBytes = 1000;

std::string identity_json(const std::optional<Identity>& identity) {
  if (!identity) return "null";
  RecordWriter record;
  record.text("run", identity->run);
  record.number("version", identity->version);
  record.text("manifest", identity->manifest);
  return record.plain();
}

std::optional<Identity> read_identity(const char* key, RecordReader* record) {
  if (!record->has(key)) return {};
  RecordReader own = RecordReader::inside(record->json(key));
  Identity identity{own.run(), own.number("version"),
                    own.digest("manifest", DigestKind::kSha256).hex()};
  record->fail(own.status());
  return identity;
}

std::string lease_json(const Lease& lease) {
  RecordWriter record;
  record.number("expires", uint64_t(std::max<int64_t>(0, lease.expires)));
  record.number("from", lease.from);
  record.number("to", lease.to);
  return record.plain();
}

}  // namespace

std::string heartbeat_object(std::string_view name) {
  std::string own(name.substr(0, kMaxNameBytes));
  for (char& c : own) c = is_name_char(c) ? c : '-';
  if (own.starts_with('.')) own[0] = '-';
  if (own != name || own.empty()) own += "-" + record_digest(name).hex().substr(0, 8);
  return std::string(kReplicaPrefix) + own + std::string(kJsonSuffix);
}

std::string serialise_heartbeat(const Heartbeat& heartbeat) {
  RecordWriter record(kHeartbeatFormat);
  record.text("name", heartbeat.name);
  record.text("id", heartbeat.id);
  record.text("session", heartbeat.session);
  record.text("host", heartbeat.host);
  record.number("pid", heartbeat.pid);
  record.json("held", identity_json(heartbeat.held));
  record.json("serving", identity_json(heartbeat.serving));
  if (heartbeat.pause_microseconds) {
    record.number("pause_microseconds", *heartbeat.pause_microseconds);
  }
  record.number("seen", uint64_t(std::max<int64_t>(0, heartbeat.seen)));
  record.number("interval_seconds", heartbeat.interval_seconds);
  record.json("lease", heartbeat.lease ? lease_json(*heartbeat.lease) : "null");
  if (!heartbeat.error.empty()) record.text("error", heartbeat.error.substr(0, kMaxErrorBytes));
  return std::move(record).finish({}).value();  // without a signer nothing can fail
}

Result<Heartbeat> parse_heartbeat(std::string_view json) {
  DW_ASSIGN_OR_RETURN(RecordReader record, RecordReader::open(json, kHeartbeatFormat, {}));
  Heartbeat heartbeat;
  heartbeat.name = record.text("name");
  heartbeat.id = record.text("id");
  heartbeat.session = record.text("session");
  heartbeat.host = record.text("host");
  heartbeat.pid = record.number("pid");
  heartbeat.held = read_identity("held", &record);
  heartbeat.serving = read_identity("serving", &record);
  heartbeat.pause_microseconds = record.optional_number("pause_microseconds");
  heartbeat.seen = record.time("seen");
  heartbeat.interval_seconds = record.number("interval_seconds");
  if (record.has("lease")) {
    RecordReader own = RecordReader::inside(record.json("lease"));
    heartbeat.lease = Lease{own.optional_number("from"), own.number("to"), own.time("expires")};
    record.fail(own.status());
  }
  if (record.has("error")) heartbeat.error = record.text("error");
  DW_RETURN_IF_ERROR(Status(record.status()));
  return heartbeat;
}

Status check_place_of_heartbeats(Store& store) {
  return is_store_url(store.url()) ? Status() : store.stat(kRunName).status();
}

Status write_heartbeat(Store& store, const Heartbeat& heartbeat) {
  return write_heartbeat(store, heartbeat_object(heartbeat.name), heartbeat);
}

Status write_heartbeat(Store& store, const std::string& object, const Heartbeat& heartbeat) {
  return store.put(object, MemoryBody(serialise_heartbeat(heartbeat)));
}

Result<Heartbeat> read_heartbeat(Store& store, std::string_view name) {
  const std::string object = heartbeat_object(name);
  DW_ASSIGN_OR_RETURN(const std::string text, store.get(object, kMaxHeartbeatBytes));
  return located(parse_heartbeat(text), store.url() + "/" + object);
}

Result<std::vector<ListedHeartbeat>> list_heartbeats(
    Store& store, const std::function<const ListedHeartbeat*(const ObjectInfo&)>& known) {
  std::vector<ListedHeartbeat> found;
  std::vector<size_t> unread;
  DW_RETURN_IF_ERROR(list_all(store, kReplicaPrefix, "", [&](const ObjectInfo& object) {
    const ListedHeartbeat* const before = known ? known(object) : nullptr;
    if (before == nullptr) unread.push_back(found.size());
    found.push_back(before != nullptr ? *before : ListedHeartbeat{object, Heartbeat()});
    return true;
  }));
  std::vector<Status> failures(unread.size());
  request_in_parallel(unread.size(), [&](size_t i) {
    ListedHeartbeat& listed = found[unread[i]];
    const Result<std::string> text = store.get(listed.object.name, kMaxHeartbeatBytes);
    if (!text.ok() && !is_damage(text.status())) failures[i] = text.status();
    listed.heartbeat = text.ok() ? parse_heartbeat(*text) : text.status();
    if (text.ok() && !listed.heartbeat.ok()) {
      listed.heartbeat =
          Status(listed.heartbeat.status()).at(store.url() + "/" + listed.object.name);
    }
  });
  for (Status& failure : failures) DW_RETURN_IF_ERROR(std::move(failure));
  std::erase_if(found, [](const ListedHeartbeat& listed) {  // gone meanwhile
    return listed.heartbeat.status().code() == Code::kNotFound;
  });
  return found;
}

bool ListedHeartbeat::is_gone() const {
  const uint64_t interval = heartbeat.ok() ? heartbeat->interval_seconds : 0;
  if (interval == 0) return age_seconds > kSilentSeconds;
  return age_seconds > kSilentIntervals * int64_t(std::min<uint64_t>(interval, kMaxLeaseSeconds));
}

Result<uint64_t> forget_replicas(Store& store, int64_t before, bool dry_run) {
  DW_ASSIGN_OR_RETURN(const auto heartbeats, list_heartbeats(store));
  uint64_t forgotten = 0;
  for (const ListedHeartbeat& listed : heartbeats) {
    if (listed.object.modified > before) continue;
    ++forgotten;
    if (!dry_run) DW_RETURN_IF_ERROR(store.remove(listed.object.name));
  }
  return forgotten;
}

}  // namespace deltawire
