// Names of a chain's objects. Numbers have ten digits, so names sort like versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace deltawire {

inline constexpr std::string_view kRunName = "run.json";
inline constexpr std::string_view kHeadName = "HEAD";  // a hint, never trusted over manifests
inline constexpr std::string_view kManifestPrefix = "manifests/";
inline constexpr std::string_view kHopPrefix = "hops/";
inline constexpr std::string_view kPartPrefix = "parts/";
inline constexpr std::string_view kFullPrefix = "full/";
inline constexpr std::string_view kSchemaPrefix = "schemas/";
inline constexpr std::string_view kFilePrefix = "files/";
inline constexpr std::string_view kReplicaPrefix = "replicas/";
inline constexpr std::string_view kPinPrefix = "pins/";
inline constexpr std::string_view kTrashPrefix = "trash/";
inline constexpr std::string_view kPendingPrefix = "pending/";

inline constexpr std::string_view kJsonSuffix = ".json";

inline constexpr uint64_t kMaxVersion = 9'999'999'999;
inline constexpr uint64_t kMaxHintBytes = 1 << 16;  // of run.json and HEAD
inline constexpr size_t kListPage = 1000;           // the most that a store lists at once
inline constexpr size_t kAttemptDigits = 12;        // hex digits that keep attempts apart

std::string number_name(uint64_t version);    // "0000000012"
std::string manifest_name(uint64_t version);  // "manifests/0000000012.json"
// The version that "manifests/0000000012.json" names.
std::optional<uint64_t> version_of_manifest(std::string_view name);
std::string schema_name(std::string_view sha256_hex);
// "pins/0000000012-9f3c…": every pin is its own object, so that removing one leaves the others.
std::string pin_name(uint64_t version, std::string_view id);
// Folders of a version's bytes. `attempt` keeps the objects of racing publishers apart.
// Parts of another rank than 0 are in "parts/0000000012-9f3c…-rank-3/".
std::string part_folder(uint64_t version, std::string_view attempt,
                        unsigned rank = 0);                           // "parts/0000000012-9f3c…/"
std::string full_folder(uint64_t version, std::string_view attempt);  // "full/0000000012-9f3c…/"
// Files beside the weights that a version brings: "0000000012-9f3c…", a folder under files/.
std::string side_attempt(uint64_t version, std::string_view attempt);

// The version and folder of an object that some attempt to publish put: "parts/0000000012-9f3c/x"
// gives 12 and "parts/0000000012-9f3c/". None for every other name.
struct AttemptFolder {
  uint64_t version = 0;
  std::string_view folder;
};
std::optional<AttemptFolder> attempt_folder(std::string_view name);
// The rank of a sharded trainer that put an object: of "parts/0000000012-9f3c-rank-3/x" and
// "pending/0000000012-9f3c/rank-3.boxes" rank 3. None: rank 0, or a trainer of one process.
std::optional<unsigned> rank_of_object(std::string_view name);
std::optional<uint64_t> version_of_pin(std::string_view name);
// Whether an object of this name never changes. A manifest may change, because another run may
// begin in its place.
bool is_immutable_object(std::string_view name);

// Everything a plan needs to know of a hop record stands in its name, so that one listing tells it:
//   hops/<version>-<base or "full">-<bytes>-<chain_bytes at base>-<chain_bytes at version>.json
// with byte counts as 14 hex digits.
struct HopName {
  uint64_t version = 0;
  std::optional<uint64_t> base;
  uint64_t bytes = 0;
  uint64_t base_chain_bytes = 0, chain_bytes = 0;

  bool operator==(const HopName&) const = default;
};
std::string hop_name(const HopName& hop);
// None when it is not the name of a hop record, or when what it says cannot be.
std::optional<HopName> parse_hop_name(std::string_view name);

}  // namespace deltawire
