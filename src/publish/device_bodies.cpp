#include "publish/device_bodies.h"

#include <algorithm>

#include "base/guard.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Fetched in pieces that are worth a trip to the device, however few bytes are asked for: to fetch
// some of a tensor that is made, all of it is made.
class DeviceBody final : public Body {
 public:
  DeviceBody(std::shared_ptr<PublishDevice> device, const PublishTensor& tensor)
      : device_(std::move(device)), tensor_(tensor), size_(published_bytes(tensor)) {}
  uint64_t size() const noexcept override { return size_; }
  Status read(uint64_t offset, MutableBytes out) const override {
    const std::lock_guard lock(mutex_);
    return guard_memory("fetching", [&]() -> Status {
      while (!out.empty()) {
        if (offset < begin_ || offset >= begin_ + piece_.size()) {
          piece_.resize(size_t(std::min(kFetchedBytes, size_ - offset)));
          begin_ = offset;
          if (Status fetched = device_->fetch(tensor_, offset, piece_); !fetched.ok()) {
            piece_.clear();
            return std::move(fetched).at("tensor " + quote(tensor_.view.name));
          }
        }
        const size_t skip = size_t(offset - begin_),
                     count = std::min(out.size(), piece_.size() - skip);
        std::copy_n(piece_.begin() + ptrdiff_t(skip), count, out.begin());
        offset += count;
        out = out.subspan(count);
      }
      if (offset == size_) piece_ = {};  // there are as many of these as tensors
      return {};
    });
  }

 private:
  static constexpr uint64_t kFetchedBytes = uint64_t{16} << 20;
  const std::shared_ptr<PublishDevice> device_;
  const PublishTensor tensor_;
  const uint64_t size_;
  mutable std::mutex mutex_;
  mutable uint64_t begin_ = 0;  // of the piece that was fetched last
  mutable std::vector<uint8_t> piece_;
};

class DeviceCoder final : public ArrayCoder {
 public:
  DeviceCoder(std::shared_ptr<PublishDevice> device, const PublishTensor& tensor)
      : device_(std::move(device)), tensor_(tensor) {}
  Result<std::vector<exponents::BlockPlan>> plan() const override { return device_->plan(tensor_); }
  Status code(size_t first, std::span<const exponents::BlockPlan> plans,
              MutableBytes out) const override {
    Status status = device_->code(tensor_, first, plans, out);
    return status.code() == Code::kIo ? changed_on_device(tensor_) : status;
  }

 private:
  const std::shared_ptr<PublishDevice> device_;
  const PublishTensor tensor_;
};

}  // namespace

std::shared_ptr<const Body> device_body(std::shared_ptr<PublishDevice> device,
                                        const PublishTensor& tensor) {
  return std::make_shared<DeviceBody>(std::move(device), tensor);
}

std::shared_ptr<const ArrayCoder> device_coder(std::shared_ptr<PublishDevice> device,
                                               const PublishTensor& tensor) {
  return std::make_shared<DeviceCoder>(std::move(device), tensor);
}

Status changed_on_device(const PublishTensor& tensor) {
  return io_error("tensor " + quote(tensor.view.name) +
                  ": changed while it was read; nothing was committed, publish again when " +
                  "nobody writes to it");
}

}  // namespace deltawire
