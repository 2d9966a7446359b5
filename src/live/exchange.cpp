// A pool of threads processes the lists of host arrays while the GPU processes its own.
#include "live/exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <queue>
#include <string>
#include <vector>

#include "base/guard.h"
#include "kernels/kernels.h"

namespace deltawire {
namespace {

std::string list_name(size_t number) { return "list " + std::to_string(number); }

Status check_form(const ExchangeList& list) {
  if (list.width != 1 && list.width != 2 && list.width != 4 && list.width != 8) {
    return invalid_argument("elements of " + std::to_string(list.width) +
                            " bytes; 1, 2, 4 or 8 can be exchanged");
  }
  if (list.bytes.size() % list.width != 0) {
    return invalid_argument("an array of " + std::to_string(list.bytes.size()) +
                            " bytes is not a whole number of elements of " +
                            std::to_string(list.width) + " bytes");
  }
  if (list.values.size() != list.offsets.size() * list.width) {
    return invalid_argument(std::to_string(list.offsets.size()) + " offsets of elements of " +
                            std::to_string(list.width) + " bytes, but " +
                            std::to_string(list.values.size()) + " bytes of values");
  }
  return {};
}

constexpr size_t kCheckedAtOnce = size_t{1} << 18;

// Checks offsets [begin, end) of a list, also against the offset before them.
Status check_offsets(const ExchangeList& list, size_t begin, size_t end) {
  const std::span<const uint32_t> offsets = list.offsets;
  bool ascend = true;
  for (size_t i = std::max<size_t>(begin, 1); i < end; ++i) ascend &= offsets[i - 1] < offsets[i];
  const uint64_t num_elements = list.bytes.size() / list.width;
  if (ascend && offsets[end - 1] < num_elements) return {};
  for (size_t i = begin; i < end; ++i) {
    const std::string place =
        "offset " + std::to_string(offsets[i]) + " (number " + std::to_string(i) + " of the list)";
    if (offsets[i] >= num_elements) {
      return invalid_argument(place + ": the array has " + std::to_string(num_elements) +
                              " elements");
    }
    if (i != 0 && offsets[i - 1] >= offsets[i]) {
      return invalid_argument(place + ": comes after " + std::to_string(offsets[i - 1]) +
                              "; offsets must ascend");
    }
  }
  return internal_error("offsets were refused by one check and accepted by another");
}

// The current position in a list.
struct Cursor {
  const ExchangeList* list;
  size_t number;  // of the list
  size_t at = 0;  // of its offsets
  uintptr_t begin() const {
    return uintptr_t(list->bytes.data()) + uint64_t{list->offsets[at]} * list->width;
  }
  uintptr_t end() const { return begin() + list->width; }
  uintptr_t last_end() const {
    return uintptr_t(list->bytes.data()) + (uint64_t{list->offsets.back()} + 1) * list->width;
  }
};
struct IsLater {
  bool operator()(const Cursor& a, const Cursor& b) const { return a.begin() > b.begin(); }
};

// Checks interleaved lists by merging them in the order of memory.
Status check_together(std::vector<Cursor> cursors) {
  std::priority_queue<Cursor, std::vector<Cursor>, IsLater> next(IsLater(), std::move(cursors));
  uintptr_t end = 0;
  size_t owner = 0;
  while (!next.empty()) {
    Cursor cursor = next.top();
    next.pop();
    if (cursor.begin() < end) {
      return invalid_argument(list_name(cursor.number) + ": offset " +
                              std::to_string(cursor.list->offsets[cursor.at]) +
                              ": the same memory is in " + list_name(owner));
    }
    end = cursor.end();
    owner = cursor.number;
    if (++cursor.at < cursor.list->offsets.size()) next.push(cursor);
  }
  return {};
}

Status check_exchange(std::span<const ExchangeList> lists, ThreadPool* pool) {
  struct Slice {
    size_t number, begin, end;
  };
  std::vector<Slice> slices;
  std::vector<Cursor> cursors;
  for (size_t i = 0; i < lists.size(); ++i) {
    DW_RETURN_IF_ERROR(check_form(lists[i]).at(list_name(i)));
    const size_t count = lists[i].offsets.size();
    for (size_t at = 0; at < count; at += kCheckedAtOnce) {
      slices.push_back({i, at, std::min(count, at + kCheckedAtOnce)});
    }
    if (count != 0) cursors.push_back({&lists[i], i});
  }
  DW_RETURN_IF_ERROR(parallel_try("staging", pool, slices.size(), [&](size_t i, unsigned) {
    const auto& [number, begin, end] = slices[i];
    return check_offsets(lists[number], begin, end).at(list_name(number));
  }));
  std::sort(cursors.begin(), cursors.end(),
            [](const Cursor& a, const Cursor& b) { return a.begin() < b.begin(); });
  for (size_t first = 0; first < cursors.size();) {
    uintptr_t end = cursors[first].last_end();
    size_t last = first + 1;
    for (; last < cursors.size() && cursors[last].begin() < end; ++last) {
      end = std::max(end, cursors[last].last_end());
    }
    if (last - first > 1) {
      DW_RETURN_IF_ERROR(
          check_together({cursors.begin() + ptrdiff_t(first), cursors.begin() + ptrdiff_t(last)}));
    }
    first = last;
  }
  return {};
}

constexpr size_t kExchangedAtOnce = size_t{1} << 15;  // changes per task

struct ListSlice {
  size_t list, begin, end;
};

}  // namespace

struct Exchange::Impl {
  explicit Impl(unsigned threads) : pool(threads) {}

