// A mirror: a second store that holds a chain's objects, byte for byte, for replicas that are near
// to it. docs/operations.md, "Mirrors", says what travels and what does not.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/chain.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

struct MirrorOptions {
  // Where a mirror begins that holds no version yet. None: at the newest anchor, or, with `all`, at
  // the oldest version that is stored whole. A version: at the newest anchor at or below it. One
  // above what the mirror holds makes it leave out the versions in between.
  std::optional<uint64_t> since;
  bool all = false;
  // Retention of the mirror's own, after each version; none: nothing is removed from it.
  std::optional<GcOptions> keep;
  // An object that is there already is read and hashed; else its size is enough.
  bool verify = false;
  bool single_writer = false;  // allow a store without conditional put
  // Objects are kept here on their way, `transfers` at a time; empty: the system's folder for
  // temporary files.
  std::filesystem::path work = {};
  unsigned transfers = 8;
  // A note in the source about how far this mirror is, with a lease of what it copies: as replicas
  // leave one. A source that cannot be written is no error.
  bool heartbeat = true;
  std::string name = {};  // in that note; empty: host and mirror
  Progress progress = {};
};

// The result of one step: it copied a version, or a merged delta or an anchor that was added to a
// version.
struct Mirrored {
  HopKind kind = HopKind::kVersion;
  uint64_t version = 0;
  std::optional<uint64_t> base;  // of a merged delta
  uint64_t num_objects = 0;      // that the record names
  uint64_t num_there = 0;        // of those: they were there already
  uint64_t bytes = 0;            // that were copied
  // The first version behind those that the source has removed, or that `since` leaves out.
  bool begins = false;
  std::optional<GcReport> collected = {};
  double seconds = 0;
};

// The report of repair().
struct MirrorRepair {
  uint64_t num_versions = 0, num_hops = 0, num_objects = 0;  // looked at
  uint64_t num_repaired = 0, repaired_bytes = 0;             // objects that were copied again
};

// Copies one record with all it names at a time, versions in order. A record is put last, and only
// if its name is free, so that it may be killed at any instant and opened again, and several may
// copy into one mirror. Every object is checked against the record that names it before it is put.
// Versions that the mirror's own retention has removed are not copied again. One thread at a time.
//
// BaseMismatch: the mirror holds another run, or another history of it. NotFound: the mirror is
// ahead of the source, or what is wanted is not there. Corruption: an object of the source is
// damaged. Conflict: another wrote a record of his own into the mirror.
class Mirror {
 public:
  // Reads the source alone. InvalidArgument: options that do not go together; both are one store.
  static Result<Mirror> open(const Chain& source, std::shared_ptr<Store> mirror,
                             MirrorOptions options);
  ~Mirror();
  Mirror(Mirror&&) noexcept;
  Mirror& operator=(Mirror&&) noexcept;

  // Copies the next version. When there is none, a merged delta or an anchor that the mirror does
  // not have; a version that comes meanwhile is copied first. None: the mirror has everything.
  Result<std::optional<Mirrored>> next();
  // Reads every object that records of the mirror name. What is damaged or missing is copied again;
  // NotFound or Corruption when the source does not have it any more either.
  Result<MirrorRepair> repair();

  const std::string& run() const noexcept;
  std::optional<uint64_t> version() const noexcept;  // the mirror's newest; after next()
  std::optional<uint64_t> head() const noexcept;     // the source's, as it was last seen

 private:
  struct Impl;
  explicit Mirror(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
