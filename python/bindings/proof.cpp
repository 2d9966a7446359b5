#include "format/proof.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <mutex>
#include <optional>

#include "bind.h"
#include "calls.h"
#include "device/cuda.h"
#include "live/spool.h"
#include "reports.h"
#include "tensors.h"

namespace deltawire::python {
namespace {

// The tensors in this kind of memory.
std::vector<const Tensor*> chosen(const std::vector<const Tensor*>& tensors, Memory memory) {
  std::vector<const Tensor*> some;
  for (const Tensor* tensor : tensors) {
    if (tensor->source) {
      throw StatusError(unsupported("tensor \"" + tensor->name +
                                    "\": proofs compare tensors as they are and cannot cast them"));
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

// Shared by all proofs on one device. Never freed: the driver may be unloaded first.
struct ProofContext {
  std::mutex mutex;
  std::optional<cuda::Context> context;
};

ProofContext& proof_context(const void* memory) {
  static std::mutex mutex;
  static auto* const contexts = new std::map<int, ProofContext>;
  const std::lock_guard lock(mutex);
  return (*contexts)[cuda::device_number(memory).value_or(-1)];
}

// One pass over all tensors on the GPU; only sums are copied to the host. Memory is allocated once,
// because proofs run while an engine is paused.
Status add_device(const std::vector<const Tensor*>& tensors, Proof* proof) {
  if (tensors.empty()) return {};
  ProofContext& shared = proof_context(tensors[0]->bytes.data());
  const std::lock_guard lock(shared.mutex);
  if (!shared.context) {
    cuda::ContextOptions options;
    options.threads = 1;
    options.beside = tensors[0]->bytes.data();
    options.scratch_bytes = uint64_t{16} << 20;  // tables alone
    DW_ASSIGN_OR_RETURN(shared.context, cuda::Context::create(options));
  }
  cuda::Context& context = *shared.context;
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
  return proof->add_summed(std::move(pieces));
}

// Of a version. Compared here: an engine is paused meanwhile.
struct SpooledDigests {
  Digests by_name;
  nb::list names;
};

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
              return add_device(device, &self);
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
      .def(
          "differing_from",
          [](const Proof& self, const SpooledDigests& digests) {
            return unwrap(self.differing_from(digests.by_name));
          },
          nb::arg("digests"))
      .def_prop_ro("num_tensors", &Proof::num_tensors)
      .def("text", &Proof::to_text)
      .def_static(
          "parse", [](const std::string& text) { return unwrap(Proof::parse(text)); },
          nb::arg("text"));

  nb::class_<SpooledDigests>(module, "SpooledDigests").def_ro("names", &SpooledDigests::names);
  module.def(
      "spooled_digests",
      [](const std::filesystem::path& local, const IdentityTuple& version) {
        SpooledDigests digests{
            unwrap(without_gil([&] { return spooled_digests(local, to_identity(version)); })), {}};
        for (const auto& [name, digest] : digests.by_name) digests.names.append(name);
        return digests;
      },
      nb::arg("local"), nb::arg("version"));
}

}  // namespace deltawire::python
