#include "live/exchange.h"
#include "live/slices.h"
#include "live/spool.h"
#include "live/stage.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
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

using Offsets = nb::ndarray<const uint32_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Item = std::tuple<const Tensor*, Offsets, const Tensor*>;

bool is_raw(DType dtype, unsigned width) {
  if (dtype == DType::kU8) return true;
  return dtype == (width == 2 ? DType::kU16 : width == 4 ? DType::kU32 : DType::kU64) && width > 1;
}

ExchangeList list_of(const Tensor& array, const Offsets& offsets, const Tensor& values,
                     size_t number) {
  const unsigned width = unsigned(std::max<uint64_t>(dtype_bits(array.dtype), 8) / 8);
  const std::string place = "list " + std::to_string(number);
  if (!array.writable) throw StatusError(invalid_argument(place + ": the array is read-only"));
  if (values.memory != Memory::kHost) {
    throw StatusError(invalid_argument(place + ": its values must be in host memory"));
  }
  if (values.dtype != array.dtype && !is_raw(values.dtype, width)) {
    throw StatusError(invalid_argument(
        place + ": the array has dtype " + std::string(dtype_name(array.dtype)) + ", its values " +
        std::string(dtype_name(values.dtype)) + "; pass the same dtype, or raw bytes"));
  }
  return {array.bytes, width, array.memory, {offsets.data(), offsets.size()}, values.bytes};
}

// Keeps the arrays alive.
class HeldExchange {
 public:
  // The caller keeps the arrays alive.
  explicit HeldExchange(Exchange exchange)
      : exchange_("the exchange", nb::none(),
                  [&](const Progress&) -> Result<Exchange> { return std::move(exchange); }) {}
  HeldExchange(const std::vector<Item>& items, std::optional<uint64_t> device_bytes,
               unsigned threads)
      : arrays_(arrays_of(items)),
        exchange_("the exchange", nb::none(), [&](const Progress&) -> Result<Exchange> {
          const std::vector<ExchangeList>& lists = lists_;
          return Exchange::stage(lists, {device_bytes, threads});
        }) {
    lists_ = {};
  }

  void swap(uintptr_t stream) {
    check(exchange_.call(
        [&](Exchange& own) { return own.swap(reinterpret_cast<CUstream_st*>(stream)); }));
  }
  template <uint64_t (Exchange::*kGet)() const>
  uint64_t ask() {
    return unwrap(exchange_.call([](Exchange& own) { return Result<uint64_t>((own.*kGet)()); }));
  }

 private:
  std::vector<Tensor> arrays_of(const std::vector<Item>& items) {
    std::vector<Tensor> arrays;
    for (size_t i = 0; i < items.size(); ++i) {
      const auto& [array, offsets, values] = items[i];
      lists_.push_back(list_of(*array, offsets, *values, i));
      arrays.push_back(*array);
    }
    return arrays;
  }

  std::vector<ExchangeList> lists_;  // empty once staged
  // Destroyed after the exchange.
  std::vector<Tensor> arrays_;
  Owned<Exchange> exchange_;
};

using Sizes = std::vector<uint64_t>;
// offset, extent, address, strides in bytes
using HeldBoxTuple = std::tuple<Sizes, Sizes, uintptr_t, std::vector<int64_t>>;
// name, dtype, shape, is on a GPU, boxes
using HeldTensorTuple =
    std::tuple<std::string, std::string, Sizes, bool, std::vector<HeldBoxTuple>>;

std::vector<HeldBoxes> to_held(const std::vector<HeldTensorTuple>& tensors) {
  std::vector<HeldBoxes> out;
  for (const auto& [name, dtype_name, shape, is_cuda, boxes] : tensors) {
    const std::optional<DType> dtype = parse_dtype(dtype_name);
    if (!dtype) {
      throw StatusError(invalid_argument("tensor \"" + name + "\": unknown dtype " + dtype_name));
    }
    HeldBoxes held{{name, *dtype, shape}, {}, is_cuda ? Memory::kCuda : Memory::kHost};
    for (const auto& [offset, extent, address, strides] : boxes) {
      held.boxes.push_back({{offset, extent}, reinterpret_cast<uint8_t*>(address), strides});
    }
    out.push_back(std::move(held));
  }
  return out;
}

using MissingBox = std::pair<Sizes, Sizes>;  // offset, extent
struct StagedFiles : StagedDeltas {
  std::map<std::string, std::vector<MissingBox>> missing;  // by undecoded tensor: boxes it needs
};

Result<StagedFiles> stage_files(DeltaStager& stager,
                                const std::vector<std::vector<std::filesystem::path>>& paths,
                                const std::vector<HeldBoxes>& held, const StageOptions& options) {
  std::vector<Delta> deltas;
  for (const std::vector<std::filesystem::path>& of_delta : paths) {
    std::vector<PartFile> parts;
    for (const std::filesystem::path& path : of_delta) {
      const bool is_whole = path.extension() != kRangesSuffix;
      parts.push_back({path, path.string(), is_whole ? PartContents::kAll : PartContents::kSome});
    }
    DW_ASSIGN_OR_RETURN(Delta delta, stager.open(parts, options.threads));
    deltas.push_back(std::move(delta));
  }
  DW_ASSIGN_OR_RETURN(StagedDeltas staged, stager.stage(deltas, held, options));
  StagedFiles files{std::move(staged), {}};
  for (const std::string& name : files.undecoded) {
    std::vector<MissingBox>& boxes = files.missing[name];
    for (const HeldBoxes& tensor : held) {
      if (tensor.name != name) continue;
      for (const Box& box : missing_boxes(deltas, tensor)) {
        boxes.emplace_back(box.offset, box.extent);
      }
    }
  }
  return files;
}

}  // namespace

void bind_exchange(nb::module_& module) {
  nb::class_<DeltaStager>(module, "DeltaStager")
      .def(nb::init<>())
      .def(
          "stage",
          [](DeltaStager& self, const std::vector<std::vector<std::filesystem::path>>& deltas,
             const std::vector<HeldTensorTuple>& tensors, std::optional<uint64_t> device_bytes,
             unsigned threads) {
            const std::vector<HeldBoxes> held = to_held(tensors);
            StageOptions options;
            options.device_bytes = device_bytes;
            options.threads = threads;
            StagedFiles staged =
                unwrap(without_gil([&] { return stage_files(self, deltas, held, options); }));
            nb::object exchange = nb::cast(new HeldExchange(std::move(staged.exchange)),
                                           nb::rv_policy::take_ownership);
            return nb::make_tuple(exchange, staged.changed, staged.missing);
          },
          nb::arg("deltas"), nb::arg("tensors"), nb::arg("device_bytes") = nb::none(),
          nb::arg("threads") = 0);
  nb::class_<HeldExchange>(module, "Exchange")
      .def(nb::init<const std::vector<Item>&, std::optional<uint64_t>, unsigned>(),
           nb::arg("items"), nb::arg("device_bytes") = nb::none(), nb::arg("threads") = 0)
      .def("swap", &HeldExchange::swap, nb::arg("stream") = 0)
      .def_prop_ro("num_changed", &HeldExchange::ask<&Exchange::num_changed>)
      .def_prop_ro("device_bytes", &HeldExchange::ask<&Exchange::device_bytes>)
      .def_prop_ro("host_bytes", &HeldExchange::ask<&Exchange::host_bytes>);
}

}  // namespace deltawire::python
