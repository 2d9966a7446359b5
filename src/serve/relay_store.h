// What a replica reads from a store, for others to read from the replica: a fleet fetches each
// object from the store once.
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
  std::filesystem::path folder;  // made when needed; its files have no names, and go with us
  uint64_t max_bytes = uint64_t{64} << 30;  // what was not read for longest goes first
};

// Objects that never change (is_immutable_object) are fetched whole when the first reader asks for
// any of them, while others wait for just the bytes that they want, and are then kept. Everything
// else goes to the store, heartbeats and news too. Where the disk fails, readers read the store.
// Nothing is checked here: readers do that.
class RelayStore final : public ForwardingStore {
 public:
  RelayStore(std::shared_ptr<Store> upstream, RelayOptions options);
  ~RelayStore() override;  // what is being fetched is given up

  Result<ObjectInfo> stat(std::string_view name) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  // For the replica itself, not for its readers: one that downloads an object again has found it
  // damaged, and it is fetched anew.
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

// `store` itself where it is a local folder: its files are at hand.
std::shared_ptr<Store> make_relay(std::shared_ptr<Store> store, RelayOptions options);

}  // namespace deltawire
