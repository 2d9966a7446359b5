#include "chain/chain.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <tuple>

#include "bind.h"
#include "calls.h"
#include "chain/keys.h"
#include "chain/part_reader.h"
#include "chain/retention.h"
#include "format/delta_part.h"
#include "reports.h"
#include "stores.h"

namespace deltawire::python {
namespace {

using ChainHandle = Owned<Chain>;
using Part = std::tuple<std::string, uint64_t, std::string>;
using Spec = std::tuple<std::string, std::string, Shape>;
using Counts = std::tuple<uint64_t, uint64_t>;  // changed, of so many

Report version_report(const VersionRecord& record) {
  const Manifest& manifest = record.manifest;
  std::vector<Part> parts;
  for (const PartRef& part : manifest.parts) {
    parts.emplace_back(part.name, part.size_bytes, part.sha256.hex());
  }
  Report out;
  out["run"] = manifest.run;
  out["version"] = manifest.version;
  out["base"] = manifest.base;
  out["full"] = manifest.kind == VersionKind::kFull;
  out["reason"] = manifest.reason;
  out["created"] = manifest.created;
  out["publisher"] = manifest.publisher;
  out["parts"] = parts;
  out["bytes"] = manifest.part_bytes();
  out["num_tensors"] = manifest.digests.size();
  out["num_elements"] = manifest.elements;
  out["num_changed"] = manifest.changed;
  out["seconds"] = double(manifest.milliseconds) / 1000;
  out["codec"] = manifest.codec;
  out["state"] = manifest.state.hex();
  out["manifest"] = record.digest.hex();
  out["parent"] = manifest.parent ? manifest.parent->hex() : "";
  out["anchor"] = manifest.anchor;
  out["anchor_bytes"] = manifest.anchor_bytes;
  out["chain_bytes"] = manifest.chain_bytes;
  return out;
}

Result<std::vector<Spec>> tensors_of(const Chain& chain, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(version));
  DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(record.manifest));
  std::vector<Spec> specs;
  for (const Schema::Tensor& tensor : schema.tensors) {
    specs.emplace_back(tensor.name, dtype_name(tensor.dtype), tensor.shape);
  }
  return specs;
}

// By tensor; those that did not change are left out. A version that is stored whole has none.
Result<std::map<std::string, Counts>> changes_of(const Chain& chain, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(version));
  std::map<std::string, Counts> changes;
  if (record.manifest.kind == VersionKind::kFull) return changes;
  for (const PartRef& ref : record.manifest.parts) {
    DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> bytes, read_part(chain.store(), ref, {}));
    DW_ASSIGN_OR_RETURN(const DeltaPart part, parse_part(bytes));
    for (const PayloadView& view : part.entries) {
      auto& [changed, elements] = changes[view.entry.tensor];
      changed += view.entry.num_changed;
      elements += view.entry.num_elements();
    }
  }
  return changes;
}

Result<std::vector<uint64_t>> versions_of(const Chain& chain) {
  DW_ASSIGN_OR_RETURN(const ChainNames names, list_names(chain));
  return std::vector<uint64_t>(names.versions.begin(), names.versions.end());
}

}  // namespace

void bind_chain(nb::module_& module) {
  bind_owned<Chain>(module, "Chain")
      .def(
          "__init__",
          [](ChainHandle* self, const StoreHandle& store, const std::filesystem::path& trust_key) {
            new (self) ChainHandle("the chain", nb::none(), [&](const Progress&) -> Result<Chain> {
              DW_ASSIGN_OR_RETURN(ChainOptions options, chain_options({}, trust_key));
              return Chain::open(store.get(), std::move(options));
            });
          },
          nb::arg("store"), nb::arg("trust_key"))
      .def_prop_ro(
          "run",
          [](ChainHandle& self) { return self.call([](Chain& chain) { return chain.run(); }); })
      .def("head",
           [](ChainHandle& self) {
             return unwrap(self.call([](Chain& chain) { return chain.head(); }));
           })
      .def("versions",
           [](ChainHandle& self) {
             return unwrap(self.call([](Chain& chain) { return versions_of(chain); }));
           })
      .def(
          "manifest",
          [](ChainHandle& self, uint64_t version) {
            return version_report(
                unwrap(self.call([&](Chain& chain) { return chain.version(version); })));
          },
          nb::arg("version"))
      .def(
          "tensors",
          [](ChainHandle& self, uint64_t version) {
            return unwrap(self.call([&](Chain& chain) { return tensors_of(chain, version); }));
          },
          nb::arg("version"))
      .def(
          "changes",
          [](ChainHandle& self, uint64_t version) {
            return unwrap(self.call([&](Chain& chain) { return changes_of(chain, version); }));
          },
          nb::arg("version"));
}

}  // namespace deltawire::python
