// A store that counts what it is asked for, and can be told to fail.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "deltawire/store.h"

namespace deltawire::testing {

class CountingStore final : public Store {
 public:
  explicit CountingStore(std::shared_ptr<Store> inner) : inner_(std::move(inner)) {}

  std::atomic<uint64_t> requests{0};
  // Asked before each request; a failure is returned in its place.
  std::function<Status(std::string_view call, std::string_view name)> before;

  // Edits what a listing shows.
  std::function<void(std::vector<ObjectInfo>*)> after_list;

  std::string url() const override { return inner_->url(); }
  Result<Capabilities> capabilities() override { return inner_->capabilities(); }
  Status put(std::string_view name, const Body& body) override {
    DW_RETURN_IF_ERROR(count("put", name));
    return inner_->put(name, body);
  }
  Status put_if_absent(std::string_view name, const Body& body) override {
    DW_RETURN_IF_ERROR(count("put_if_absent", name));
    return inner_->put_if_absent(name, body);
  }
  Result<ObjectInfo> stat(std::string_view name) override {
    DW_RETURN_IF_ERROR(count("stat", name));
    return inner_->stat(name);
  }
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override {
    DW_RETURN_IF_ERROR(count("get", name));
    return inner_->get(name, max_bytes);
  }
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override {
    DW_RETURN_IF_ERROR(count("read", name));
    return inner_->read(name, offset, out);
  }
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override {
    DW_RETURN_IF_ERROR(count("download", name));
    return inner_->download(name, size_bytes, sink);
  }
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override {
    DW_RETURN_IF_ERROR(count("list", prefix));
    auto page = inner_->list(prefix, start_after, limit);
    if (page.ok() && after_list) after_list(&*page);
    return page;
  }
  Status remove(std::string_view name) override {
    DW_RETURN_IF_ERROR(count("remove", name));
    return inner_->remove(name);
  }

 private:
  Status count(std::string_view call, std::string_view name) {
    ++requests;
    return before ? before(call, name) : Status();
  }
  const std::shared_ptr<Store> inner_;
};

}  // namespace deltawire::testing
