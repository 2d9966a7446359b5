#include <nanobind/nanobind.h>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <map>

#include "base/thread_pool.h"
#include "bind.h"
#include "calls.h"
#include "device/fp8.h"
#include "device/whole.h"
#include "diff/computed_tensors.h"
#include "kernels/fp8_block.h"
#include "tensor/text.h"
#include "tensors.h"

namespace deltawire::python {
namespace {

constexpr size_t kPieceElements = size_t{1} << 20;  // that a thread computes at a time

// Asks Python for the whole tensor for every read; Python decides which tensors it caches.
class PythonComputed final : public Body {
 public:
  PythonComputed(const std::string& name, uint64_t size, Memory memory, nb::object make)
      : place_("tensor " + quote(name)), size_(size), memory_(memory), make_(std::move(make)) {}
  ~PythonComputed() override { drop(&make_); }
  uint64_t size() const noexcept override { return size_; }

  Status read(uint64_t offset, MutableBytes out) const override {
    return with_gil<Status>(cancelled(place_ + ": the Python interpreter is ending"), [&] {
      try {
        const nb::object given = make_();
        const auto& tensor = nb::cast<const Tensor&>(given);
        if (tensor.memory != memory_ || tensor.bytes.size() != size_) {
          return invalid_argument(
              place_ + ": the computed tensor does not match the announced dtype, shape or memory");
        }
        const Bytes bytes = Bytes(tensor.bytes).subspan(offset, out.size());
        return without_gil([&] { return copy_out(bytes, out); });
      } catch (const nb::python_error& error) {
        return note_raised(error.value());
      } catch (const nb::cast_error&) {
        return invalid_argument(place_ + ": the function that computes it returned no tensor");
      }
    });
  }

 private:
  Status copy_out(Bytes from, MutableBytes out) const {
    if (memory_ == Memory::kCuda) {
      return cuda::copy_there(out.data(), from.data(), out.size(), nullptr);
    }
    std::copy(from.begin(), from.end(), out.begin());
    return {};
  }

  const std::string place_;
  const uint64_t size_;
  const Memory memory_;
  nb::object make_;
};

// A tensor without bytes of its own.
Tensor computed_tensor(std::string name, DType dtype, Shape extent,
                       const std::optional<Shape>& shape, const std::optional<Shape>& offset) {
  Tensor tensor;
  const std::string place = "tensor " + quote(name);
  tensor.dtype = dtype;
  tensor.shape = shape.value_or(extent);
  if (offset) tensor.box = {*offset, std::move(extent)};
  check(check_box(tensor.box, tensor.dtype, tensor.shape).at(place));
  tensor.name = std::move(name);
  return tensor;
}

Tensor make_by_python(std::string name, const std::string& dtype, Shape extent,
                      const std::optional<Shape>& shape, const std::optional<Shape>& offset,
                      bool on_gpu, nb::object make) {
  const std::optional<DType> known = parse_dtype(dtype);
  if (!known) {
    throw StatusError(
        unsupported("tensor " + quote(name) + ": dtype " + quote(dtype) + " is not known"));
  }
  Tensor tensor = computed_tensor(std::move(name), *known, std::move(extent), shape, offset);
  const uint64_t size =
      unwrap(tensor_size_bytes(tensor.dtype, box_shape(tensor.box, tensor.shape)));
  if (on_gpu) tensor.memory = Memory::kCuda;
  tensor.computed =
      std::make_shared<PythonComputed>(tensor.name, size, tensor.memory, std::move(make));
  return tensor;
}

// Python's deltawire._core.Fp8Blocks: a weight matrix and the scales of its blocks. Keeps the array
// of the weights alive.
struct Fp8Blocks {
  fp8::Matrix matrix;
  std::vector<float> scales;
  bool bounded = true;
  std::string name;
  nb::ndarray<nb::ro> array;
  unsigned threads = 1;
};

WideFloat kind_of(const Tensor& weights, bool round) {
  if (weights.shape.size() == 2 && weights.box.whole()) {
    if (weights.dtype == DType::kBF16) return WideFloat::kBf16;
    if (weights.dtype == DType::kF32) return round ? WideFloat::kF32AsBf16 : WideFloat::kF32;
  }
  throw StatusError(invalid_argument("tensor " + quote(weights.name) +
                                     ": FP8 blocks need a matrix in BF16 or F32"));
}

void find_scales(Fp8Blocks* self, const Tensor& weights, uint64_t block_rows,
                 uint64_t block_columns, bool power_of_two, bool round, unsigned threads) {
  if (block_rows == 0 || block_columns == 0) {
    throw StatusError(invalid_argument("a block needs at least one row and one column"));
  }
  if (weights.memory != Memory::kHost) {
    throw StatusError(invalid_argument("tensor " + quote(weights.name) + ": is on a GPU"));
  }
  new (self) Fp8Blocks{{weights.bytes.data(), kind_of(weights, round), weights.shape[0],
                        weights.shape[1], block_rows, block_columns, power_of_two},
                       {},
                       true,
                       weights.name,
                       weights.array,
                       threads};
  const fp8::Matrix& matrix = self->matrix;
  const uint64_t across = matrix.columns_of_blocks(), down = matrix.rows_of_blocks();
  self->scales.resize(across * down);
  std::atomic<bool> bounded = true;
  without_gil([&] {
    ThreadPool pool(threads);
    parallel_for(&pool, down, [&](size_t i, unsigned) {
      if (!fp8::scales(matrix, i, self->scales.data() + i * across)) bounded = false;
    });
  });
  self->bounded = bounded;
}

void check_out(const Tensor& out, DType dtype, uint64_t size) {
  if (out.writable && out.memory == Memory::kHost && out.dtype == dtype && out.bytes.size() == size)
    return;
  throw StatusError(invalid_argument("tensor " + quote(out.name) + ": expected " +
                                     std::to_string(size) + " bytes of " +
                                     std::string(dtype_name(dtype)) + " to write to"));
}

void write_elements(const Fp8Blocks& self, const Tensor& out) {
  const uint64_t count = self.matrix.rows * self.matrix.columns;
  check_out(out, DType::kF8_E4M3, count);
  without_gil([&] {
    ThreadPool pool(self.threads);
    const MutableBytes all = out.bytes;
    parallel_for(&pool, size_t((count + kPieceElements - 1) / kPieceElements),
                 [&](size_t i, unsigned) {
                   const size_t begin = i * kPieceElements;
                   const size_t size = std::min(kPieceElements, all.size() - begin);
                   fp8::elements(self.matrix, self.scales.data(), begin, all.subspan(begin, size));
                 });
  });
}

// The FP8 elements of a matrix. The weights must not change while it is read.
class Fp8Body final : public Body {
 public:
  Fp8Body(const fp8::Matrix& matrix, std::vector<float> scales, nb::object owner)
      : matrix_(matrix), scales_(std::move(scales)), owner_(std::move(owner)) {}
  ~Fp8Body() override { drop(&owner_); }
  uint64_t size() const noexcept override { return matrix_.rows * matrix_.columns; }
  Status read(uint64_t offset, MutableBytes out) const override {
    fp8::elements(matrix_, scales_.data(), offset, out);
    return {};
  }

