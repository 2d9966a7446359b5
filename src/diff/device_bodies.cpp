#include "diff/device.h"

#include <algorithm>

#include "tensor/text.h"

namespace deltawire {
namespace {

class DeviceBody final : public Body {
 public:
  DeviceBody(std::shared_ptr<PublishDevice> device, const PublishTensor& tensor)
      : device_(std::move(device)), tensor_(tensor), size_(published_bytes(tensor)) {}
  ~DeviceBody() override { device_->pieces().forget(this); }
  uint64_t size() const noexcept override { return size_; }
  Status read(uint64_t offset, MutableBytes out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return invalid_argument("tensor " + quote(tensor_.view.name) + ": is read beyond its end");
    }
    return device_->pieces().read(
        this, size_, offset, out, [&](uint64_t begin, MutableBytes piece) {
          return device_->fetch(tensor_, begin, piece).at("tensor " + quote(tensor_.view.name));
        });
  }

 private:
  const std::shared_ptr<PublishDevice> device_;
  const PublishTensor tensor_;
  const uint64_t size_;
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
