// A memory store in which a test can observe, count, delay or refuse every call, change puts and
// listings, or lose an answer.
#pragma once

#include "store/forwarding_store.h"
#include "store/memory_store.h"
#include "test_files.h"

namespace deltawire::testing {

class HookedStore final : public ForwardingStore {
 public:
  explicit HookedStore(std::shared_ptr<Store> inner = std::make_shared<MemoryStore>())
      : ForwardingStore(std::move(inner)) {}

  // If a hook fails, the call returns its failure; after `after_put` fails, the object is stored.
  std::function<Status(std::string_view call, std::string_view name)> before;
  std::function<Status(std::string_view name)> before_put, after_put, before_get;
  // Returns the text that is stored instead of `text`.
  std::function<std::string(std::string_view name, std::string text)> rewrite;
  std::function<void(std::vector<ObjectInfo>*)> after_list;
  std::atomic<uint64_t> requests{0};
  Capabilities can;
  bool has_clock = true;
  using ForwardingStore::inner;

  Result<Capabilities> capabilities() override { return can; }
  Result<int64_t> clock() override { return has_clock ? inner().clock() : Store::clock(); }
  Status put(std::string_view name, const Body& body) override {
    return hooked("put", name, body, [&](const Body& as) { return inner().put(name, as); });
  }
  Status put_if_absent(std::string_view name, const Body& body) override {
    return hooked("put_if_absent", name, body,
                  [&](const Body& as) { return inner().put_if_absent(name, as); });
  }
  Result<ObjectInfo> stat(std::string_view name) override {
    DW_RETURN_IF_ERROR(ask("stat", name));
    return inner().stat(name);
  }
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    DW_RETURN_IF_ERROR(ask("get", name, before_get));
    return inner().get(name, max_bytes);
  }
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    DW_RETURN_IF_ERROR(ask("read", name, before_get));
    return inner().read(name, offset, out);
  }
  Status download(std::string_view name, uint64_t size, Sink* sink) override {
    DW_RETURN_IF_ERROR(ask("download", name, before_get));
    return inner().download(name, size, sink);
  }
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override {
    DW_RETURN_IF_ERROR(ask("list", prefix));
    auto page = inner().list(prefix, start_after, limit);
    if (page.ok() && after_list) after_list(&*page);
    return page;
  }
  Status remove(std::string_view name) override {
    DW_RETURN_IF_ERROR(ask("remove", name));
    return inner().remove(name);
  }

 private:
  Status ask(std::string_view call, std::string_view name,
             const std::function<Status(std::string_view name)>& own = {}) {
    ++requests;
    if (before) DW_RETURN_IF_ERROR(before(call, name));
    return own ? own(name) : Status();
  }
  Status hooked(std::string_view call, std::string_view name, const Body& body,
                const std::function<Status(const Body&)>& put) {
    DW_RETURN_IF_ERROR(ask(call, name, before_put));
    DW_RETURN_IF_ERROR(rewrite ? put(MemoryBody(rewrite(name, text_of(body)))) : put(body));
    return after_put ? after_put(name) : Status();
  }

  static std::string text_of(const Body& body) {
    MemoryStore reader;
    return reader.put("text", body).ok() ? reader.get("text", UINT64_MAX).value() : "";
  }
};

inline std::vector<std::string> objects_of(Store& store, std::string_view prefix = "") {
  std::vector<std::string> names;
  must(list_all(store, prefix, "", [&](const ObjectInfo& object) {
    names.push_back(object.name);
    return true;
  }));
  return names;
}

// Flips a bit of an object.
inline void damage(Store& store, const std::string& name, size_t from_end = 1) {
  std::string text = must(store.get(name, uint64_t{1} << 30));
  text[text.size() - from_end] ^= 1;
  must(store.put(name, MemoryBody(text)));
}

}  // namespace deltawire::testing
