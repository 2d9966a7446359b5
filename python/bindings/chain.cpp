#include "deltawire/chain.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <functional>
#include <map>
#include <tuple>

#include "bind.h"
#include "calls.h"
#include "deltawire/maintain.h"
#include "format/proof.h"
#include "options.h"
#include "reports.h"
#include "stores.h"
#include "watcher.h"

namespace deltawire::python {
namespace {

// A chain and the progress callback of its long operations.
struct WatchedChain {
  Chain chain;
  Progress progress;

  WorkOptions work(const std::filesystem::path& folder, unsigned threads) const {
    return {.folder = folder, .threads = threads, .progress = progress};
  }
};

using ChainHandle = Owned<WatchedChain>;
using Spec = std::tuple<std::string, std::string, Shape>;
using Counts = std::tuple<uint64_t, uint64_t>;  // changed elements, all elements

Result<std::vector<Spec>> tensors_of(const Chain& chain, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(version));
  DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(record.manifest));
  std::vector<Spec> specs;
  for (const TensorSpec& tensor : schema.tensors) {
    specs.emplace_back(tensor.name, dtype_name(tensor.dtype), tensor.shape);
  }
  return specs;
}

Result<std::map<std::string, Counts>> changes_of(const Chain& chain, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const std::vector<ChangeCounts> changes, chain.changes(version));
  std::map<std::string, Counts> counts;
  for (const ChangeCounts& own : changes) {
    counts[own.tensor] = Counts(own.num_changed, own.num_elements);
  }
  return counts;
}

Status prove(const Chain& chain, uint64_t version, const Proof& proof) {
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(version));
  DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(record.manifest));
  return proof.check(schema, record.manifest);
}

// Waits on a copy of the chain, so that other threads can use this one.
Report wait_until_held(ChainHandle& self, std::optional<uint64_t> version,
                       std::optional<uint64_t> replicas, double timeout) {
  const Chain chain =
      unwrap(self.call([](const WatchedChain& own) -> Result<Chain> { return own.chain; }));
  std::atomic<bool> stop{false};
  const HoldersGoal goal{version, replicas, timeout, [&] { return stop.load(); }};
  const HoldersReport report =
      unwrap(interruptible([&] { return chain.wait_until_held(goal); }, [&] { stop = true; }));
  nb::list holders;
  for (const Holder& one : report.replicas) {
    Report holder;
    DW_FIELDS(holder, one, name, missing);
    holder["held"] = to_tuple(one.held);
    holders.append(holder);
  }
  Report out;
  DW_FIELDS(out, report, num_holding, complete, seconds);
  out["version"] = to_tuple(report.version);
  out["replicas"] = holders;
  return out;
}

// body(chain, args...) -> Status or Result: a method of the chain, or a function.
template <class Body, class... Args>
auto call(ChainHandle& self, const Body& body, Args&... args) {
  return ForPython()(self.call(
      [&](WatchedChain& own) { return std::invoke(body, std::as_const(own.chain), args...); }));
}
template <class R, class... Args>
auto method_of(R (Chain::*body)(Args...) const) {
  return [body](ChainHandle& self, Args... args) { return call(self, body, args...); };
}
template <class R, class... Args>
auto method_of(R (*body)(const Chain&, Args...)) {
  return [body](ChainHandle& self, Args... args) { return call(self, body, args...); };
}

void bind_reading(nb::class_<ChainHandle>& type) {
  type.def_prop_ro("run", method_of(&Chain::run))
      .def("head", method_of(&Chain::head))
      .def("versions", method_of(&Chain::versions))
      .def("manifest", method_of(&Chain::version), nb::arg("version"))
      .def("tensors", method_of(&tensors_of), nb::arg("version"))
      .def("changes", method_of(&changes_of), nb::arg("version"))
      .def("prove", method_of(&prove), nb::arg("version"), nb::arg("proof"))
      .def("plan", method_of(&Chain::plan), nb::arg("from_version").none(), nb::arg("to").none())
      .def("replicas",
           [](ChainHandle& self) {
             nb::list out;
             for (const ListedHeartbeat& listed : call(self, &Chain::replicas)) {
               out.append(to_python(listed));
             }
             return out;
           })
      .def("wait_until_held", &wait_until_held, nb::arg("version").none(),
           nb::arg("replicas").none(), nb::arg("timeout"));
}

void bind_keeping(nb::class_<ChainHandle>& type) {
  type.def("pins", method_of(&Chain::pins))
      .def("pin", method_of(&Chain::pin), nb::arg("version"))
      .def("unpin", method_of(&Chain::unpin), nb::arg("version"))
      .def("forget", method_of(&Chain::forget), nb::arg("name"), nb::arg("force"))
      .def(
          "gc",
          [](ChainHandle& self, const nb::kwargs& given) {
            GcOptions options;
            DW_OPTIONS(options, given, keep, grace_seconds, dry_run, signed_too);
            return call(self, &Chain::collect_garbage, options);
          },
          nb::arg("options"));
}

void bind_maintaining(nb::class_<ChainHandle>& type) {
  type.def(
          "compact",
          [](ChainHandle& self, uint64_t first, const std::filesystem::path& work, unsigned threads,
             const nb::kwargs& given) {
            CompactOptions options;
            options.from = first;
            DW_OPTIONS(options, given, spans, upto, codec, part_bytes, memory_limit);
            return ForPython()(self.call([&](WatchedChain& own) {
              options.work = own.work(work, threads);
              return compact_chain(own.chain, options);
            }));
          },
          nb::arg("first"), nb::arg("work"), nb::arg("threads"), nb::arg("options"))
      .def(
          "anchor",
          [](ChainHandle& self, std::optional<uint64_t> version, bool plain_files,
             const std::filesystem::path& work, unsigned threads) {
            return ForPython()(self.call([&](WatchedChain& own) {
              WorkOptions options = own.work(work, threads);
              options.plain_files = plain_files;
              return make_anchor(own.chain, version, options);
            }));
          },
          nb::arg("version").none(), nb::arg("plain_files"), nb::arg("work"), nb::arg("threads"))
      .def(
          "fsck",
          [](ChainHandle& self, bool quick, const std::filesystem::path& work, unsigned threads) {
            return ForPython()(self.call([&](WatchedChain& own) {
              return fsck_chain(own.chain, {quick, own.work(work, threads)});
            }));
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
