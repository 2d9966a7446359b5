#include "device/made.h"

#include "device/context.h"

namespace deltawire::cuda {

Status DeviceRoom::reserve(const Context& context, uint64_t num_bytes) {
  if (num_bytes <= size()) return {};
  memory_ = nullptr;  // first, so that both need not fit
  size_ = 0;
  const UseDevice use(ContextInternals::of(context).device);
  DW_ASSIGN_OR_RETURN(Buffer taken, Buffer::allocate(Place::kDevice, size_t(num_bytes)));
  const auto owner = std::make_shared<Buffer>(std::move(taken));
  memory_ = std::shared_ptr<uint8_t>(owner, owner->data());
  size_ = num_bytes;
  return {};
}

Status copy_there(void* to, const void* from, uint64_t num_bytes, Stream stream) {
  const UseDevice use(device_of(to).value_or(0));
  DW_RETURN_IF_ERROR(copy(to, from, size_t(num_bytes), stream));
  return wait(stream);
}

}  // namespace deltawire::cuda
