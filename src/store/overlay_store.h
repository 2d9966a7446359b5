// A store some of whose objects are at hand: what was just published need not be fetched again.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "store/forwarding_store.h"

namespace deltawire {

// Everything goes to the store below, but for the contents of objects that were offered.
class OverlayStore final : public ForwardingStore {
 public:
  explicit OverlayStore(std::shared_ptr<Store> below) : ForwardingStore(std::move(below)) {}

  // `body` must be what the store holds under this name, which is for the reader to check: it does
  // not trust any store.
  void offer(std::string name, std::shared_ptr<const Body> body);
  void withdraw_all();

  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;

 private:
  std::shared_ptr<const Body> find(std::string_view name) const;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Body>, std::less<>> offered_;
};

}  // namespace deltawire
