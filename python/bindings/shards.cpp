#include "shard/shard.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "buffer.h"
#include "calls.h"
#include "carriers.h"
#include "lent.h"
#include "tensors.h"
#include "watcher.h"

namespace deltawire::python {
namespace {

using PlanHandle = std::shared_ptr<const ShardPlan>;
// name, dtype, shape, offset, extent
using BoxTuple = std::tuple<std::string, std::string, Shape, Shape, Shape>;

std::string named_dtype(DType dtype) { return std::string(dtype_name(dtype)); }

// Offset and extent, also of a whole tensor.
std::pair<Shape, Shape> spelled(const Box& box, const Shape& shape) {
  return box.whole() ? std::pair(Shape(shape.size(), 0), shape) : std::pair(box.offset, box.extent);
}

ShardLayout layout_of_boxes(const std::vector<BoxTuple>& boxes) {
  std::vector<LiveTensor> pieces;
  for (const auto& [name, dtype, shape, offset, extent] : boxes) {
    const std::optional<DType> known = parse_dtype(dtype);
    if (!known) throw StatusError(invalid_argument("\"" + dtype + "\": no dtype of that name"));
    pieces.push_back({name, *known, shape, {}, Memory::kHost, {offset, extent}});
  }
  return unwrap(ShardLayout::of_rank(pieces));
}

void bind_layouts(nb::module_& module) {
  nb::class_<ShardLayout>(module, "ShardLayout")
      .def_static("of_boxes", &layout_of_boxes, nb::arg("boxes"))
      .def_static(
          "join",
          [](const std::vector<const ShardLayout*>& parts) {
            std::vector<ShardLayout> all;
            for (const ShardLayout* part : parts) all.push_back(*part);
            return unwrap(without_gil([&] { return ShardLayout::join(all); }));
          },
          nb::arg("parts"))
      .def_static(
          "of_spec",
          [](const std::string& spec, const std::filesystem::path& checkpoint) {
            return unwrap(without_gil([&]() -> Result<ShardLayout> {
              DW_ASSIGN_OR_RETURN(const Checkpoint opened, Checkpoint::open(checkpoint));
              return ShardLayout::of_spec(spec, opened);
            }));
          },
          nb::arg("spec"), nb::arg("checkpoint"))
      .def_static(
          "parse",
          [](const std::string& text) {
            return unwrap(without_gil([&] { return ShardLayout::parse(text); }));
          },
          nb::arg("text"))
      .def("text", &ShardLayout::to_text)
      .def_prop_ro("num_ranks", [](const ShardLayout& self) { return self.ranks.size(); })
      .def("rank_bytes",
           [](const ShardLayout& self, size_t rank) {
             if (rank >= self.ranks.size()) throw nb::index_error("no such rank");
             return self.rank_bytes(unsigned(rank));
           })
      .def("boxes",
           [](const ShardLayout& self, size_t rank) {
             if (rank >= self.ranks.size()) throw nb::index_error("no such rank");
             std::vector<BoxTuple> out;
             for (const ShardPiece& piece : self.ranks[rank]) {
               const ShardTensor& tensor = self.tensors[piece.tensor];
               const auto [offset, extent] = spelled(piece.box, tensor.shape);
               out.emplace_back(tensor.name, named_dtype(tensor.dtype), tensor.shape, offset,
                                extent);
             }
             return out;
           })
      .def("equals",
           [](const ShardLayout& self, const ShardLayout& other) { return self == other; });
}

void bind_plans(nb::module_& module) {
  nb::class_<PlanHandle>(module, "ShardPlan")
      .def_prop_ro("num_trainers", [](const PlanHandle& self) { return self->num_trainers; })
      .def_prop_ro("num_engines", [](const PlanHandle& self) { return self->num_engines; })
      .def_prop_ro("digest", [](const PlanHandle& self) { return self->digest.hex(); })
      .def_prop_ro("bytes", [](const PlanHandle& self) { return self->bytes(); })
      .def_prop_ro("model_bytes", [](const PlanHandle& self) { return self->model_bytes; })
      .def_prop_ro("trainer_bytes", [](const PlanHandle& self) { return self->trainer_bytes; })
      .def_prop_ro("engine_bytes", [](const PlanHandle& self) { return self->engine_bytes; })
      .def("edges",
           [](const PlanHandle& self) {
             std::vector<std::tuple<unsigned, unsigned, uint64_t>> out;
             for (const ShardEdge& edge : self->edges) {
               out.emplace_back(edge.trainer, edge.engine, edge.bytes);
             }
             return out;
           })
      .def("refusals",
           [](const PlanHandle& self) {
             std::vector<std::tuple<std::string, std::string, std::string>> out;
             for (const ShardRefusal& one : self->refusals) {
               out.emplace_back(shard_obstacle_name(one.obstacle), one.tensor, one.words);
             }
             return out;
           })
      .def("check", [](const PlanHandle& self) { check(self->check()); });
  module.def(
      "plan_shards",
      [](const ShardLayout& trainer, const ShardLayout& engine,
         std::optional<unsigned> trainer_rank, std::optional<unsigned> engine_rank) {
        return std::make_shared<const ShardPlan>(unwrap(without_gil([&] {
          return plan_shards(trainer, engine, {trainer_rank, engine_rank});
        })));
      },
      nb::arg("trainer"), nb::arg("engine"), nb::arg("trainer_rank") = nb::none(),
      nb::arg("engine_rank") = nb::none());
}

// A function of Python's that fills a room with a box: read(name, offset, extent, room).
class PythonReader {
 public:
  explicit PythonReader(nb::object read) : read_(std::move(read)) {}
  ~PythonReader() { drop(&read_); }
  PythonReader(const PythonReader&) = delete;
  PythonReader& operator=(const PythonReader&) = delete;

