// Serves to other replicas what this replica reads, so that a fleet fetches each object from the
// store once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "store/forwarding_store.h"
#include "store/pieces.h"

namespace deltawire {

struct RelayOptions {
  std::filesystem::path
      folder;  // created if needed; its files are nameless and vanish with the process
  uint64_t max_bytes = uint64_t{64} << 30;  // the least recently read objects are dropped first
};

// An immutable object (is_immutable_object) is fetched whole at its first read and kept; each
// reader waits only for the bytes it wants. Everything else, heartbeats and news included, goes to
// the store. If the disk fails, readers read from the store. Readers verify the data; the relay
// does not.
class RelayStore final : public ForwardingStore {
 public:
  RelayStore(std::shared_ptr<Store> upstream, RelayOptions options);
  ~RelayStore() override;  // cancels running fetches

  Result<ObjectInfo> stat(std::string_view name) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  // For the replica itself, not for its readers. A second download means that the replica found the
  // object damaged, so it is fetched again.
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;
  Status put(std::string_view name, const Body& body) override;
  Status remove(std::string_view name) override;

 private:
  class Object;
  using Objects = std::map<std::string, std::shared_ptr<Object>, std::less<>>;

  Result<std::shared_ptr<Object>> find(std::string_view name);
  void keep(const std::shared_ptr<Object>& object);
  void forget(std::string_view name, const Object* object = nullptr);
  void fetch(const std::shared_ptr<Object>& object);
  Status read(const std::shared_ptr<Object>& object, uint64_t offset, std::span<uint8_t> out);

  const RelayOptions options_;
  const size_t max_objects_;
  Slots slots_;  // objects that are fetched at once
  std::mutex mutex_;
  std::condition_variable changed_;
  Objects objects_;
  uint64_t kept_bytes_ = 0, num_reads_ = 0, num_fetching_ = 0;
  std::atomic<bool> ending_ = false;
};

// Returns `store` itself if it is a local folder.
std::shared_ptr<Store> make_relay(std::shared_ptr<Store> store, RelayOptions options);

}  // namespace deltawire
