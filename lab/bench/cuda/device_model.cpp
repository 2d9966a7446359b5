#include "lab/bench/cuda/device_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "lab/bench/cuda/kernels.h"
#include "lab/bench/data.h"
#include "lab/bench/report.h"

namespace deltawire::cli {

using cuda::Buffer;
using cuda::Place;

namespace {

constexpr uint64_t kAlign = 128;  // elements: tensors begin at 256 bytes
// Copies of a tensor are joined to tensors of up to so many elements, as large ones of models are.
constexpr uint64_t kJoinedElements = uint64_t{1} << 26;

struct ModelForm {
  std::string_view name;
  uint64_t layers, hidden, queries, keys, inner, vocabulary;
  uint64_t experts;  // 0: dense
  bool tied;
};

// Qwen3-8B, Qwen3-1.7B, and six layers of Qwen3-30B-A3B with 2,300 tensors of experts.
constexpr ModelForm kModels[] = {
    {"8b", 36, 4096, 4096, 1024, 12288, 151936, 0, false},
    {"1.7b", 28, 2048, 2048, 1024, 6144, 151936, 0, true},
    {"moe", 6, 2048, 4096, 512, 768, 151936, 128, false},
};

std::vector<Layout> tensors_of_model(std::string_view name) {
  std::vector<Layout> tensors;
  const auto add = [&](uint64_t rows, uint64_t columns) {
    tensors.push_back({2, 7, 0xff, uint32_t(rows), uint32_t(columns)});
  };
  for (const ModelForm& shape : kModels) {
    if (shape.name != name) continue;
    add(shape.vocabulary, shape.hidden);
    for (uint64_t layer = 0; layer < shape.layers; ++layer) {
      for (const uint64_t norm : {shape.hidden, shape.hidden, uint64_t{128}, uint64_t{128}}) {
        add(1, norm);
      }
      add(shape.queries, shape.hidden);
      add(shape.keys, shape.hidden);
      add(shape.keys, shape.hidden);
      add(shape.hidden, shape.queries);
      if (shape.experts != 0) add(shape.experts, shape.hidden);
      for (uint64_t e = 0; e < (shape.experts == 0 ? 1 : shape.experts); ++e) {
        add(shape.inner, shape.hidden);
        add(shape.inner, shape.hidden);
        add(shape.hidden, shape.inner);
      }
    }
    add(1, shape.hidden);
    if (!shape.tied) add(shape.vocabulary, shape.hidden);
  }
  return tensors;
}

// Copies [1, count) of the elements before them.
Status repeat(uint16_t* begin, uint64_t size, uint64_t count) {
  for (uint64_t have = 1; have < count;) {
    const uint64_t more = std::min(have, count - have);
    DW_RETURN_IF_ERROR(cuda::copy(begin + have * size, begin, more * size * 2, nullptr));
    have += more;
  }
  return {};
}

}  // namespace

Status DeviceModel::make_weights() {
  DW_ASSIGN_OR_RETURN(info, cuda::device_info());
  DW_RETURN_IF_ERROR(is_recorded() ? load() : simulate());
  for (size_t i = 0; i < sizes.size(); ++i) {
    pairs.push_back({layouts[i], old_tensor(i), new_tensor(i), sizes[i], cuda::NewKind::kSame});
  }
  return cuda::wait(nullptr);
}

Status DeviceModel::lay_out() {
  for (const uint64_t size : sizes) {
    begins.push_back(span);
    num_elements += size;
    span += (size + kAlign - 1) / kAlign * kAlign;
  }
  DW_ASSIGN_OR_RETURN(old_weights, Buffer::allocate(Place::kDevice, span * 2));
  DW_ASSIGN_OR_RETURN(new_weights, Buffer::allocate(Place::kDevice, span * 2));
  return {};
}

Status DeviceModel::simulate() {
  source = options.model;
  layouts = tensors_of_model(options.model);
  for (const Layout& layout : layouts) sizes.push_back(uint64_t{layout.rows} * layout.columns);
  DW_RETURN_IF_ERROR(lay_out());
  return cuda::simulate_step(old_weights.data<uint16_t>(), new_weights.data<uint16_t>(), span, 1,
                             float(options.density / 0.012 * 4.38e-5), nullptr);
}

Status DeviceModel::load() {
  DW_ASSIGN_OR_RETURN(const BenchData data, make_bench_data(context, options, &pool));
  source = fmt::format("{}, {} copies", data.source, options.copies);
  std::vector<const BenchTensor*> of;  // which each of `sizes` is copies of
  for (const BenchTensor& tensor : data.tensors) {
    const uint64_t size = tensor.before.size() / 2;
    if (tensor.dtype != DType::kBF16 || size == 0) continue;
    const uint64_t joined = std::max<uint64_t>(1, kJoinedElements / size);
    for (uint64_t left = options.copies; left > 0; left -= std::min(left, joined)) {
      of.push_back(&tensor);
      sizes.push_back(std::min(left, joined) * size);
      layouts.push_back(tensor.layout);  // copies are matrices behind each other
    }
  }
  if (sizes.empty()) {
    return invalid_argument(options.new_path + ": has no BF16 tensor in common with " +
                            options.old_path);
  }
  DW_RETURN_IF_ERROR(lay_out());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const uint64_t bytes = of[i]->before.size();
    DW_RETURN_IF_ERROR(cuda::copy(old_tensor(i), of[i]->before.data(), bytes, nullptr));
    DW_RETURN_IF_ERROR(cuda::copy(new_tensor(i), of[i]->after.data(), bytes, nullptr));
    DW_RETURN_IF_ERROR(repeat(old_tensor(i), bytes / 2, sizes[i] * 2 / bytes));
    DW_RETURN_IF_ERROR(repeat(new_tensor(i), bytes / 2, sizes[i] * 2 / bytes));
  }
  return cuda::wait(nullptr);
}

