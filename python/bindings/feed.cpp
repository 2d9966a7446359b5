#include "replica/feed.h"
#include "live/map.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>
#include <utility>

#include "bind.h"
#include "buffer.h"
#include "calls.h"
#include "deltawire/checkpoint.h"
#include "reports.h"

namespace deltawire::python {
namespace {

using Sizes = std::vector<uint64_t>;
// extent, first, strides, array, array_first, array_strides
using WindowTuple = std::tuple<Sizes, uint64_t, Sizes, uint32_t, uint64_t, Sizes>;
// name, dtype, shape, windows
using TensorTuple = std::tuple<std::string, std::string, Sizes, std::vector<WindowTuple>>;
using ArrayTuple = std::pair<uint64_t, unsigned>;  // elements, width

DType dtype_named(const std::string& name) {
  const std::optional<DType> dtype = parse_dtype(name);
  if (!dtype) throw StatusError(invalid_argument("\"" + name + "\": no dtype of that name"));
  return *dtype;
}

LiveMap to_map(const std::vector<TensorTuple>& tensors, const std::vector<ArrayTuple>& arrays) {
  LiveMap map;
  for (const auto& [elements, width] : arrays) {
    map.array_elements.push_back(elements);
    map.array_widths.push_back(width);
  }
  for (const auto& [name, dtype, shape, windows] : tensors) {
    LiveMap::Tensor& tensor = map.tensors[name];
    tensor.dtype = dtype_named(dtype);
    tensor.shape = Shape(shape.begin(), shape.end());
    for (const auto& [extent, first, strides, array, array_first, array_strides] : windows) {
      tensor.windows.push_back({extent, first, strides, array, array_first, array_strides});
    }
  }
  return map;
}

nb::dict to_dict(const FeedStep& step) {
  nb::dict out;
  out["to"] = nb::cast(to_tuple(step.to));
  out["from"] = nb::cast(to_tuple(step.from));
  return out;
}

Schema schema_of(const Checkpoint& checkpoint) {
  Schema schema;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    schema.tensors.push_back(tensor.view);
  }
  return schema;
}

// A worker that can leave before Python forgets it.
class Worker {
 public:
  Worker(const std::filesystem::path& local, const std::string& name, const IdentityTuple& version)
      : worker_(unwrap(FeedWorker::join(local, name, to_identity(version)))) {}
  void took(const IdentityTuple& version) {
    if (worker_) check(worker_->took(to_identity(version)));
  }
  void leave() { worker_.reset(); }

 private:
  std::optional<FeedWorker> worker_;
};

}  // namespace

void bind_feed(nb::module_& module) {
  module.def(
      "read_feed",
      [](const std::filesystem::path& local) {
        nb::list out;
        for (const FeedStep& step : unwrap(without_gil([&] { return read_feed(local); }))) {
          out.append(to_dict(step));
        }
        return out;
      },
      nb::arg("local"));
  module.def(
      "map_feed",
      [](const std::filesystem::path& local, const IdentityTuple& from, const IdentityTuple& to,
         const std::vector<TensorTuple>& tensors, const std::vector<ArrayTuple>& arrays,
         unsigned threads) {
        const LiveMap map = to_map(tensors, arrays);
        MappedChanges changes = unwrap(without_gil([&]() -> Result<MappedChanges> {
          DW_ASSIGN_OR_RETURN(const std::vector<FeedStep> steps, read_feed(local));
          DW_ASSIGN_OR_RETURN(const std::vector<FeedStep> path,
                              steps_between(steps, to_identity(from), to_identity(to)));
          return map_feed(path, map, threads);
        }));
        nb::list out;
        for (ArrayChanges& array : changes.arrays) {
          out.append(nb::make_tuple(to_array(std::move(array.offsets)),
                                    to_array(std::move(array.values))));
        }
        return nb::make_tuple(out, changes.changed_tensors);
      },
      nb::arg("local"), nb::arg("from_identity"), nb::arg("to_identity"), nb::arg("tensors"),
      nb::arg("arrays"), nb::arg("threads"));
  module.def(
      "feed_digests",
      [](const std::filesystem::path& local, const IdentityTuple& wanted) {
        const Identity version = to_identity(wanted);
        const auto digests = unwrap(without_gil([&]() -> Result<std::map<std::string, Digest>> {
          DW_ASSIGN_OR_RETURN(const std::vector<FeedStep> steps, read_feed(local));
          for (const FeedStep& step : steps) {
            if (step.to != version) continue;
            DW_ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::open(local));
            return feed_digests(step, schema_of(checkpoint));
          }
          return not_found(local.string() + ": " + to_string(version) + " is not in its feed");
        }));
        std::map<std::string, std::string> out;
        for (const auto& [name, digest] : digests) out[name] = digest.hex();
        return out;
      },
      nb::arg("local"), nb::arg("version"));

  module.def(
      "slowest_feed_worker",
      [](const std::filesystem::path& local, const IdentityTuple& held) {
        return to_tuple(without_gil([&] { return slowest_feed_worker(local, to_identity(held)); }));
      },
      nb::arg("local"), nb::arg("held"));
  nb::class_<Worker>(module, "FeedWorker")
      .def(nb::init<const std::filesystem::path&, const std::string&, const IdentityTuple&>(),
           nb::arg("local"), nb::arg("name"), nb::arg("version"))
      .def("took", &Worker::took, nb::arg("version"))
      .def("leave", &Worker::leave);
}

}  // namespace deltawire::python
