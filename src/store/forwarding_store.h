// What decorators of stores share.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "deltawire/store.h"

namespace deltawire {

// The clock of decorators; tests replace it and never wait.
struct StoreClock {
  std::function<double()> now;  // seconds, never going back
  std::function<void(double seconds)> sleep;
};
StoreClock real_clock();

// A store around another: decorators override what they change.
class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}

  std::string url() const override { return inner_->url(); }
  std::string local_folder() const override { return inner_->local_folder(); }
  Result<Capabilities> capabilities() override { return inner_->capabilities(); }
  Status put(std::string_view name, const Body& body) override { return inner_->put(name, body); }
  Status put_if_absent(std::string_view name, const Body& body) override {
    return inner_->put_if_absent(name, body);
  }
  Result<ObjectInfo> stat(std::string_view name) override { return inner_->stat(name); }
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    return inner_->get(name, max_bytes);
  }
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    return inner_->read(name, offset, out);
  }
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override {
    return inner_->download(name, size_bytes, sink);
  }
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override {
    return inner_->list(prefix, start_after, limit);
  }
  Status remove(std::string_view name) override { return inner_->remove(name); }
  Result<int64_t> clock() override { return inner_->clock(); }

  Store& inner() const noexcept { return *inner_; }

 private:
  const std::shared_ptr<Store> inner_;
};

// Serves some objects, such as those just published, from memory. Everything else is read from the
// store below.
class OverlayStore : public ForwardingStore {
 public:
  explicit OverlayStore(std::shared_ptr<Store> below) : ForwardingStore(std::move(below)) {}

  // `body` must equal the store's object of this name. Readers verify it, as they do for any store.
  void offer(std::string name, std::shared_ptr<const Body> body);
  void withdraw(std::string_view name);
  void withdraw_all();

  Result<ObjectInfo> stat(std::string_view name) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;

 private:
  std::shared_ptr<const Body> find(std::string_view name) const;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Body>, std::less<>> offered_;
};

}  // namespace deltawire