  ThreadPool pool;
  std::vector<OwnedList> host;
  std::vector<ListSlice> slices;
  std::optional<DeviceExchange> device;
  uint64_t num_changed = 0, host_bytes = 0;

  void share_out();
  void swap_host();
};

// Divides all host lists into tasks for the threads.
void Exchange::Impl::share_out() {
  for (size_t i = 0; i < host.size(); ++i) {
    const size_t count = host[i].offsets.size();
    num_changed += count;
    host_bytes += count * sizeof(uint32_t) + host[i].values.size();
    for (size_t at = 0; at < count; at += kExchangedAtOnce) {
      slices.push_back({i, at, std::min(count, at + kExchangedAtOnce)});
    }
  }
}

void Exchange::Impl::swap_host() {
  parallel_for(&pool, slices.size(), [&](size_t i, unsigned) {
    const auto& [number, begin, end] = slices[i];
    OwnedList& list = host[number];
    kernels().exchange[width_index(list.width)](list.bytes.data(), list.offsets.data() + begin,
                                                list.values.data() + begin * list.width,
                                                end - begin);
  });
}

Result<Exchange> Exchange::stage(std::span<const ExchangeList> lists,
                                 const ExchangeOptions& options) {
  return guard_memory("staging", [&]() -> Result<Exchange> {
    auto impl = std::make_unique<Impl>(lists.empty() ? 1 : options.threads);
    DW_RETURN_IF_ERROR(check_exchange(lists, &impl->pool));
    std::vector<const ExchangeList*> host, device;
    for (const ExchangeList& list : lists) {
      if (!list.offsets.empty()) (list.memory == Memory::kHost ? host : device).push_back(&list);
    }
    impl->host.resize(host.size());
    DW_RETURN_IF_ERROR(
        parallel_try("staging", &impl->pool, host.size(), [&](size_t i, unsigned) -> Status {
          const ExchangeList& list = *host[i];
          impl->host[i] = {list.bytes,
                           list.width,
                           list.memory,
                           {list.offsets.begin(), list.offsets.end()},
                           {list.values.begin(), list.values.end()}};
          return {};
        }));
    return make(std::move(impl), device, options, nullptr);
  });
}

Result<Exchange> Exchange::take(std::vector<OwnedList> lists, const ExchangeOptions& options,
                                DeviceStage* on_device) {
  return guard_memory("staging", [&]() -> Result<Exchange> {
    auto impl = std::make_unique<Impl>(lists.empty() ? 1 : options.threads);
    std::vector<ExchangeList> views;
    for (const OwnedList& own : lists) {
      views.push_back({own.bytes, own.width, own.memory, own.offsets, own.values});
    }
    DW_RETURN_IF_ERROR(check_exchange(views, &impl->pool));
    std::vector<const ExchangeList*> device;
    for (size_t i = 0; i < lists.size(); ++i) {
      if (lists[i].offsets.empty()) continue;
      if (lists[i].memory == Memory::kHost) {
        impl->host.push_back(std::move(lists[i]));
      } else {
        device.push_back(&views[i]);
      }
    }
    return make(std::move(impl), device, options, on_device);
  });
}

Result<Exchange> Exchange::make(std::unique_ptr<Impl> impl,
                                std::span<const ExchangeList* const> device,
                                const ExchangeOptions& options, DeviceStage* on_device) {
  impl->share_out();
  for (const ExchangeList* list : device) impl->num_changed += list->offsets.size();
  if (on_device != nullptr) {
    impl->num_changed += on_device->num_changed();
    DW_ASSIGN_OR_RETURN(impl->device, on_device->finish(device));
  } else if (!device.empty()) {
    DW_ASSIGN_OR_RETURN(impl->device, DeviceExchange::stage(device, options.device_bytes));
  }
  return Exchange(std::move(impl));
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
