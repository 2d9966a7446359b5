// A store in memory that lets a test look at every put, hold it up, refuse it, change it or lose
// its answer.
#pragma once

#include <functional>
#include <memory>

#include "store/forwarding_store.h"
#include "store/memory_store.h"

namespace deltawire::testing {

class HookedStore final : public ForwardingStore {
 public:
  explicit HookedStore(std::shared_ptr<Store> inner = std::make_shared<MemoryStore>())
      : ForwardingStore(std::move(inner)) {}

  // What it returns is the put's answer unless it is Ok; the object is there afterwards only if
  // `before_put` let it pass.
  std::function<Status(std::string_view name)> before_put, after_put;
  std::function<Status(std::string_view name)> before_get;
  // What is put instead of `text`: nobody ever sees the object as it was.
  std::function<std::string(std::string_view name, std::string text)> rewrite;
  Capabilities can;
  using ForwardingStore::inner;

  Result<Capabilities> capabilities() override { return can; }
  Status put(std::string_view name, const Body& body) override {
    return hooked(name, body, [&](const Body& as) { return inner().put(name, as); });
  }
  Status put_if_absent(std::string_view name, const Body& body) override {
    return hooked(name, body, [&](const Body& as) { return inner().put_if_absent(name, as); });
  }
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    if (before_get) DW_RETURN_IF_ERROR(before_get(name));
    return inner().get(name, max_bytes);
  }
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    if (before_get) DW_RETURN_IF_ERROR(before_get(name));
    return inner().read(name, offset, out);
  }
  Status download(std::string_view name, uint64_t size, Sink* sink) override {
    if (before_get) DW_RETURN_IF_ERROR(before_get(name));
    return inner().download(name, size, sink);
  }

 private:
  Status hooked(std::string_view name, const Body& body,
                const std::function<Status(const Body&)>& put) {
    if (before_put) DW_RETURN_IF_ERROR(before_put(name));
    DW_RETURN_IF_ERROR(rewrite ? put(MemoryBody(rewrite(name, text_of(body)))) : put(body));
    return after_put ? after_put(name) : Status();
  }

  static std::string text_of(const Body& body) {
    MemoryStore reader;
    return reader.put("text", body).ok() ? reader.get("text", UINT64_MAX).value() : "";
  }
};

}  // namespace deltawire::testing