  Status read(const ShardTensor& tensor, const Box& box, std::span<uint8_t> contents) const {
    return ask_python<bool>("reading",
                            [&] {
                              const auto [offset, extent] = spelled(box, tensor.shape);
                              const LentView room(contents.data(), contents.size(), PyBUF_WRITE);
                              read_(tensor.name, nb::tuple(nb::cast(offset)),
                                    nb::tuple(nb::cast(extent)), room.get());
                              return true;
                            })
        .status();
  }

 private:
  nb::object read_;
};

// Either a reader, or tensors in host memory that Python keeps alive.
ReadShard reader_of(const std::vector<const Tensor*>& tensors, nb::object read) {
  if (read.is_none()) {
    std::vector<LiveTensor> pieces;
    for (const Tensor* one : tensors) {
      pieces.push_back({one->name, one->dtype, one->shape, one->bytes, one->memory, one->box});
    }
    return unwrap(read_live(pieces));
  }
  const auto reader = std::make_shared<const PythonReader>(std::move(read));
  return [reader](const ShardTensor& tensor, const Box& box, std::span<uint8_t> contents) {
    return reader->read(tensor, box, contents);
  };
}

ShardOptions shard_options(double timeout, uint64_t bucket_bytes, uint64_t slice_bytes,
                           unsigned threads, std::optional<uint64_t> history_bytes = {}) {
  ShardOptions options;
  options.timeout_seconds = timeout;
  options.bucket_bytes = bucket_bytes;
  options.slice_bytes = slice_bytes;
  options.threads = threads;
  options.history_bytes = history_bytes;
  return options;
}

// One call at a time over a carrier; Ctrl-C ends it, and the group with it.
template <class T, class Body>
T carry_call(const CarrierHandle& handle, const Body& body) {
  const std::shared_ptr<Carrier> carrier = handle.get();
  const std::unique_lock lock(handle.in_use(), std::try_to_lock);
  if (!lock.owns_lock()) {
    throw StatusError(invalid_argument(carrier->name() + ": another thread's call is under way"));
  }
  Result<T> result =
      interruptible([&]() -> Result<T> { return body(*carrier); }, [&] { carrier->abort(); });
  if (result.ok()) forget_raised();
  return unwrap(std::move(result));
}

nb::list staged_list(const PlanHandle& plan, const std::vector<StagedShard>& staged) {
  nb::list out;
  for (const StagedShard& one : staged) {
    const ShardTensor& tensor = plan->tensors[one.tensor];
    const auto [offset, extent] = spelled(one.box, tensor.shape);
    nb::object positions = one.whole ? nb::none() : to_array(one.positions);
    out.append(nb::make_tuple(tensor.name, named_dtype(tensor.dtype), nb::tuple(nb::cast(offset)),
                              nb::tuple(nb::cast(extent)), positions, to_array(one.values)));
  }
  return out;
}

struct SenderHandle {
  ShardSender sender;
};
struct ReceiverHandle {
  PlanHandle plan;
  ShardReceiver receiver;
};

void bind_reports(nb::module_& module) {
  nb::class_<ShardReport>(module, "ShardReport")
      .def_ro("version", &ShardReport::version)
      .def_ro("sent_bytes", &ShardReport::sent_bytes)
      .def_ro("contents_bytes", &ShardReport::contents_bytes)
      .def_ro("num_changed", &ShardReport::num_changed)
      .def_ro("num_delta", &ShardReport::num_delta)
      .def_ro("num_whole", &ShardReport::num_whole)
      .def_ro("num_merged", &ShardReport::num_merged)
      .def_ro("read_encode_seconds", &ShardReport::read_encode_seconds)
      .def_ro("carry_seconds", &ShardReport::carry_seconds)
      .def_ro("lost", &ShardReport::lost)
      .def_ro("notes", &ShardReport::notes);
}

void bind_ends(nb::module_& module) {
  nb::class_<SenderHandle>(module, "ShardSender")
      .def(
          "__init__",
          [](SenderHandle* self, const PlanHandle& plan, unsigned rank,
             const std::vector<const Tensor*>& tensors, nb::object read, double timeout,
             uint64_t bucket_bytes, uint64_t slice_bytes, unsigned threads,
             std::optional<uint64_t> history_bytes) {
            ReadShard reader = reader_of(tensors, std::move(read));
            const auto options =
                shard_options(timeout, bucket_bytes, slice_bytes, threads, history_bytes);
            new (self) SenderHandle{unwrap(without_gil(
                [&] { return ShardSender::create(plan, rank, std::move(reader), options); }))};
          },
          nb::arg("plan"), nb::arg("rank"), nb::arg("tensors"), nb::arg("read").none(),
          nb::arg("timeout"), nb::arg("bucket_bytes"), nb::arg("slice_bytes"), nb::arg("threads"),
          nb::arg("history_bytes").none())
      .def("send",
           [](SenderHandle& self, const CarrierHandle& carrier, uint64_t version) {
             return carry_call<ShardReport>(
                 carrier, [&](Carrier& group) { return self.sender.send(group, version); });
           })
      .def("proof",
           [](const SenderHandle& self) {
             return unwrap(without_gil([&] { return self.sender.proof(); }));
           })
      .def_prop_ro("version", [](const SenderHandle& self) { return self.sender.version(); })
      .def_prop_ro("snapshot_bytes",
                   [](const SenderHandle& self) { return self.sender.snapshot_bytes(); });
  nb::class_<ReceiverHandle>(module, "ShardReceiver")
      .def(
          "__init__",
          [](ReceiverHandle* self, const PlanHandle& plan, unsigned rank,
             const std::vector<const Tensor*>& tensors, nb::object read, double timeout,
             uint64_t bucket_bytes, uint64_t slice_bytes, unsigned threads) {
            ReadShard reader = reader_of(tensors, std::move(read));
            const auto options = shard_options(timeout, bucket_bytes, slice_bytes, threads);
            new (self) ReceiverHandle{plan, unwrap(without_gil([&] {
                                        return ShardReceiver::create(plan, rank, std::move(reader),
                                                                     options);
                                      }))};
          },
          nb::arg("plan"), nb::arg("rank"), nb::arg("tensors"), nb::arg("read").none(),
          nb::arg("timeout"), nb::arg("bucket_bytes"), nb::arg("slice_bytes"), nb::arg("threads"))
      .def("receive",
           [](ReceiverHandle& self, const CarrierHandle& carrier) {
             return carry_call<ShardReport>(
                 carrier, [&](Carrier& group) { return self.receiver.receive(group); });
           })
      .def(
          "staged",
          [](const ReceiverHandle& self) { return staged_list(self.plan, self.receiver.staged()); })
      .def("commit",
           [](ReceiverHandle& self, const std::vector<const Tensor*>& tensors) {
             const std::vector<LiveTensor> live = to_patch(tensors);
             check(without_gil([&] { return self.receiver.commit(live); }));
           })
      .def("committed",
           [](ReceiverHandle& self, bool written) { self.receiver.committed(written); })
      .def("discarded", [](ReceiverHandle& self) { self.receiver.discarded(); })
      .def("proof",
           [](const ReceiverHandle& self) {
             return unwrap(without_gil([&] { return self.receiver.proof(); }));
           })
      .def_prop_ro("version", [](const ReceiverHandle& self) { return self.receiver.version(); });
  module.def("prove_shards", [](const CarrierHandle& carrier, const PlanHandle& plan,
                                const Proof& own, double timeout) {
    return carry_call<uint64_t>(
        carrier, [&](Carrier& group) { return prove_shards(group, *plan, own, timeout); });
  });
}

}  // namespace

void bind_shards(nb::module_& module) {
  bind_layouts(module);
  bind_plans(module);
  bind_reports(module);
  bind_ends(module);
}

}  // namespace deltawire::python
