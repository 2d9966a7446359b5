// A replica's heartbeat in the store: its version, and the versions it is reading.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "deltawire/chain.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

inline constexpr uint64_t kMaxHeartbeatBytes = 1 << 16;
inline constexpr int64_t kLeaseSeconds = 15 * 60;
// A replica writes once a minute; after this long without a heartbeat it counts as gone.
inline constexpr int64_t kSilentSeconds = 180;
inline constexpr int64_t kSilentIntervals = 3;  // the same for one that says how often it writes
// Limits every lease, so that a wrong clock cannot keep a chain forever.
inline constexpr int64_t kMaxLeaseSeconds = 24 * 60 * 60;

// "replicas/NAME.json". Characters that object names cannot have become '-', and a few digits of a
// hash then keep different names apart.
std::string heartbeat_object(std::string_view name);

std::string serialise_heartbeat(const Heartbeat& heartbeat);
Result<Heartbeat> parse_heartbeat(std::string_view json);

// Fails if the store is a folder whose chain is missing or not mounted, so that a reader does not
// recreate it.
Status check_place_of_heartbeats(Store& store);
Status write_heartbeat(Store& store, const Heartbeat& heartbeat);
// The same to an object of another name, for a replica whose name is another's, too.
Status write_heartbeat(Store& store, const std::string& object, const Heartbeat& heartbeat);
Result<Heartbeat> read_heartbeat(Store& store, std::string_view name);

// One for each object under replicas/. `known`: what the caller has read of an object that is as it
// was, which is not read again; null: it is to be read.
Result<std::vector<ListedHeartbeat>> list_heartbeats(
    Store& store, const std::function<const ListedHeartbeat*(const ObjectInfo&)>& known = {});
// Those that the store got before then (seconds since 1970, by its clock): how many. With `dry_run`
// they stay.
Result<uint64_t> forget_replicas(Store& store, int64_t before, bool dry_run);

}  // namespace deltawire
