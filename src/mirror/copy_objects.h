// Objects from one store to another, several at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "deltawire/manifest.h"
#include "deltawire/progress.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

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
