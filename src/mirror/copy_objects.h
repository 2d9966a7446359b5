// Copies objects from one store to another, several at a time.
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
  kThere,   // the same bytes were already there
  kOthers,  // other bytes were there
};

// The bytes of a record. Records have no checksum of their own, so they are read twice; Unavailable
// if the two reads differ.
Result<std::string> read_text(Store& store, const std::string& name, uint64_t max_bytes);

// One thread.
class FarEnd {
 public:
  // Creates the run if there is none. BaseMismatch if the store holds another run; for Unsupported
  // see MirrorOptions::single_writer. Other objects of the chain are written only after this and
  // the checks of begin().
  static Result<FarEnd> open(const Chain& source, std::shared_ptr<Store> store, bool single_writer);

  const Chain& chain() const noexcept { return chain_; }
  Store& store() const noexcept { return chain_.store(); }

  // Writes the record unless the name exists.
  Result<PutRecord> put_record(const std::string& name, const std::string& text);
  // Puts the manifest of `version`, then the hint. Conflict if there is another manifest.
  Status commit(uint64_t version, const std::string& text);

  // Whether the newest version is still `last` (none: no version). If another process has added or
  // removed versions, the plan is outdated.
  Result<bool> ends_with(std::optional<uint64_t> last);

 private:
  FarEnd(Chain chain, Capabilities can) : chain_(std::move(chain)), can_(can) {}
  static Result<PutRecord> put_record(Store& store, const Capabilities& can,
                                      const std::string& name, const std::string& text);
  Chain chain_;
  Capabilities can_;
};

struct CopyOptions {
  std::filesystem::path folder;  // for objects on their way
  unsigned transfers = 8;
  bool verify = false;  // read objects that already exist; otherwise compare only sizes
  Progress progress = {};
};

struct Copied {
  uint64_t num_copied = 0, num_there = 0;
  uint64_t bytes = 0;        // that were copied
  bool interrupted = false;  // some objects are left
};

// An object is put only when it has arrived completely and matches its record. So an existing
// object of the right size is correct, even after a crash. Uses little memory, and as much disk as
// `transfers` objects.
class ObjectCopier {
 public:
  ObjectCopier(Store& from, Store& to, CopyOptions options)
      : from_(from), to_(to), options_(std::move(options)) {}

  // Corruption and NotFound name the object in the source. `interrupt` is called before each
  // object; true postpones the rest.
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
