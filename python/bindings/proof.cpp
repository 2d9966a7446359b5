#include "format/proof.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "calls.h"
#include "device/cuda.h"
#include "tensors.h"

namespace deltawire::python {
namespace {

// Those in host memory, or those on a GPU.
std::vector<const Tensor*> chosen(const std::vector<const Tensor*>& tensors, Memory memory) {
  std::vector<const Tensor*> some;
  for (const Tensor* tensor : tensors) {
    if (tensor->source) {
      throw StatusError(
          unsupported("tensor \"" + tensor->name + "\": is proven as it is, without a cast"));
    }
    if (tensor->memory == memory) some.push_back(tensor);
  }
  return some;
}

Status add_host(const std::vector<const Tensor*>& tensors, unsigned threads, Proof* proof) {
  std::vector<HeldPiece> pieces;
  for (const Tensor* tensor : tensors) pieces.push_back({*tensor, tensor->box, tensor->bytes});
  return proof->add(pieces, threads);
}

// Where they are: all of them in one pass, and only sums come to the host.
Status add_device(const std::vector<const Tensor*>& tensors, unsigned threads, Proof* proof) {
  if (tensors.empty()) return {};
  cuda::ContextOptions options;
  options.threads = threads;
  options.beside = tensors[0]->bytes.data();
  options.scratch_bytes = uint64_t{16} << 20;  // tables alone: a proof may be in an engine's pause
  DW_ASSIGN_OR_RETURN(cuda::Context context, cuda::Context::create(options));
  std::vector<cuda::BoxContents> boxes;
  for (const Tensor* tensor : tensors) {
    const cuda::NewArray array{tensor->dtype, tensor->bytes.data()};
    boxes.push_back({{array, tensor->dtype, tensor->bytes.size()}, tensor->shape, tensor->box});
  }
  DW_ASSIGN_OR_RETURN(std::vector<Sums> sums, context.sums(boxes, nullptr));
  std::vector<SummedPiece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    pieces.push_back({*tensors[i], tensors[i]->box, std::move(sums[i])});
  }
  return proof->add(pieces);
}

}  // namespace

void bind_proof(nb::module_& module) {
  nb::class_<Proof>(module, "Proof")
      .def(nb::init<>())
      .def(
          "add",
          [](Proof& self, const std::vector<const Tensor*>& tensors, unsigned threads) {
            const auto host = chosen(tensors, Memory::kHost),
                       device = chosen(tensors, Memory::kCuda);
            check(without_gil([&]() -> Status {
              DW_RETURN_IF_ERROR(add_host(host, threads, &self));
              return add_device(device, threads, &self);
            }));
          },
          nb::arg("tensors"), nb::arg("threads"))
      .def(
          "merge", [](Proof& self, const Proof& other) { check(self.add(other)); },
          nb::arg("other"))
      .def("digests",
           [](const Proof& self) {
             std::map<std::string, std::string> out;
             for (const auto& [name, digest] : unwrap(self.digests())) out[name] = digest.hex();
             return out;
           })
      .def("differing", &Proof::differing)
      .def_prop_ro("num_tensors", &Proof::num_tensors)
      .def("text", &Proof::to_text)
      .def_static(
          "parse", [](const std::string& text) { return unwrap(Proof::parse(text)); },
          nb::arg("text"));
}

}  // namespace deltawire::python
