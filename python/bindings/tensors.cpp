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

// The dtypes that arrays say themselves. Frameworks disagree about the others, which are handed
// over as bytes together with their name.
std::optional<DType> dtype_of(nb::dlpack::dtype dtype) {
  if (dtype.lanes != 1) return {};
  const auto by_size = [&](DType d8, DType d16, DType d32, DType d64) -> std::optional<DType> {
    switch (dtype.bits) {
      case 8:
        return d8;
      case 16:
        return d16;
      case 32:
        return d32;
      case 64:
        return d64;
      default:
        return {};
    }
  };
  switch (Code(dtype.code)) {
    case Code::Int:
      return by_size(DType::kI8, DType::kI16, DType::kI32, DType::kI64);
    case Code::UInt:
      return by_size(DType::kU8, DType::kU16, DType::kU32, DType::kU64);
    case Code::Float:
      if (dtype.bits == 8) return {};
      return by_size(DType::kF16, DType::kF16, DType::kF32, DType::kF64);
    case Code::Bfloat:
      return DType::kBF16;
    case Code::Bool:
      return DType::kBool;
    case Code::Complex:
      if (dtype.bits == 64) return DType::kC64;
      return {};
    case Code::Float8_E4M3FN:
      return DType::kF8_E4M3;
    case Code::Float8_E5M2:
      return DType::kF8_E5M2;
    case Code::Float8_E8M0FNU:
      return DType::kF8_E8M0;
    default:
      return {};
  }
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
    throw StatusError(unsupported(place + ": not a dtype of safetensors; name the dtype of its "
                                          "bytes: deltawire.Tensor(array, dtype=...)"));
  }
  return *dtype;
}

// The array's own shape, counted in elements of `dtype`: the last dimension gives or takes.
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

Tensor make_tensor(std::string name, nb::ndarray<nb::ro> array, bool writable,
                   const std::optional<std::string>& dtype, const std::optional<Shape>& shape,
                   const std::optional<Shape>& offset, const std::optional<std::string>& cast) {
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
  tensor.writable = writable;
  tensor.array = std::move(array);
  return tensor;
}

TensorView view_of(const Tensor& tensor) { return {tensor, tensor.bytes}; }

void refuse_box(const Tensor& tensor) {
  if (tensor.box.whole()) return;
  throw StatusError(invalid_argument("tensor " + quote(tensor.name) +
                                     ": only a box is given; the whole tensor is needed here"));
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
  module.def(
      "readable",
      [](std::string name, nb::ndarray<nb::ro> array, const std::optional<std::string>& dtype,
         const std::optional<Shape>& shape, const std::optional<Shape>& offset,
         const std::optional<std::string>& cast) {
        return make_tensor(std::move(name), std::move(array), false, dtype, shape, offset, cast);
      },
      nb::arg("name"), nb::arg("array").noconvert(), nb::arg("dtype") = nb::none(),
      nb::arg("shape") = nb::none(), nb::arg("offset") = nb::none(), nb::arg("cast") = nb::none());
  module.def(
      "writable",
      [](std::string name, nb::ndarray<> array, const std::optional<std::string>& dtype,
         const std::optional<Shape>& shape, const std::optional<Shape>& offset) {
        return make_tensor(std::move(name), nb::ndarray<nb::ro>(array), true, dtype, shape, offset,
                           {});
      },
      nb::arg("name"), nb::arg("array").noconvert(), nb::arg("dtype") = nb::none(),
      nb::arg("shape") = nb::none(), nb::arg("offset") = nb::none());
}

}  // namespace deltawire::python
