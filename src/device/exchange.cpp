// Lists of host arrays are worked on by a pool of threads, those of a GPU's by the GPU meanwhile.
#include "deltawire/exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/guard.h"
#include "device/exchange_checks.h"
#include "device/exchange_lists.h"
#include "kernels/kernels.h"

namespace deltawire {
namespace {

constexpr size_t kExchangedAtOnce = size_t{1} << 15;  // changes that a thread takes

// A list of an array in host memory, our copy.
struct HostList {
  uint8_t* data;
  unsigned width;
  std::vector<uint32_t> offsets;
  std::vector<uint8_t> values;
};

struct ListSlice {
  size_t list, begin, end;
};

}  // namespace

struct Exchange::Impl {
  explicit Impl(unsigned threads) : pool(threads) {}

  ThreadPool pool;
  std::vector<HostList> host;
  std::vector<ListSlice> slices;
  std::optional<DeviceExchange> device;
  uint64_t num_changed = 0, host_bytes = 0;

  Status stage_host(std::span<const ExchangeList* const> lists);
  void swap_host();
};

Status Exchange::Impl::stage_host(std::span<const ExchangeList* const> lists) {
  host.resize(lists.size());
  DW_RETURN_IF_ERROR(parallel_try("staging", &pool, lists.size(), [&](size_t i, unsigned) {
    const ExchangeList& from = *lists[i];
    host[i] = {from.bytes.data(),
               from.width,
               {from.offsets.begin(), from.offsets.end()},
               {from.values.begin(), from.values.end()}};
    return Status();
  }));
  for (size_t i = 0; i < host.size(); ++i) {
    const size_t count = host[i].offsets.size();
    host_bytes += count * sizeof(uint32_t) + host[i].values.size();
    for (size_t at = 0; at < count; at += kExchangedAtOnce) {
      slices.push_back({i, at, std::min(count, at + kExchangedAtOnce)});
    }
  }
  return {};
}

void Exchange::Impl::swap_host() {
  parallel_for(&pool, slices.size(), [&](size_t i, unsigned) {
    const auto& [number, begin, end] = slices[i];
    HostList& list = host[number];
    kernels().exchange[width_index(list.width)](list.data, list.offsets.data() + begin,
                                                list.values.data() + begin * list.width,
                                                end - begin);
  });
}

Result<Exchange> Exchange::stage(std::span<const ExchangeList> lists,
                                 const ExchangeOptions& options) {
  return guard_memory("staging", [&]() -> Result<Exchange> {
    auto impl = std::make_unique<Impl>(options.threads);
    DW_RETURN_IF_ERROR(check_exchange(lists, &impl->pool));
    std::vector<const ExchangeList*> host, device;
    for (const ExchangeList& list : lists) {
      impl->num_changed += list.offsets.size();
      if (!list.offsets.empty()) (list.memory == Memory::kHost ? host : device).push_back(&list);
    }
    DW_RETURN_IF_ERROR(impl->stage_host(host));
    if (!device.empty()) {
      DW_ASSIGN_OR_RETURN(impl->device, DeviceExchange::stage(device, options.device_bytes));
    }
    return Exchange(std::move(impl));
  });
}

Exchange::Exchange(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Exchange::~Exchange() = default;
Exchange::Exchange(Exchange&&) noexcept = default;
Exchange& Exchange::operator=(Exchange&&) noexcept = default;

Status Exchange::swap(CUstream_st* stream) {
  if (!impl_->device) {
    impl_->swap_host();
    return {};
  }
  DW_RETURN_IF_ERROR(impl_->device->start(stream));
  impl_->swap_host();
  return impl_->device->finish(stream);
}

uint64_t Exchange::num_changed() const noexcept { return impl_->num_changed; }
uint64_t Exchange::device_bytes() const noexcept {
  return impl_->device ? impl_->device->device_bytes() : 0;
}
uint64_t Exchange::host_bytes() const noexcept {
  return impl_->host_bytes + (impl_->device ? impl_->device->host_bytes() : 0);
}

}  // namespace deltawire
