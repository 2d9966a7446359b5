// Objects that a publisher has sent: kept, in memory or in a scratch folder, until the replica that
// they are for is past them. Nothing here is trusted: bounds, order and sha-256 are checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "deltawire/digest.h"
#include "deltawire/manifest.h"
#include "deltawire/store.h"
#include "store/push_source.h"

namespace deltawire {

// One object as it arrives, front to end.
class HeldObject final : public Body {
 public:
  static Result<std::shared_ptr<HeldObject>> in_memory(uint64_t size_bytes);
  // A file without a name, whose disk space is taken at once.
  static Result<std::shared_ptr<HeldObject>> in_folder(const std::filesystem::path& folder,
                                                       uint64_t size_bytes);
  ~HeldObject() override;
  HeldObject(const HeldObject&) = delete;
  HeldObject& operator=(const HeldObject&) = delete;

  Status append(Bytes bytes);
  uint64_t size() const noexcept override { return size_bytes_; }
  uint64_t received() const noexcept { return received_; }
  bool is_in_memory() const noexcept { return fd_ < 0; }
  Digest sha256();                                                // once, when all is there
  Status read(uint64_t offset, MutableBytes out) const override;  // from then on, any thread

 private:
  explicit HeldObject(uint64_t size_bytes)
      : size_bytes_(size_bytes), hasher_(DigestKind::kSha256) {}
  const uint64_t size_bytes_;
  uint64_t received_ = 0;
  std::vector<uint8_t> bytes_;
  int fd_ = -1;
  Hasher hasher_;
};

struct HeldLimits {
  uint64_t memory_bytes = 0;
  std::filesystem::path scratch;
  uint64_t scratch_bytes = 0;
};

// add() and commit() from one thread, the others from any.
class HeldObjects {
 public:
  explicit HeldObjects(HeldLimits limits) : limits_(std::move(limits)) {}

  // Some bytes of an object, which come in order; those that come again are passed over. An object
  // for which there is no room is not kept, nor is one of a version that the replica is past.
  // Corruption for what no honest publisher sends.
  Status add(std::string_view name, uint64_t object_bytes, uint64_t offset, Bytes bytes);
  // From now on the parts of this version can be found. Others of its number are dropped, as is
  // what does not have the sha-256 that the record says: the names of those are returned.
  std::vector<std::string> commit(uint64_t version, const std::vector<PartRef>& parts);
  // The replica holds this version.
  void drop_up_to(uint64_t version);
  void clear();

  // Whole ones that no commit has named so far, after number `seen`.
  std::vector<SentObject> sent_ahead(uint64_t seen) const;
  // A whole one of a committed version; null: read it elsewhere.
  std::shared_ptr<const HeldObject> find(std::string_view name) const;

  struct Use {
    uint64_t memory_bytes = 0, scratch_bytes = 0, most_memory_bytes = 0;
  };
  Use use() const;

 private:
  struct Entry {
    uint64_t version = 0;
    bool ready = false;                  // whole, and vouched for
    uint64_t number = 0;                 // among those that are whole; 0: it is not
    std::shared_ptr<HeldObject> object;  // null: there was no room
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  std::shared_ptr<HeldObject> make_object(uint64_t version, uint64_t size_bytes);
  bool make_room(uint64_t version, uint64_t size_bytes, bool in_memory);
  Entries::iterator erase(Entries::iterator at);

  const HeldLimits limits_;
  mutable std::mutex mutex_;
  Entries entries_;
  Use use_;
  uint64_t num_whole_ = 0;
  std::optional<uint64_t> past_;
};

}  // namespace deltawire
