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
using Object = std::tuple<std::string, uint64_t, std::string>;  // name, bytes, sha-256
using Spec = std::tuple<std::string, std::string, Shape>;
using Counts = std::tuple<uint64_t, uint64_t>;  // changed, of so many

std::vector<Object> chain_report(const std::vector<PartRef>& parts) {
  std::vector<Object> objects;
  for (const PartRef& part : parts) {
    objects.emplace_back(part.name, part.size_bytes, part.sha256.hex());
  }
  return objects;
}

Report chain_report(const VersionRecord& record) {
  const Manifest& manifest = record.manifest;
  std::vector<Object> files;
  for (const SideFile& file : manifest.files) {
    files.emplace_back(file.name, file.size_bytes, file.sha256.hex());
  }
  Report out;
  out["run"] = manifest.run;
  out["version"] = manifest.version;
  out["base"] = manifest.base;
  out["full"] = manifest.kind == VersionKind::kFull;
  out["reason"] = manifest.reason;
  out["created"] = manifest.created;
  out["publisher"] = manifest.publisher;
  out["parts"] = chain_report(manifest.parts);
  out["files"] = files;
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
  out["signed_by"] = manifest.signed_by;
  return out;
}

std::string_view kind_name(HopKind kind) {
  if (kind == HopKind::kAnchor) return "anchor";
  return kind == HopKind::kMerged ? "merged" : "delta";
}

Report chain_report(const Plan& plan) {
  nb::list hops;
  for (const Hop& hop : plan.hops) {
    Report item;
    item["kind"] = kind_name(hop.kind);
    item["from_version"] = hop.base;
    item["version"] = hop.version;
    item["bytes"] = hop.bytes;
    item["parts"] = chain_report(hop.parts);
    hops.append(item);
  }
  Report out;
  out["version"] = plan.target.manifest.version;
  out["hops"] = hops;
  out["bytes"] = plan.bytes;
  out["all_deltas_bytes"] = plan.all_deltas_bytes;
  out["anchor_bytes"] = plan.anchor_bytes;
  out["notes"] = plan.notes;
  return out;
}

Report chain_report(const ListedHeartbeat& listed) {
  const bool readable = listed.heartbeat.ok();
  const Heartbeat beat = readable ? *listed.heartbeat : Heartbeat{};
  Report out;
  out["name"] = readable ? beat.name : listed.object.name;
  out["host"] = beat.host;
  out["pid"] = beat.pid;
  out["version"] = beat.version;
  out["serving"] = beat.serving;
  out["fetching"] = beat.lease ? std::optional(beat.lease->to) : std::nullopt;
  out["seen"] = readable ? beat.seen : listed.object.modified;
  out["error"] = readable ? "" : listed.heartbeat.status().to_string();
  return out;
}

Report chain_report(const GcReport& report) {
  std::vector<Counts> kept;
  for (const VersionRange& range : report.kept) kept.emplace_back(range.first, range.last);
  Report out;
  out["head"] = report.head;
  out["kept"] = kept;
  out["num_versions"] = report.num_versions;
  out["num_hops"] = report.num_hops;
  out["num_orphans"] = report.num_orphans;
  out["num_noted"] = report.num_noted;
  out["noted_bytes"] = report.noted_bytes;
  out["num_deleted"] = report.num_deleted;
  out["deleted_bytes"] = report.deleted_bytes;
  out["num_waiting"] = report.num_waiting;
  out["num_forgotten"] = report.num_forgotten;
  out["num_temporaries"] = report.num_temporaries;
  out["notes"] = report.notes;
  return out;
}

Report chain_report(const CompactReport& report) {
  nb::list merged;
  for (const MergedDelta& one : report.merged) {
    Report item;
    item["base"] = one.base;
    item["version"] = one.version;
    item["bytes"] = one.bytes;
    item["separate_bytes"] = one.separate_bytes;
    item["made"] = one.made;
    item["skipped"] = one.skipped;
    merged.append(item);
  }
  Report out;
  out["merged"] = merged;
  out["num_there"] = report.num_there;
  out["seconds"] = report.seconds;
  return out;
}

Report chain_report(const AnchorReport& report) {
  Report out;
  out["version"] = report.version;
  out["made"] = report.made;
  out["bytes"] = report.bytes;
  out["num_files"] = report.num_files;
  out["seconds"] = report.seconds;
  return out;
}

Report chain_report(const FsckReport& report) {
  Report out;
  out["head"] = report.head;
  out["num_versions"] = report.num_versions;
  out["num_hops"] = report.num_hops;
  out["num_parts"] = report.num_parts;
  out["num_files"] = report.num_files;
  out["bytes"] = report.bytes;
  out["num_decoded"] = report.num_decoded;
  out["num_orphans"] = report.num_orphans;
  out["orphan_bytes"] = report.orphan_bytes;
  out["num_waiting"] = report.num_waiting;
  out["waiting_bytes"] = report.waiting_bytes;
  out["problems"] = report.problems;
  out["warnings"] = report.warnings;
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

Result<std::map<std::string, Counts>> changes_of(const Chain& chain, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const std::vector<TensorChanges> changes, chain.changes(version));
  std::map<std::string, Counts> counts;
  for (const TensorChanges& own : changes) {
    counts[own.tensor] = Counts(own.num_changed, own.num_elements);
  }
  return counts;
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
            return chain_report(
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
          "plan",
          [](ChainHandle& self, std::optional<uint64_t> from, std::optional<uint64_t> to) {
            return chain_report(
                unwrap(call(self, [&](const Chain& chain) { return chain.plan(from, to); })));
          },
          nb::arg("from_version").none(), nb::arg("to").none())
      .def("replicas", [](ChainHandle& self) {
        nb::list out;
        for (const ListedHeartbeat& listed :
             unwrap(call(self, [](const Chain& chain) { return chain.replicas(); }))) {
          out.append(chain_report(listed));
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
          "gc",
          [](ChainHandle& self, uint64_t keep, int64_t grace_seconds, bool dry_run,
             bool signed_too) {
            GcOptions options;
            options.keep = keep;
            options.grace_seconds = grace_seconds;
            options.dry_run = dry_run;
            options.signed_too = signed_too;
            return chain_report(unwrap(
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
            return chain_report(unwrap(self.call([&](WatchedChain& own) {
              options.work = own.work(work, threads);
              return compact_chain(own.chain, options);
            })));
          },
          nb::kw_only(), nb::arg("spans"), nb::arg("first"), nb::arg("upto").none(),
          nb::arg("codec"), nb::arg("part_bytes"), nb::arg("memory_limit"), nb::arg("work"),
          nb::arg("threads"))
      .def(
          "anchor",
          [](ChainHandle& self, std::optional<uint64_t> version, const std::filesystem::path& work,
             unsigned threads) {
            return chain_report(unwrap(self.call([&](WatchedChain& own) {
              return make_anchor(own.chain, version, own.work(work, threads));
            })));
          },
          nb::arg("version").none(), nb::arg("work"), nb::arg("threads"))
      .def(
          "fsck",
          [](ChainHandle& self, bool quick, const std::filesystem::path& work, unsigned threads) {
            return chain_report(unwrap(self.call([&](WatchedChain& own) {
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
