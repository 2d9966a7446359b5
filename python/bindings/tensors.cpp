#include "tensors.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "status.h"
#include "tensor/text.h"

namespace deltawire::python {
namespace {

using Code = nb::dlpack::dtype_code;

// The dtypes that DLPack describes unambiguously. Others are passed as bytes with a dtype name.
struct KnownDType {
  Code code;
  unsigned bits;
  DType dtype;
};
constexpr KnownDType kKnownDTypes[] = {
    {Code::Int, 8, DType::kI8},
    {Code::Int, 16, DType::kI16},
    {Code::Int, 32, DType::kI32},
    {Code::Int, 64, DType::kI64},
    {Code::UInt, 8, DType::kU8},
    {Code::UInt, 16, DType::kU16},
    {Code::UInt, 32, DType::kU32},
    {Code::UInt, 64, DType::kU64},
    {Code::Float, 16, DType::kF16},
    {Code::Float, 32, DType::kF32},
    {Code::Float, 64, DType::kF64},
    {Code::Bfloat, 16, DType::kBF16},
    {Code::Bool, 8, DType::kBool},
    {Code::Complex, 64, DType::kC64},
    {Code::Float8_E4M3FN, 8, DType::kF8_E4M3},
    {Code::Float8_E5M2, 8, DType::kF8_E5M2},
    {Code::Float8_E8M0FNU, 8, DType::kF8_E8M0},
};

std::optional<DType> dtype_of(nb::dlpack::dtype dtype) {
  for (const KnownDType& known : kKnownDTypes) {
    if (dtype == nb::dlpack::dtype{uint8_t(known.code), uint8_t(known.bits), 1}) return known.dtype;
  }
  return {};
}

template <class Array>
bool is_contiguous(const Array& array) {
  if (array.size() == 0) return true;
  int64_t stride = 1;
  for (size_t i = array.ndim(); i-- > 0;) {
    if (array.shape(i) != 1 && array.stride(i) != stride) return false;
    stride *= int64_t(array.shape(i));
  }
  return true;
}

DType choose_dtype(nb::dlpack::dtype own, const std::optional<std::string>& given,
                   const std::string& place) {
  if (given) {
    const auto dtype = parse_dtype(*given);
    if (!dtype)
      throw StatusError(unsupported(place + ": dtype " + quote(*given) + " is not known"));
    return *dtype;
  }
  const auto dtype = dtype_of(own);
  if (!dtype) {
    throw StatusError(unsupported(place + ": safetensors has no such dtype; name the dtype of the "
                                          "bytes: deltawire.Tensor(array, dtype=...)"));
  }
  return *dtype;
}

// The array's shape in elements of `dtype`; only the last dimension differs.
Shape shape_in(DType dtype, nb::dlpack::dtype own, Shape shape, const std::string& place) {
  const uint64_t from = uint64_t{own.bits} * own.lanes, to = dtype_bits(dtype);
  if (from == to) return shape;
  if (shape.empty() || shape.back() * from % to != 0) {
    throw StatusError(invalid_argument(place + ": " + shape_to_string(shape) + " of " +
                                       std::to_string(from) + " bits do not make whole " +
                                       std::string(dtype_name(dtype)) + " elements"));
  }
  shape.back() = shape.back() * from / to;
  return shape;
}

Memory memory_of(int device_type, const std::string& place) {
  switch (device_type) {
    case nb::device::cpu::value:
    case nb::device::cuda_host::value:
      return Memory::kHost;
    case nb::device::cuda::value:
      return Memory::kCuda;
    default:
      throw StatusError(unsupported(place + ": neither in host memory nor on a CUDA device"));
  }
}

template <class Array, bool kWritable>
Tensor make_tensor(std::string name, Array array, const std::optional<std::string>& dtype,
                   const std::optional<Shape>& shape, const std::optional<Shape>& offset,
                   const std::optional<std::string>& cast) {
  const std::string place = "tensor " + quote(name);
  if (!is_contiguous(array)) {
    throw StatusError(invalid_argument(place + ": the array is not contiguous"));
  }
  Tensor tensor;
  tensor.memory = memory_of(array.device_type(), place);
  tensor.dtype = choose_dtype(array.dtype(), dtype, place);
  Shape own;
  for (size_t i = 0; i < array.ndim(); ++i) own.push_back(array.shape(i));
  own = shape_in(tensor.dtype, array.dtype(), std::move(own), place);
  tensor.shape = shape.value_or(own);
  if (offset) tensor.box = {*offset, own};
  check(check_box(tensor.box, tensor.dtype, tensor.shape).at(place));
  const uint64_t expected =
      unwrap(tensor_size_bytes(tensor.dtype, box_shape(tensor.box, tensor.shape)));
  if (expected != array.nbytes()) {
    throw StatusError(invalid_argument(place + ": " + shape_to_string(tensor.shape) + " of " +
                                       std::string(dtype_name(tensor.dtype)) + " are " +
                                       std::to_string(expected) + " bytes, the array has " +
                                       std::to_string(array.nbytes())));
  }
  if (cast && dtype_name(tensor.dtype) != *cast) {
    tensor.source = tensor.dtype;
    tensor.dtype = choose_dtype({}, cast, place);
  }
  tensor.name = std::move(name);
  tensor.bytes = {static_cast<uint8_t*>(const_cast<void*>(array.data())), array.nbytes()};
  tensor.writable = kWritable;
  tensor.array = nb::ndarray<nb::ro>(std::move(array));
  return tensor;
}

TensorView view_of(const Tensor& tensor) { return {tensor, tensor.bytes}; }

void refuse_box(const Tensor& tensor) {
  if (tensor.box.whole()) return;
  throw StatusError(invalid_argument("tensor " + quote(tensor.name) +
                                     ": the array is only a part of it; pass the whole tensor"));
}

}  // namespace

std::vector<PublishTensor> to_publish(const std::vector<const Tensor*>& tensors) {
  std::vector<PublishTensor> out;
  for (const Tensor* tensor : tensors) {
    out.push_back({view_of(*tensor), tensor->box, tensor->memory, tensor->source, tensor->unchanged,
                   tensor->computed});
  }
  return out;
}

std::vector<TensorView> to_views(const std::vector<const Tensor*>& tensors) {
  std::vector<TensorView> out;
  for (const Tensor* tensor : tensors) {
    refuse_box(*tensor);
    if (tensor->memory != Memory::kHost) {
      throw StatusError(
          unsupported("tensor " + quote(tensor->name) +
                      ": is on a GPU; deltas without a chain need tensors in host memory"));
    }
    out.push_back(view_of(*tensor));
  }
  return out;
}

std::vector<LiveTensor> to_patch(const std::vector<const Tensor*>& tensors) {
  std::vector<LiveTensor> out;
  for (const Tensor* tensor : tensors) {
    if (!tensor->writable) {
      throw StatusError(
          invalid_argument("tensor " + quote(tensor->name) + ": the array is read-only"));
    }
    out.push_back(
        {tensor->name, tensor->dtype, tensor->shape, tensor->bytes, tensor->memory, tensor->box});
  }
  return out;
}

void bind_tensors(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor")
      .def_ro("name", &Tensor::name)
      .def_prop_ro("dtype", [](const Tensor& self) { return std::string(dtype_name(self.dtype)); })
      .def_ro("shape", &Tensor::shape)
      .def_prop_ro("box",
                   [](const Tensor& self) {
                     const Shape origin(self.shape.size(), 0);
                     return self.box.whole() ? std::pair(origin, self.shape)
                                             : std::pair(self.box.offset, self.box.extent);
                   })
      .def_rw("unchanged", &Tensor::unchanged)
      .def_prop_ro("on_gpu", [](const Tensor& self) { return self.memory == Memory::kCuda; })
      .def_prop_ro("address", [](const Tensor& self) { return uintptr_t(self.bytes.data()); })
      .def_prop_ro("size_bytes", [](const Tensor& self) { return self.bytes.size(); });
  const auto def = [&](const char* name, const auto& make) {
    module.def(name, make, nb::arg("name"), nb::arg("array").noconvert(),
               nb::arg("dtype") = nb::none(), nb::arg("shape") = nb::none(),
               nb::arg("offset") = nb::none(), nb::arg("cast") = nb::none());
  };
  def("readable", &make_tensor<nb::ndarray<nb::ro>, false>);
  def("writable", &make_tensor<nb::ndarray<>, true>);
}

}  // namespace deltawire::python
