// Deltas between checkpoints on disk.
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>

#include "bind.h"
#include "calls.h"
#include "deltawire/delta.h"
#include "reports.h"

namespace deltawire::python {
namespace {

using std::filesystem::path;

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

void bind_checkpoints(nb::module_& module) {
  module.def("diff_checkpoints", &diff_files, nb::arg("old"), nb::arg("new"), nb::arg("out"),
             nb::kw_only(), nb::arg("codec"), nb::arg("threads"), nb::arg("part_bytes"),
             nb::arg("progress").none());
  module.def("apply_delta", &apply_files, nb::arg("delta"), nb::arg("base"), nb::arg("out"),
             nb::kw_only(), nb::arg("threads"), nb::arg("progress").none());
  module.def("verify_checkpoints", &verify_files, nb::arg("a"), nb::arg("b"), nb::kw_only(),
             nb::arg("threads"), nb::arg("progress").none());
}

}  // namespace deltawire::python
