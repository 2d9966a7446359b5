#include "deltawire/proof.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "calls.h"
#include "tensors.h"

namespace deltawire::python {
namespace {

std::vector<HeldPiece> to_pieces(const std::vector<const Tensor*>& tensors) {
  std::vector<HeldPiece> pieces;
  for (const Tensor* tensor : tensors) {
    if (tensor->memory != Memory::kHost || tensor->source) {
      throw StatusError(unsupported("tensor \"" + tensor->name +
                                    "\": is proven as it lies in host memory, without a cast"));
    }
    pieces.push_back({tensor->name, tensor->dtype, tensor->shape, tensor->box, tensor->bytes});
  }
  return pieces;
}

}  // namespace

void bind_proof(nb::module_& module) {
  nb::class_<Proof>(module, "Proof")
      .def(nb::init<>())
      .def(
          "add",
          [](Proof& self, const std::vector<const Tensor*>& tensors, unsigned threads) {
            const std::vector<HeldPiece> pieces = to_pieces(tensors);
            check(without_gil([&] { return self.add(pieces, threads); }));
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
      .def_prop_ro("num_tensors", &Proof::num_tensors)
      .def("text", &Proof::to_text)
      .def_static(
          "parse", [](const std::string& text) { return unwrap(Proof::parse(text)); },
          nb::arg("text"));
}

}  // namespace deltawire::python
