// A store in memory: for tests, and for publishers and replicas in one process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>

#include "deltawire/store.h"
#include "store/push_source.h"

namespace deltawire {

// A commit (put_if_absent) notifies readers; objects put otherwise are sent ahead.
class MemoryStore final : public Store, public PushSource {
 public:
  explicit MemoryStore(std::string name = "") : name_(std::move(name)) {}

  std::string url() const override { return "memory:" + name_; }
  Result<Capabilities> capabilities() override { return Capabilities{}; }
  Status put(std::string_view name, const Body& body) override;
  Status put_if_absent(std::string_view name, const Body& body) override;
  Result<ObjectInfo> stat(std::string_view name) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override;
  Status remove(std::string_view name) override;
  Result<int64_t> clock() override;
  uint64_t wait_for_news(uint64_t seen, double seconds) override;
  std::vector<SentObject> sent_ahead(uint64_t seen) override;
  // The bytes of an object, which stay while they are held; null: no such object.
  std::shared_ptr<const std::vector<uint8_t>> share(std::string_view name) const;

  // For tests: seconds since 1970; 0: the clock of this machine.
  void set_clock(int64_t now) { now_ = now; }

 private:
  struct Object {
    std::shared_ptr<const std::vector<uint8_t>> bytes;
    int64_t modified;
  };
  Result<Object> make(std::string_view name, const Body& body);
  Result<Object> find(std::string_view name) const;

  const std::string name_;
  std::atomic<int64_t> now_{0};
  mutable std::mutex mutex_;
  std::map<std::string, Object, std::less<>> objects_;
  std::condition_variable changed_;
  uint64_t news_ = 0;
  std::map<uint64_t, std::string> puts_;  // the last ones, by number
};

}  // namespace deltawire
