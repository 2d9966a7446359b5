// What a replica leaves in the store about itself: where it is, and which versions it is reading.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// "I am fetching what leads from `from` to `to`": retention keeps that until it expires. None:
// from nothing. A reader that takes longer renews it.
struct Lease {
  std::optional<uint64_t> from;
  uint64_t to = 0;
  int64_t expires = 0;  // seconds since 1970

  bool operator==(const Lease&) const = default;
};

inline constexpr int64_t kLeaseSeconds = 15 * 60;
// No lease lasts longer, whatever it says: a broken clock must not keep a chain for ever.
inline constexpr int64_t kMaxLeaseSeconds = 24 * 60 * 60;

struct Heartbeat {
  std::string name;          // of the replica, as people know it
  std::string id = {};       // of the replica's folder, the same after a restart; or of its process
  std::string session = {};  // of the process that wrote this
  std::string host;
  uint64_t pid = 0;
  std::optional<uint64_t> version = {};  // none: holds nothing yet
  std::optional<uint64_t> serving = {};  // what its engine was last told to load, and took
  int64_t seen = 0;                      // when this was written, seconds since 1970
  std::optional<Lease> lease = {};

  bool operator==(const Heartbeat&) const = default;
};

// "replicas/NAME.json". Characters that object names cannot have become '-', and a few digits of a
// hash then keep different names apart.
std::string heartbeat_object(std::string_view name);

std::string serialise_heartbeat(const Heartbeat& heartbeat);
Result<Heartbeat> parse_heartbeat(std::string_view json);

Status write_heartbeat(Store& store, const Heartbeat& heartbeat);
// The same to an object of another name, for a replica whose name is another's, too.
Status write_heartbeat(Store& store, const std::string& object, const Heartbeat& heartbeat);
Result<Heartbeat> read_heartbeat(Store& store, std::string_view name);
Status remove_heartbeat(Store& store, std::string_view name);

// One object under replicas/; its contents may be unreadable.
struct ListedHeartbeat {
  ObjectInfo object;
  Result<Heartbeat> heartbeat;
};
Result<std::vector<ListedHeartbeat>> list_heartbeats(Store& store);
// Those of replicas that were last seen before then (seconds since 1970): how many. With `dry_run`
// they stay.
Result<uint64_t> forget_replicas(Store& store, int64_t before, bool dry_run);

int64_t unix_now();

}  // namespace deltawire
