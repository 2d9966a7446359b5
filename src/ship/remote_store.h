// The publisher's store, seen through the hub. Names, sizes and order of what comes are checked.
#pragma once

#include "deltawire/store.h"
#include "ship/receiver.h"

namespace deltawire {

class RemoteStore final : public Store {
 public:
  explicit RemoteStore(std::shared_ptr<Receiver> receiver) : receiver_(std::move(receiver)) {}

  std::string url() const override { return "ship://" + receiver_->hub().hub(); }
  Result<Capabilities> capabilities() override;  // Unsupported: nobody publishes to it
  Status put(std::string_view name, const Body& body) override;  // heartbeats
  Status put_if_absent(std::string_view name, const Body& body) override;
  Result<ObjectInfo> stat(std::string_view name) override;
  Result<std::string> get(std::string_view name, uint64_t max_bytes) override;
  Status read(std::string_view name, uint64_t offset, std::span<uint8_t> out) override;
  Status download(std::string_view name, uint64_t size_bytes, Sink* sink) override;
  Result<std::vector<ObjectInfo>> list(std::string_view prefix, std::string_view start_after,
                                       size_t limit) override;
  Status remove(std::string_view name) override;

 private:
  Result<Message> ask(std::string_view op, std::string_view name, nlohmann::json more = {});

  const std::shared_ptr<Receiver> receiver_;
};

}  // namespace deltawire
