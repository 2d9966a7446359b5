// A store some of whose objects are at hand: what was just published need not be fetched again.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "deltawire/store.h"

namespace deltawire {

// Everything goes to the store below, but for the contents of objects that were offered.
class OverlayStore final : public Store {
 public:
  explicit OverlayStore(std::shared_ptr<Store> below) : below_(std::move(below)) {}

  // `body` must be what the store holds under this name, which is for the reader to check: it does
  // not trust any store.
  void offer(std::string name, std::shared_ptr<const Body> body);
  void withdraw_all();

  std::string url() const override { return below_->url(); }
  std::string local_folder() const override { return below_->local_folder(); }
  Result<Capabilities> capabilities() override { return below_->capabilities(); }
  Status put(std::string_view name, const Body& body) override { return below_->put(name, body); }
  Status put_if_absent(std::string_view name, const Body& body) override {
    return below_->put_if_absent(name, body);
  }
  Result<ObjectInfo> stat(std::string_view name) override { return below_->stat(name); }
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    return below_->get(name, max_bytes);
  }
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override {
    return below_->list(prefix, start_after, limit);
  }
  Status remove(std::string_view name) override { return below_->remove(name); }

 private:
  std::shared_ptr<const Body> find(std::string_view name) const;

  const std::shared_ptr<Store> below_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Body>, std::less<>> offered_;
};

}  // namespace deltawire
