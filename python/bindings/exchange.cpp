#include "live/exchange.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "bind.h"
#include "calls.h"
#include "tensors.h"

namespace deltawire::python {
namespace {

using Offsets = nb::ndarray<nb::ro, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Item = std::tuple<const Tensor*, Offsets, const Tensor*>;

std::string item_name(size_t number) { return "list " + std::to_string(number); }

// Integers of any kind as 32 bits; what does not fit names its list.
template <class T>
std::vector<uint32_t> narrowed(const Offsets& from, size_t number) {
  const std::span<const T> all(static_cast<const T*>(from.data()), from.size());
  std::vector<uint32_t> to(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    to[i] = uint32_t(all[i]);
    if (!std::in_range<uint32_t>(all[i])) {
      throw StatusError(invalid_argument(item_name(number) + ": offset " + std::to_string(all[i]) +
                                         " (number " + std::to_string(i) +
                                         " of the list): must be in [0, 2^32)"));
    }
  }
  return to;
}

// A list that the library can take: offsets in place where they have 32 bits, else narrowed.
struct TakenOffsets {
  std::vector<uint32_t> own;
  std::span<const uint32_t> span;
};

TakenOffsets take_offsets(const Offsets& from, size_t number) {
  if (from.dtype() == nb::dtype<uint32_t>()) {
    return {{}, {static_cast<const uint32_t*>(from.data()), from.size()}};
  }
  TakenOffsets taken;
  if (from.dtype() == nb::dtype<int32_t>()) {
    taken.own = narrowed<int32_t>(from, number);
  } else if (from.dtype() == nb::dtype<int64_t>()) {
    taken.own = narrowed<int64_t>(from, number);
  } else if (from.dtype() == nb::dtype<uint64_t>()) {
    taken.own = narrowed<uint64_t>(from, number);
  } else {
    throw StatusError(
        invalid_argument(item_name(number) + ": offsets must be integers of 32 or 64 bits"));
  }
  taken.span = taken.own;
  return taken;
}

bool is_raw(DType dtype, unsigned width) {
  if (dtype == DType::kU8) return true;
  return dtype == (width == 2 ? DType::kU16 : width == 4 ? DType::kU32 : DType::kU64) && width > 1;
}

ExchangeList list_of(const Tensor& array, std::span<const uint32_t> offsets, const Tensor& values,
                     size_t number) {
  const unsigned width = unsigned(std::max<uint64_t>(dtype_bits(array.dtype), 8) / 8);
  const std::string place = item_name(number);
  if (!array.writable) throw StatusError(invalid_argument(place + ": its array cannot be written"));
  if (values.memory != Memory::kHost) {
    throw StatusError(invalid_argument(place + ": its values must be in host memory"));
  }
  if (values.dtype != array.dtype && !is_raw(values.dtype, width)) {
    throw StatusError(invalid_argument(
        place + ": an array of " + std::string(dtype_name(array.dtype)) + " and values of " +
        std::string(dtype_name(values.dtype)) + "; give the same dtype, or raw bytes"));
  }
  return {array.bytes, width, array.memory, offsets, values.bytes};
}

// Keeps the arrays alive.
class HeldExchange {
 public:
  HeldExchange(const std::vector<Item>& items, std::optional<uint64_t> device_bytes,
               unsigned threads)
      : arrays_(arrays_of(items)),
        exchange_("the exchange", nb::none(), [&](const Progress&) -> Result<Exchange> {
          const std::vector<ExchangeList>& lists = lists_;
          return Exchange::stage(lists, {device_bytes, threads});
        }) {
    lists_ = {};
    taken_ = {};
  }

  void swap(uintptr_t stream) {
    check(exchange_.call(
        [&](Exchange& own) { return own.swap(reinterpret_cast<CUstream_st*>(stream)); }));
  }
  template <class Get>
  uint64_t ask(Get get) {
    return unwrap(exchange_.call([&](Exchange& own) { return Result<uint64_t>(get(own)); }));
  }

 private:
  std::vector<Tensor> arrays_of(const std::vector<Item>& items) {
    std::vector<Tensor> arrays;
    taken_.reserve(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      const auto& [array, offsets, values] = items[i];
      taken_.push_back(take_offsets(offsets, i));
      lists_.push_back(list_of(*array, taken_.back().span, *values, i));
      arrays.push_back(*array);
    }
    return arrays;
  }

  // Only while it is staged.
  std::vector<TakenOffsets> taken_;
  std::vector<ExchangeList> lists_;
  // The exchange goes before its arrays.
  std::vector<Tensor> arrays_;
  Owned<Exchange> exchange_;
};

}  // namespace

void bind_exchange(nb::module_& module) {
  nb::class_<HeldExchange>(module, "Exchange")
      .def(nb::init<const std::vector<Item>&, std::optional<uint64_t>, unsigned>(),
           nb::arg("items"), nb::arg("device_bytes") = nb::none(), nb::arg("threads") = 0)
      .def("swap", &HeldExchange::swap, nb::arg("stream") = 0)
      .def_prop_ro("num_changed",
                   [](HeldExchange& self) {
                     return self.ask([](const Exchange& own) { return own.num_changed(); });
                   })
      .def_prop_ro("device_bytes",
                   [](HeldExchange& self) {
                     return self.ask([](const Exchange& own) { return own.device_bytes(); });
                   })
      .def_prop_ro("host_bytes", [](HeldExchange& self) {
        return self.ask([](const Exchange& own) { return own.host_bytes(); });
      });
}

}  // namespace deltawire::python
