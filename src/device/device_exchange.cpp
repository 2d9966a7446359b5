#include "device/device_exchange.h"
#include "base/guard.h"
#include "kernels/cuda/exchange.h"

namespace deltawire {
namespace {

uint64_t aligned(uint64_t bytes) { return (bytes + 15) / 16 * 16; }

uint64_t room_of(const ExchangeList& list) {
  return aligned(list.offsets.size_bytes()) + aligned(list.values.size());
}

// The one device that all arrays are on.
Result<int> device_of_all(std::span<const ExchangeList* const> lists) {
  std::optional<int> first;
  for (const ExchangeList* list : lists) {
    const std::optional<int> own = cuda::device_of(list->bytes.data());
    if (!own) return invalid_argument("an array that is said to be on a GPU is on none");
    if (first && own != first) {
      return invalid_argument("arrays on devices " + std::to_string(*first) + " and " +
                              std::to_string(*own) + ": make an exchange for each");
    }
    first = own;
  }
  return *first;
}

// Lists of one kind of memory, one after the other.
struct Stretch {
  cuda::Buffer memory;
  uint64_t size = 0;
};

}  // namespace

struct DeviceExchange::Impl {
  int device = 0;
  Stretch on_device, pinned;
  cuda::SwapTable table;

  Status fill(std::span<const ExchangeList* const> lists, uint64_t most_device_bytes);
};

Status DeviceExchange::Impl::fill(std::span<const ExchangeList* const> lists,
                                  uint64_t most_device_bytes) {
  std::vector<Stretch*> places;
  for (const ExchangeList* list : lists) {
    const bool fits = on_device.size + room_of(*list) <= most_device_bytes;
    places.push_back(fits ? &on_device : &pinned);
    places.back()->size += room_of(*list);
  }
  DW_ASSIGN_OR_RETURN(on_device.memory,
                      cuda::Buffer::allocate(cuda::Place::kDevice, on_device.size));
  DW_ASSIGN_OR_RETURN(pinned.memory, cuda::Buffer::allocate(cuda::Place::kPinned, pinned.size));
  // A stream of its own: the engine's goes on.
  DW_ASSIGN_OR_RETURN(const cuda::OwnedStream stream, cuda::OwnedStream::create());
  uint8_t* device_at = on_device.memory.data();
  uint8_t* pinned_at = pinned.memory.data();
  std::vector<cuda::SwapList> swaps;
  for (size_t i = 0; i < lists.size(); ++i) {
    const ExchangeList& list = *lists[i];
    uint8_t*& at = places[i] == &on_device ? device_at : pinned_at;
    uint8_t* const values = at + aligned(list.offsets.size_bytes());
    DW_RETURN_IF_ERROR(
        cuda::copy(at, list.offsets.data(), list.offsets.size_bytes(), stream.get()));
    DW_RETURN_IF_ERROR(cuda::copy(values, list.values.data(), list.values.size(), stream.get()));
    swaps.push_back({list.bytes.data(), reinterpret_cast<const uint32_t*>(at), values,
                     list.offsets.size(), list.width, 0});
    at += room_of(list);
  }
  DW_ASSIGN_OR_RETURN(table, cuda::SwapTable::make(std::move(swaps), stream.get()));
  return {};
}

Result<DeviceExchange> DeviceExchange::stage(std::span<const ExchangeList* const> lists,
                                             std::optional<uint64_t> most_device_bytes) {
  DW_RETURN_IF_ERROR(cuda::check_device());
  auto impl = std::make_unique<Impl>();
  DW_ASSIGN_OR_RETURN(impl->device, device_of_all(lists));
  const cuda::UseDevice use(impl->device);
  if (!most_device_bytes) {
    DW_ASSIGN_OR_RETURN(const uint64_t free, cuda::free_memory());
    most_device_bytes = free / 2;
  }
  DW_RETURN_IF_ERROR(impl->fill(lists, *most_device_bytes));
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
  return impl_->on_device.size + impl_->table.device_bytes();
}
uint64_t DeviceExchange::host_bytes() const noexcept { return impl_->pinned.size; }

}  // namespace deltawire
