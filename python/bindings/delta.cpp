#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "calls.h"
#include "deltawire/delta.h"
#include "reports.h"
#include "tensors.h"

namespace deltawire::python {
namespace {

using std::filesystem::path;

TensorDelta diff_tensors(const std::vector<const Tensor*>& old_tensors,
                         const std::vector<const Tensor*>& new_tensors, const std::string& codec,
                         unsigned threads, nb::object progress) {
  const auto before = to_views(old_tensors), after = to_views(new_tensors);
  DiffOptions options{codec, threads, kDefaultPartBytes, {}};
  return unwrap(watched(std::move(progress), [&](Progress watch) {
    options.progress = std::move(watch);
    return TensorDelta::diff(before, after, options);
  }));
}

Report apply_to_tensors(const TensorDelta& self, const std::vector<const Tensor*>& tensors,
                        unsigned threads, nb::object progress) {
  const auto state = to_patch(tensors);
  return to_python(unwrap(watched(std::move(progress), [&](Progress watch) {
    return self.apply(state, {threads, std::move(watch)});
  })));
}

Report entry_report(const TensorDeltaEntry& entry) {
  Report out;
  DW_FIELDS(out, entry, tensor, shape, codec, whole, num_changed, num_elements);
  out["dtype"] = dtype_name(entry.dtype);
  out["offset"] = entry.box.offset;
  out["extent"] = entry.box.extent;
  out["bytes"] = entry.payload_bytes;
  return out;
}

Report diff_files(const path& old_path, const path& new_path, const path& out,
                  const std::string& codec, unsigned threads, uint64_t part_bytes,
                  nb::object progress) {
  DiffOptions options{codec, threads, part_bytes, {}};
  return to_python(unwrap(watched(std::move(progress), [&](Progress watch) {
    options.progress = std::move(watch);
    return diff_checkpoints(old_path, new_path, out, options);
  })));
}

Report apply_files(const path& delta, const path& base, const path& out, unsigned threads,
                   nb::object progress) {
  return to_python(unwrap(watched(std::move(progress), [&](Progress watch) {
    return apply_delta(delta, base, out, {threads, std::move(watch)});
  })));
}

Report verify_files(const path& a, const path& b, unsigned threads, nb::object progress) {
  return to_python(unwrap(watched(std::move(progress), [&](Progress watch) {
    return verify_checkpoints(a, b, {threads, std::move(watch)});
  })));
}

}  // namespace

void bind_delta(nb::module_& module) {
  nb::class_<TensorDelta>(module, "Delta")
      .def_prop_ro("entries",
                   [](const TensorDelta& self) {
                     std::vector<Report> entries;
                     for (const auto& entry : self.entries())
                       entries.push_back(entry_report(entry));
                     return entries;
                   })
      .def_prop_ro("removed", &TensorDelta::removed)
      .def_prop_ro("base", [](const TensorDelta& self) { return self.base().hex(); })
      .def_prop_ro("target", [](const TensorDelta& self) { return self.target().hex(); })
      .def_prop_ro("bytes", &TensorDelta::payload_bytes)
      .def(
          "save",
          [](const TensorDelta& self, const path& out, uint64_t part_bytes) {
            DiffOptions options;
            options.part_bytes = part_bytes;
            check(without_gil([&] { return self.save(out, options); }));
          },
          nb::arg("path"), nb::arg("part_bytes"))
      .def("apply", &apply_to_tensors, nb::arg("tensors"), nb::kw_only(), nb::arg("threads"),
           nb::arg("progress").none());
  module.def("diff", &diff_tensors, nb::arg("old"), nb::arg("new"), nb::kw_only(), nb::arg("codec"),
             nb::arg("threads"), nb::arg("progress").none());
  module.def(
      "load_delta",
      [](const path& path) { return unwrap(without_gil([&] { return TensorDelta::open(path); })); },
      nb::arg("path"));

  module.def("diff_checkpoints", &diff_files, nb::arg("old"), nb::arg("new"), nb::arg("out"),
             nb::kw_only(), nb::arg("codec"), nb::arg("threads"), nb::arg("part_bytes"),
             nb::arg("progress").none());
  module.def("apply_delta", &apply_files, nb::arg("delta"), nb::arg("base"), nb::arg("out"),
             nb::kw_only(), nb::arg("threads"), nb::arg("progress").none());
  module.def("verify_checkpoints", &verify_files, nb::arg("a"), nb::arg("b"), nb::kw_only(),
             nb::arg("threads"), nb::arg("progress").none());
}

}  // namespace deltawire::python