 private:
  const fp8::Matrix matrix_;
  const std::vector<float> scales_;
  nb::object owner_;  // of the weights
};

Tensor publishable(nb::object self, std::string name, const std::optional<Shape>& shape,
                   const std::optional<Shape>& offset) {
  const auto& blocks = nb::cast<const Fp8Blocks&>(self);
  Tensor tensor = computed_tensor(std::move(name), DType::kF8_E4M3,
                                  {blocks.matrix.rows, blocks.matrix.columns}, shape, offset);
  tensor.computed = std::make_shared<Fp8Body>(blocks.matrix, blocks.scales, std::move(self));
  return tensor;
}

// The same on a GPU, with scales in a tensor of the caller. Reads no weights yet.
Tensor fp8_on_gpu(const Tensor& weights, const Tensor& scales, std::string name,
                  const std::optional<Shape>& shape, const std::optional<Shape>& offset,
                  uint64_t block_rows, uint64_t block_columns, bool power_of_two, bool round) {
  const fp8::Matrix matrix{
      weights.bytes.data(), kind_of(weights, round), weights.shape[0], weights.shape[1],
      block_rows,           block_columns,           power_of_two};
  if (weights.memory != Memory::kCuda || scales.memory != Memory::kCuda || !scales.writable ||
      scales.dtype != DType::kF32 || block_rows == 0 || block_columns == 0 ||
      scales.bytes.size() != matrix.rows_of_blocks() * matrix.columns_of_blocks() * sizeof(float)) {
    throw StatusError(
        invalid_argument("tensor " + quote(weights.name) +
                         ": the weights and the scales of their blocks must be on a GPU"));
  }
  Tensor tensor = computed_tensor(std::move(name), DType::kF8_E4M3, {matrix.rows, matrix.columns},
                                  shape, offset);
  struct Arrays {
    nb::ndarray<nb::ro> weights, scales;
  };
  auto arrays = std::make_unique<Arrays>(Arrays{weights.array, scales.array});
  std::shared_ptr<const void> owner(arrays.release(), [](Arrays* gone) {
    std::unique_ptr<Arrays> own(gone);
    drop(&own);
  });
  tensor.memory = Memory::kCuda;
  tensor.computed = std::make_shared<ComputedFp8>(
      cuda::Fp8Weights{matrix, reinterpret_cast<float*>(scales.bytes.data())}, std::move(owner));
  return tensor;
}

// Fills the scales of all tensors returned by fp8_on_gpu(). InvalidArgument names one with NaN.
void check_fp8(const std::vector<Tensor>& tensors, uintptr_t stream) {
  std::vector<cuda::Fp8Task> tasks;
  std::vector<const std::string*> names;
  for (const Tensor& tensor : tensors) {
    const cuda::Fp8Weights* const weights = fp8_of(tensor.computed.get());
    if (weights == nullptr) continue;
    tasks.push_back({*weights});
    names.push_back(&tensor.name);
  }
  if (tasks.empty()) return;
  const std::vector<cuda::Fp8Outcome> found = unwrap(without_gil([&] {
    return cuda::quantise_fp8(tasks, cuda::Fp8Digests::kNone,
                              reinterpret_cast<cuda::Stream>(stream));
  }));
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i].bounded) throw StatusError(unbounded_weights(*names[i]));
  }
}

