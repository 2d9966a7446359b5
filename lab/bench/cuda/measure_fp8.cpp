// FP8 blocks of the new weights, compared with those of the old: one pass, against the time of
// reading the weights and the old elements, and against quantising first and comparing then.
#include <fmt/format.h>

#include "kernels/cuda/fp8_block.h"
#include "lab/bench/cuda/device_model.h"
#include "lab/bench/cuda/kernels.h"

namespace deltawire::cli {
namespace {

using cuda::Buffer;
using cuda::Fp8Job;
using cuda::Place;

constexpr uint64_t kMatrixColumns = 4096, kLeastElements = 128 * kMatrixColumns;

// The tensors of the model that are matrices, or could be.
struct Fp8Model {
  std::vector<Fp8Job> jobs;
  uint64_t num_elements = 0;
  Buffer before, after, masks, scales, room, found;

  Status run(bool compare, bool write, Buffer* to) {
    for (Fp8Job& job : jobs) {
      const uint64_t at = begin_of(job);
      job.before = compare ? before.data() + at : nullptr;
      job.elements = write ? to->data() + at : nullptr;
    }
    DW_RETURN_IF_ERROR(cuda::fill_zero(found.data(), found.size(), nullptr));
    return cuda::fp8_blocks(jobs, room.data(), found.data<cuda::Fp8Found>(), nullptr);
  }
  uint64_t begin_of(const Fp8Job& job) const {
    return uint64_t(job.changed - masks.data<uint32_t>()) * 32;
  }
  Result<uint64_t> num_changed() const {
    std::vector<cuda::Fp8Found> all(jobs.size());
    DW_RETURN_IF_ERROR(cuda::copy(all.data(), found.data(), found.size(), nullptr));
    DW_RETURN_IF_ERROR(cuda::wait(nullptr));
    uint64_t changed = 0;
    for (const cuda::Fp8Found& one : all) changed += one.changed;
    return changed;
  }
};

Result<Fp8Model> make_model(const DeviceModel& model) {
  Fp8Model made;
  std::vector<uint64_t> begins;
  for (size_t i = 0; i < model.sizes.size(); ++i) {
    if (model.sizes[i] < kLeastElements || model.sizes[i] % kMatrixColumns != 0) continue;
    Fp8Job job;
    job.matrix = {model.old_tensor(i), WideFloat::kBf16, model.sizes[i] / kMatrixColumns,
                  kMatrixColumns};
    begins.push_back(made.num_elements);
    made.num_elements += model.sizes[i];
    made.jobs.push_back(job);
  }
  const auto device = [](uint64_t bytes) { return Buffer::allocate(Place::kDevice, bytes); };
  DW_ASSIGN_OR_RETURN(made.before, device(made.num_elements));
  DW_ASSIGN_OR_RETURN(made.after, device(made.num_elements));
  DW_ASSIGN_OR_RETURN(made.masks, device(made.num_elements / 8));
  DW_ASSIGN_OR_RETURN(made.scales, device(made.num_elements / 128 / 32 * 4));
  DW_ASSIGN_OR_RETURN(made.room, device(cuda::fp8_job_bytes(made.jobs)));
  DW_ASSIGN_OR_RETURN(made.found, device(made.jobs.size() * sizeof(cuda::Fp8Found)));
  for (size_t i = 0; i < made.jobs.size(); ++i) {
    made.jobs[i].changed = made.masks.data<uint32_t>() + begins[i] / 32;
    made.jobs[i].scales = made.scales.data<float>() + begins[i] / 128 / 32;
  }
  return made;
}

// The rows of one kind of weights.
Status measure_kind(DeviceModel* model, const char* kind, const void* weights, uint64_t bytes,
                    Fp8Model* fp8) {
  DW_ASSIGN_OR_RETURN(const Buffer sink, Buffer::allocate(Place::kDevice, 16));
  DW_ASSIGN_OR_RETURN(const double reading, model->best([&] {
    return cuda::read_both(weights, fp8->before.data(), bytes, fp8->num_elements,
                           sink.data<uint32_t>(), nullptr);
  }));
  DW_ASSIGN_OR_RETURN(const double fused,
                      model->best([&] { return fp8->run(true, false, nullptr); }));
  DW_ASSIGN_OR_RETURN(const uint64_t changed, fp8->num_changed());
  DW_ASSIGN_OR_RETURN(const double quantising,
                      model->best([&] { return fp8->run(false, true, &fp8->after); }));
  DW_ASSIGN_OR_RETURN(const double comparing, model->best([&] {
    return cuda::read_both(fp8->before.data(), fp8->after.data(), fp8->num_elements,
                           fp8->num_elements, sink.data<uint32_t>(), nullptr);
  }));
  model->rows.push_back(
      {fmt::format("fp8 blocks, {}: quantise + diff in one pass", kind), fused, reading,
       fmt::format("{:.2f} x the time of reading; {} of {} elements changed ({:.3f} %)",
                   fused / reading, changed, fp8->num_elements,
                   100.0 * double(changed) / double(fp8->num_elements))});
  model->rows.push_back({fmt::format("fp8 blocks, {}: quantise to a copy, then read both", kind),
                         quantising + comparing, reading,
                         fmt::format("{:.2f} + {:.2f} ms; one pass is {:.2f} x faster", quantising,
                                     comparing, (quantising + comparing) / fused)});
  return {};
}

}  // namespace

Status measure_fp8(DeviceModel* model) {
  DW_ASSIGN_OR_RETURN(Fp8Model fp8, make_model(*model));
  if (fp8.jobs.empty()) return {};
  DW_RETURN_IF_ERROR(fp8.run(false, true, &fp8.before));  // of the old weights
  const auto* const old_weights = model->old_weights.data<uint16_t>();
  for (Fp8Job& job : fp8.jobs) {
    const auto* const own = static_cast<const uint16_t*>(job.matrix.weights);
    job.matrix.weights = model->new_weights.data<uint16_t>() + (own - old_weights);
  }
  DW_RETURN_IF_ERROR(
      measure_kind(model, "bf16", model->new_weights.data(), fp8.num_elements * 2, &fp8));
  DW_ASSIGN_OR_RETURN(const Buffer wide, Buffer::allocate(Place::kDevice, model->span * 4));
  DW_RETURN_IF_ERROR(
      cuda::widen(model->new_weights.data<uint16_t>(), wide.data<float>(), model->span, nullptr));
  for (Fp8Job& job : fp8.jobs) {
    const auto* const own = static_cast<const uint16_t*>(job.matrix.weights);
    job.matrix.weights = wide.data<float>() + (own - model->new_weights.data<uint16_t>());
    job.matrix.from = WideFloat::kF32AsBf16;
  }
  return measure_kind(model, "f32 rounded to bf16", wide.data(), fp8.num_elements * 4, &fp8);
}

}  // namespace deltawire::cli
