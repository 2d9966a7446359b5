// Objects from one store to another, several at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chain/chain.h"
#include "deltawire/manifest.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// The store that a chain is copied into.
enum class PutRecord : uint8_t {
  kPut,
  kThere,   // the same bytes were there
  kOthers,  // others were
};

// The bytes of a record. They have no checksum of their own, and are copied as they are: so they
// are read twice, and Unavailable if they differ.
Result<std::string> read_text(Store& store, const std::string& name, uint64_t max_bytes);

// One thread.
class FarEnd {
 public:
  // Makes the run where there is none. BaseMismatch: it holds another; Unsupported: see
  // MirrorOptions::single_writer. Nothing of the chain itself is written before all of this, and
  // what begin() checks, has been looked at.
  static Result<FarEnd> open(const Chain& source, std::shared_ptr<Store> store, bool single_writer);

  const Chain& chain() const noexcept { return chain_; }
  Store& store() const noexcept { return chain_.store(); }

  // If the name is free.
  Result<PutRecord> put_record(const std::string& name, const std::string& text);
  // Puts the manifest of `version`, then the hint. Conflict when another one is there.
  Status commit(uint64_t version, const std::string& text);

  // Whether nobody else has taken it further than `last` (none: it holds no version) or has taken
  // that away: then what was planned does not hold any more.
  Result<bool> ends_with(std::optional<uint64_t> last);

 private:
  FarEnd(Chain chain, Capabilities can) : chain_(std::move(chain)), can_(can) {}
  static Result<PutRecord> put_record(Store& store, const Capabilities& can,
                                      const std::string& name, const std::string& text);
  Chain chain_;
  Capabilities can_;
};

struct CopyOptions {
  std::filesystem::path folder;  // where objects are on their way
  unsigned transfers = 8;
  bool verify = false;  // read what is there already; else its size is enough
  Progress progress = {};
};

struct Copied {
  uint64_t num_copied = 0, num_there = 0;
  uint64_t bytes = 0;        // that were copied
  bool interrupted = false;  // some are left
};

// An object is put only when all of it has arrived and is what the record says: whatever a killed
// process left is right, so that one that is there with its size need not be read again. Takes no
// memory to speak of, and as much disk as `transfers` objects.
class ObjectCopier {
 public:
  ObjectCopier(Store& from, Store& to, CopyOptions options)
      : from_(from), to_(to), options_(std::move(options)) {}

  // Corruption and NotFound name the object of the source. `interrupt` is asked before each object:
  // true leaves the rest for later.
  Result<Copied> copy(const std::vector<PartRef>& objects,
                      const std::function<bool()>& interrupt = {});

 private:
  Result<bool> is_there(const PartRef& object, const std::function<bool()>& keep_going);
  Status fetch_and_put(const PartRef& object, const std::atomic<bool>& stop,
                       std::atomic<uint64_t>* received);

  Store& from_;
  Store& to_;
  const CopyOptions options_;
};

}  // namespace deltawire