const std::map<std::string, GroupCodes, std::less<>> kGroupCodes = {
    {"int4", GroupCodes::kInt4},
    {"int4-asymmetric", GroupCodes::kInt4Asymmetric},
    {"nvfp4", GroupCodes::kNvfp4},
    {"compressed-nvfp4", GroupCodes::kCompressedNvfp4},
    {"mxfp4-round", GroupCodes::kMxfp4},
    {"mxfp8-ceil", GroupCodes::kMxfp8Ceil},
    {"mxfp8-round", GroupCodes::kMxfp8Round},
};

// Takes GPU addresses from torch; the caller has checked the sizes.
void make_group_codes(const std::string& format, uintptr_t weights, bool narrow,
                      uint64_t num_elements, uint64_t group, uintptr_t codes, uintptr_t scales,
                      uintptr_t zero_points, uintptr_t of_tensor, uintptr_t stream) {
  const auto found = kGroupCodes.find(format);
  if (found == kGroupCodes.end() || !can_group(group) || num_elements % group != 0 ||
      weights % 16 != 0) {
    throw StatusError(
        invalid_argument(format + ": groups of " + std::to_string(group) + " are not for a GPU"));
  }
  check(cuda::make_group_codes(
      {found->second, reinterpret_cast<const void*>(weights), narrow, num_elements, uint32_t(group),
       reinterpret_cast<const float*>(of_tensor), reinterpret_cast<void*>(codes),
       reinterpret_cast<void*>(scales), reinterpret_cast<int8_t*>(zero_points)},
      reinterpret_cast<cuda::Stream>(stream)));
}

}  // namespace

void bind_computed(nb::module_& module) {
  module.def("fp8_on_gpu", &fp8_on_gpu, nb::arg("weights"), nb::arg("scales"), nb::arg("name"),
             nb::arg("shape").none(), nb::arg("offset").none(), nb::kw_only(),
             nb::arg("block_rows"), nb::arg("block_columns"), nb::arg("power_of_two"),
             nb::arg("round"));
  module.def("can_group", &can_group, nb::arg("group"));
  module.def("make_group_codes", &make_group_codes, nb::arg("format"), nb::kw_only(),
             nb::arg("weights"), nb::arg("narrow"), nb::arg("num_elements"), nb::arg("group"),
             nb::arg("codes"), nb::arg("scales"), nb::arg("zero_points"), nb::arg("of_tensor"),
             nb::arg("stream"));
  module.def("check_fp8", &check_fp8, nb::arg("tensors"), nb::arg("stream"));
  module.def("computed", &make_by_python, nb::arg("name"), nb::arg("dtype"), nb::arg("extent"),
             nb::arg("shape") = nb::none(), nb::arg("offset") = nb::none(), nb::kw_only(),
             nb::arg("on_gpu"), nb::arg("make"));
  nb::class_<Fp8Blocks>(module, "Fp8Blocks")
      .def("__init__", &find_scales, nb::arg("weights"), nb::kw_only(), nb::arg("block_rows"),
           nb::arg("block_columns"), nb::arg("power_of_two"), nb::arg("round"), nb::arg("threads"))
      .def_ro("bounded", &Fp8Blocks::bounded)
      .def("write_scales",
           [](const Fp8Blocks& self, const Tensor& out) {
             check_out(out, DType::kF32, self.scales.size() * sizeof(float));
             std::memcpy(out.bytes.data(), self.scales.data(), out.bytes.size());
           })
      .def("write_elements", &write_elements)
      .def("publishable", &publishable, nb::arg("name"), nb::arg("shape") = nb::none(),
           nb::arg("offset") = nb::none());
}

}  // namespace deltawire::python
