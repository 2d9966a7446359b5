#include "device/device_exchange.h"

#include <algorithm>

#include "base/guard.h"
#include "device/device_lists.h"

namespace deltawire {

Result<int> device_of_all(std::span<const void* const> arrays) {
  std::optional<int> first;
  for (const void* array : arrays) {
    const std::optional<int> own = cuda::device_of(array);
    if (!own) return invalid_argument("an array given as a GPU array is not on a GPU");
    if (first && own != first) {
      return invalid_argument("arrays on devices " + std::to_string(*first) + " and " +
                              std::to_string(*own) + ": make an exchange for each");
    }
    first = own;
  }
  if (!first) return invalid_argument("no arrays");
  return *first;
}

DeviceLists::~DeviceLists() {
  if (!spare) return;
  for (cuda::Buffer& block : memory) {
    if (block.place() == cuda::Place::kDevice) spare->give(std::move(block));
  }
}

Result<std::span<uint8_t>> DeviceLists::allocate(cuda::Place place, uint64_t num_bytes) {
  const bool on_device = place == cuda::Place::kDevice;
  cuda::Buffer block;
  if (on_device && spare) block = spare->take(std::max<uint64_t>(num_bytes, 1));
  if (block.size() == 0) {
    DW_ASSIGN_OR_RETURN(block, cuda::Buffer::allocate(place, num_bytes));
  }
  (on_device ? device_bytes : pinned_bytes) += block.size();
  memory.push_back(std::move(block));
  return std::span(memory.back().data(), memory.back().size());
}

Status DeviceLists::copy(std::span<const ExchangeList* const> lists, uint64_t most_device_bytes,
                         cuda::Stream stream) {
  std::vector<bool> on_device;
  uint64_t device_size = 0, pinned_size = 0;
  for (const ExchangeList* list : lists) {
    const uint64_t room = list_room(list->offsets.size(), list->width);
    on_device.push_back(device_bytes + device_size + room <= most_device_bytes);
    (on_device.back() ? device_size : pinned_size) += room;
  }
  uint8_t *device_at = nullptr, *pinned_at = nullptr;
  if (device_size != 0) {
    DW_ASSIGN_OR_RETURN(const auto block, allocate(cuda::Place::kDevice, device_size));
    device_at = block.data();
  }
  if (pinned_size != 0) {
    DW_ASSIGN_OR_RETURN(const auto block, allocate(cuda::Place::kPinned, pinned_size));
    pinned_at = block.data();
  }
  for (size_t i = 0; i < lists.size(); ++i) {
    const ExchangeList& list = *lists[i];
    uint8_t*& at = on_device[i] ? device_at : pinned_at;
    uint8_t* const values = at + aligned_list(list.offsets.size_bytes());
    DW_RETURN_IF_ERROR(cuda::copy(at, list.offsets.data(), list.offsets.size_bytes(), stream));
    DW_RETURN_IF_ERROR(cuda::copy(values, list.values.data(), list.values.size(), stream));
    swaps.push_back({list.bytes.data(), reinterpret_cast<const uint32_t*>(at), values,
                     list.offsets.size(), list.width, 0});
    at += list_room(list.offsets.size(), list.width);
  }
  return {};
}

struct DeviceExchange::Impl {
  int device = 0;
  DeviceLists lists;
  cuda::SwapTable table;
};

Result<DeviceExchange> DeviceExchange::stage(std::span<const ExchangeList* const> lists,
                                             std::optional<uint64_t> most_device_bytes) {
  DW_RETURN_IF_ERROR(cuda::check_device());
  std::vector<const void*> arrays;
  for (const ExchangeList* list : lists) arrays.push_back(list->bytes.data());
  DW_ASSIGN_OR_RETURN(const int device, device_of_all(arrays));
  const cuda::UseDevice use(device);
  if (!most_device_bytes) {
    DW_ASSIGN_OR_RETURN(const uint64_t free, cuda::free_memory());
    most_device_bytes = free / 2;
  }
  // A stream of its own: the engine's goes on.
  DW_ASSIGN_OR_RETURN(const cuda::OwnedStream stream, cuda::OwnedStream::create());
  DeviceLists own;
  DW_RETURN_IF_ERROR(own.copy(lists, *most_device_bytes, stream.get()));
  return of(device, std::move(own), stream.get());
}

Result<DeviceExchange> DeviceExchange::of(int device, DeviceLists lists, CUstream_st* stream) {
  auto impl = std::make_unique<Impl>();
  impl->device = device;
  impl->lists = std::move(lists);
  DW_ASSIGN_OR_RETURN(impl->table, cuda::SwapTable::make(std::move(impl->lists.swaps), stream));
  return DeviceExchange(std::move(impl));
}

DeviceExchange::DeviceExchange(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DeviceExchange::~DeviceExchange() = default;
DeviceExchange::DeviceExchange(DeviceExchange&&) noexcept = default;
DeviceExchange& DeviceExchange::operator=(DeviceExchange&&) noexcept = default;

Status DeviceExchange::start(CUstream_st* stream) {
  const cuda::UseDevice use(impl_->device);
  return impl_->table.swap(stream);
}

Status DeviceExchange::finish(CUstream_st* stream) {
  const cuda::UseDevice use(impl_->device);
  return cuda::wait(stream);
}

uint64_t DeviceExchange::device_bytes() const noexcept {
  return impl_->lists.device_bytes + impl_->table.device_bytes();
}
uint64_t DeviceExchange::host_bytes() const noexcept { return impl_->lists.pinned_bytes; }

}  // namespace deltawire
