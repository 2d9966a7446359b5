#include "deltawire/chain.h"

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
#include "deltawire/maintain.h"
#include "format/proof.h"
#include "options.h"
#include "reports.h"
#include "stores.h"

namespace deltawire::python {
namespace {

// A chain, and who watches what takes long.
struct WatchedChain {
  Chain chain;
  Progress progress;

  WorkOptions work(const std::filesystem::path& folder, unsigned threads) const {
    return {.folder = folder, .threads = threads, .progress = progress};
  }
};

using ChainHandle = Owned<WatchedChain>;
using Spec = std::tuple<std::string, std::string, Shape>;
using Counts = std::tuple<uint64_t, uint64_t>;  // changed, of so many

Result<std::vector<Spec>> tensors_of(const Chain& chain, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(version));
  DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(record.manifest));
  std::vector<Spec> specs;
  for (const Schema::Tensor& tensor : schema.tensors) {
    specs.emplace_back(tensor.name, dtype_name(tensor.dtype), tensor.shape);
  }
  return specs;
}

Result<std::map<std::string, Counts>> changes_of(const Chain& chain, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const std::vector<TensorChanges> changes, chain.changes(version));
  std::map<std::string, Counts> counts;
  for (const TensorChanges& own : changes) {
    counts[own.tensor] = Counts(own.num_changed, own.num_elements);
  }
  return counts;
}

Status prove(const Chain& chain, uint64_t version, const Proof& proof) {
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(version));
  DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(record.manifest));
  return proof.check(schema, record.manifest);
}

// body(chain) -> Status or Result.
template <class Body>
auto call(ChainHandle& self, Body&& body) {
  return self.call([&](WatchedChain& own) { return body(static_cast<const Chain&>(own.chain)); });
}

void bind_reading(nb::class_<ChainHandle>& type) {
  type.def_prop_ro("run",
                   [](ChainHandle& self) {
                     return call(self, [](const Chain& chain) { return chain.run(); });
                   })
      .def("head",
           [](ChainHandle& self) {
             return unwrap(call(self, [](const Chain& chain) { return chain.head(); }));
           })
      .def("versions",
           [](ChainHandle& self) {
             return unwrap(call(self, [](const Chain& chain) { return chain.versions(); }));
           })
      .def(
          "manifest",
          [](ChainHandle& self, uint64_t version) {
            return to_python(
                unwrap(call(self, [&](const Chain& chain) { return chain.version(version); })));
          },
          nb::arg("version"))
      .def(
          "tensors",
          [](ChainHandle& self, uint64_t version) {
            return unwrap(
                call(self, [&](const Chain& chain) { return tensors_of(chain, version); }));
          },
          nb::arg("version"))
      .def(
          "changes",
          [](ChainHandle& self, uint64_t version) {
            return unwrap(
                call(self, [&](const Chain& chain) { return changes_of(chain, version); }));
          },
          nb::arg("version"))
      .def(
          "prove",
          [](ChainHandle& self, uint64_t version, const Proof& proof) {
            check(call(self, [&](const Chain& chain) { return prove(chain, version, proof); }));
          },
          nb::arg("version"), nb::arg("proof"))
      .def(
          "plan",
          [](ChainHandle& self, std::optional<uint64_t> from, std::optional<uint64_t> to) {
            return to_python(
                unwrap(call(self, [&](const Chain& chain) { return chain.plan(from, to); })));
          },
          nb::arg("from_version").none(), nb::arg("to").none())
      .def("replicas", [](ChainHandle& self) {
        nb::list out;
        for (const ListedHeartbeat& listed :
             unwrap(call(self, [](const Chain& chain) { return chain.replicas(); }))) {
          out.append(to_python(listed));
        }
        return out;
      });
}