Result<double> DeviceModel::best(const std::function<Status()>& body) const {
  DW_ASSIGN_OR_RETURN(cuda::Stopwatch watch, cuda::Stopwatch::create());
  double least = 1e300;
  for (unsigned i = 0; i < options.repeat + 1; ++i) {  // the first warms up
    DW_RETURN_IF_ERROR(watch.start(nullptr));
    DW_RETURN_IF_ERROR(body());
    DW_ASSIGN_OR_RETURN(const double time, watch.stop(nullptr));
    if (i > 0) least = std::min(least, time);
  }
  return least;
}

// Gaps between tensors are not patched: they are compared tensor by tensor.
Status DeviceModel::check_equal(const std::string& what) const {
  DW_ASSIGN_OR_RETURN(const Buffer count, Buffer::allocate(Place::kDevice, 8));
  DW_RETURN_IF_ERROR(cuda::fill_zero(count.data(), 8, nullptr));
  for (size_t i = 0; i < sizes.size(); ++i) {
    DW_RETURN_IF_ERROR(cuda::count_different(old_tensor(i), new_tensor(i), sizes[i] * 2,
                                             count.data<unsigned long long>(), nullptr));
  }
  uint64_t different = 0;
  DW_RETURN_IF_ERROR(cuda::copy(&different, count.data(), 8, nullptr));
  DW_RETURN_IF_ERROR(cuda::wait(nullptr));
  if (different == 0) return {};
  return internal_error(fmt::format("{}: {} bytes differ after the patch", what, different));
}

namespace {

Status measure_all(DeviceModel* model) {
  using Measure = Status (*)(DeviceModel*);
  static constexpr Measure kSimulated[] = {measure_bounds,  measure_diff,   measure_fp8,
                                           measure_gaps,    measure_tight,  measure_exponents,
                                           measure_digests, measure_pinned, measure_baselines};
  // What depends on the weights.
  static constexpr Measure kRecorded[] = {measure_bounds, measure_diff,      measure_gaps,
                                          measure_tight,  measure_exponents, measure_units};
  DW_RETURN_IF_ERROR(model->make_weights());
  for (const Measure measure :
       model->is_recorded() ? std::span<const Measure>(kRecorded) : kSimulated) {
    DW_RETURN_IF_ERROR(check_interrupted());
    DW_RETURN_IF_ERROR(measure(model));
  }
  return {};
}

BenchTable table_of(const std::vector<DeviceRow>& rows) {
  BenchTable table({{"what", "what"},
                    {"milliseconds", "ms"},
                    {"bound_milliseconds", "bound, ms"},
                    {"over_bound", "x bound"},
                    {"note", ""}});
  for (const DeviceRow& row : rows) {
    const bool bounded = row.bound > 0;
    table.add({text_cell(row.what), milliseconds_cell(row.milliseconds),
               bounded ? milliseconds_cell(row.bound) : Cell{},
               bounded ? ratio_cell(row.milliseconds, row.bound) : Cell{}, text_cell(row.note)});
  }
  return table;
}

}  // namespace

Status bench_cuda(const Context& context, const BenchOptions& options) {
  DeviceModel model(context, options);
  const Status status = measure_all(&model);
  if (model.rows.empty()) return status;
  const BenchTable table = table_of(model.rows);  // what was measured before a failure, too
  context.say(
      fmt::format("{}, driver {}.{}: {} tensors, {:.3f} B elements of bf16, {:.2f} % changed",
                  model.info.name, model.info.driver / 1000, model.info.driver % 1000 / 10,
                  model.sizes.size(), double(model.num_elements) * 1e-9,
                  100 * double(model.num_changed) / double(model.num_elements)));
  table.say(context);
  DW_RETURN_IF_ERROR(Status(status));
  context.emit({{"device", model.info.name},
                {"driver", model.info.driver},
                {"runtime", model.info.runtime},
                {"model", model.source},
                {"tensors", model.sizes.size()},
                {"elements", model.num_elements},
                {"changed", model.num_changed},
                {"rows", table.json()}});
  return {};
}

}  // namespace deltawire::cli
