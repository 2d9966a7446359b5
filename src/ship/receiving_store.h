// A replica's store: what was sent, the publisher's own store, and a store behind both.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "deltawire/store.h"
#include "ship/receiver.h"
#include "ship/remote_store.h"
#include "store/push_source.h"

namespace deltawire {

// Parts come from what was sent; else from the store behind, which many may read at once; else from
// the publisher. Records come from the publisher, who has the newest; else from behind.
class ReceivingStore final : public Store, public PushSource {
 public:
  ReceivingStore(std::shared_ptr<Receiver> receiver, std::shared_ptr<Store> behind);

  std::string url() const override { return remote_.url(); }
  Result<Capabilities> capabilities() override { return remote_.capabilities(); }
  Status put(std::string_view name, const Body& body) override;
  Status put_if_absent(std::string_view name, const Body& body) override;
  Result<ObjectInfo> stat(std::string_view name) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override;
  Status remove(std::string_view name) override;
  uint64_t wait_for_news(uint64_t seen, double seconds) override {
    return receiver_->wait_for_news(seen, seconds);
  }
  std::vector<SentObject> sent_ahead(uint64_t seen) override {
    return receiver_->held().sent_ahead(seen);
  }

 private:
  template <class Call>
  auto elsewhere(std::string_view name, const Call& call);
  // Whoever wants the same object again did not like what the store behind gave.
  bool was_read_behind(std::string_view name);

  const std::shared_ptr<Receiver> receiver_;
  RemoteStore remote_;
  const std::shared_ptr<Store> behind_;
  std::mutex mutex_;
  std::set<std::string, std::less<>> read_behind_;  // whole, of late
};

}  // namespace deltawire