void bind_keeping(nb::class_<ChainHandle>& type) {
  type.def("pins",
           [](ChainHandle& self) {
             return unwrap(call(self, [](const Chain& chain) { return chain.pins(); }));
           })
      .def(
          "pin",
          [](ChainHandle& self, uint64_t version) {
            check(call(self, [&](const Chain& chain) { return chain.pin(version); }));
          },
          nb::arg("version"))
      .def(
          "unpin",
          [](ChainHandle& self, uint64_t version) {
            check(call(self, [&](const Chain& chain) { return chain.unpin(version); }));
          },
          nb::arg("version"))
      .def(
          "forget",
          [](ChainHandle& self, const std::string& name, bool force) {
            return unwrap(
                call(self, [&](const Chain& chain) { return chain.forget(name, force); }));
          },
          nb::arg("name"), nb::arg("force"))
      .def(
          "gc",
          [](ChainHandle& self, uint64_t keep, int64_t grace_seconds, bool dry_run,
             bool signed_too) {
            GcOptions options;
            options.keep = keep;
            options.grace_seconds = grace_seconds;
            options.dry_run = dry_run;
            options.signed_too = signed_too;
            return to_python(unwrap(
                call(self, [&](const Chain& chain) { return chain.collect_garbage(options); })));
          },
          nb::arg("keep"), nb::arg("grace_seconds"), nb::arg("dry_run"), nb::arg("signed_too"));
}

void bind_maintaining(nb::class_<ChainHandle>& type) {
  type.def(
          "compact",
          [](ChainHandle& self, const std::vector<uint64_t>& spans, uint64_t first,
             std::optional<uint64_t> upto, const std::string& codec, uint64_t part_bytes,
             uint64_t memory_limit, const std::filesystem::path& work, unsigned threads) {
            CompactOptions options;
            options.spans = spans;
            options.from = first;
            options.upto = upto;
            options.codec = codec;
            options.part_bytes = part_bytes;
            options.memory_limit = memory_limit;
            return to_python(unwrap(self.call([&](WatchedChain& own) {
              options.work = own.work(work, threads);
              return compact_chain(own.chain, options);
            })));
          },
          nb::kw_only(), nb::arg("spans"), nb::arg("first"), nb::arg("upto").none(),
          nb::arg("codec"), nb::arg("part_bytes"), nb::arg("memory_limit"), nb::arg("work"),
          nb::arg("threads"))
      .def(
          "anchor",
          [](ChainHandle& self, std::optional<uint64_t> version, bool plain_files,
             const std::filesystem::path& work, unsigned threads) {
            return to_python(unwrap(self.call([&](WatchedChain& own) {
              WorkOptions options = own.work(work, threads);
              options.plain_files = plain_files;
              return make_anchor(own.chain, version, options);
            })));
          },
          nb::arg("version").none(), nb::arg("plain_files"), nb::arg("work"), nb::arg("threads"))
      .def(
          "fsck",
          [](ChainHandle& self, bool quick, const std::filesystem::path& work, unsigned threads) {
            return to_python(unwrap(self.call([&](WatchedChain& own) {
              return fsck_chain(own.chain, {quick, own.work(work, threads)});
            })));
          },
          nb::arg("quick"), nb::arg("work"), nb::arg("threads"));
}

}  // namespace

void bind_chain(nb::module_& module) {
  nb::class_<ChainHandle> type = bind_owned<WatchedChain>(module, "Chain");
  type.def(
      "__init__",
      [](ChainHandle* self, const StoreHandle& store, nb::object keys, nb::object progress) {
        const Keys files = to_keys(keys);
        new (self) ChainHandle("the chain", std::move(progress),
                               [&](Progress watch) -> Result<WatchedChain> {
                                 DW_ASSIGN_OR_RETURN(Chain chain, Chain::open(store.get(), files));
                                 return WatchedChain{std::move(chain), std::move(watch)};
                               });
      },
      nb::arg("store"), nb::arg("keys"), nb::arg("progress").none());
  bind_reading(type);
  bind_keeping(type);
  bind_maintaining(type);
}

}  // namespace deltawire::python
