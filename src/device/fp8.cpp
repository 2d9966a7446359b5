#include "device/fp8.h"

#include <algorithm>
#include <numeric>

#include "device/context.h"
#include "digest/sums.h"
#include "kernels/cuda/fp8_block.h"
#include "kernels/cuda/group_codes.h"
#include "kernels/cuda/marked.h"
#include "kernels/tight_math.h"

namespace deltawire::cuda {
namespace {

Fp8Job job_of(const Fp8Task& task) {
  Fp8Job job;
  job.matrix = task.weights.matrix;
  job.scales = task.weights.scales;
  job.before = task.before;
  job.changed = task.changed;
  job.elements = task.elements;
  return job;
}

Fp8Outcome outcome_of(const Fp8Found& found, uint64_t num_elements, Fp8Digests digests) {
  Fp8Outcome outcome{found.unbounded == 0, found.changed, {}};
  if (digests == Fp8Digests::kSum128) {
    outcome.digest = finish_sums({found.sums[0], found.sums[1]}, num_elements);
  }
  return outcome;
}

}  // namespace

Result<std::vector<Fp8Outcome>> quantise_fp8(std::span<const Fp8Task> tasks, Fp8Digests digests,
                                             Stream stream) {
  std::vector<Fp8Outcome> out(tasks.size());
  if (tasks.empty()) return out;
  std::optional<int> device;  // of the first task with weights
  for (const Fp8Task& task : tasks) {
    if (!device) device = device_of(task.weights.matrix.weights);
  }
  if (!device) return invalid_argument("the weights are not on a device");
  const UseDevice use(*device);
  // All weights of a launch have the same dtype.
  std::vector<size_t> order(tasks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto from = [&](size_t i) { return tasks[i].weights.matrix.from; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return from(a) < from(b); });
  std::vector<Fp8Job> jobs;
  for (const size_t i : order) jobs.push_back(job_of(tasks[i]));

  const size_t found_bytes = jobs.size() * sizeof(Fp8Found),
               job_bytes = fp8_job_bytes({&jobs[0], 1});
  DW_ASSIGN_OR_RETURN(const Buffer room,
                      Buffer::allocate(Place::kDevice, found_bytes + jobs.size() * job_bytes));
  auto* const found = room.data<Fp8Found>();
  DW_RETURN_IF_ERROR(fill_zero(found, found_bytes, stream));
  for (size_t begin = 0, end = 0; begin < jobs.size(); begin = end) {
    while (end < jobs.size() && from(order[end]) == from(order[begin])) ++end;
    DW_RETURN_IF_ERROR(fp8_blocks(std::span(jobs).subspan(begin, end - begin),
                                  room.data() + found_bytes + begin * job_bytes, found + begin,
                                  stream, digests == Fp8Digests::kSum128));
  }
  std::vector<Fp8Found> fetched(jobs.size());
  DW_RETURN_IF_ERROR(copy(fetched.data(), found, found_bytes, stream));
  DW_RETURN_IF_ERROR(wait(stream));
  for (size_t k = 0; k < order.size(); ++k) {
    out[order[k]] = outcome_of(fetched[k], tasks[order[k]].weights.num_elements(), digests);
  }
  return out;
}

bool has_marks(const Fp8Weights& weights) noexcept {
  return weights.matrix.columns % 32 == 0 && weights.num_elements() > uint64_t{1}
                                                                          << tight::kBlockLog2;
}

uint64_t marked_bytes(size_t count) noexcept { return count * sizeof(MarkedFp8); }

Status mark_fp8(std::span<const Fp8Task> tasks, MarkedFp8* out, Stream stream) {
  if (tasks.empty()) return {};
  const UseDevice use(device_of(out).value_or(0));
  std::vector<MarkedFp8> marked;
  for (const Fp8Task& task : tasks) {
    const fp8::Matrix& matrix = task.weights.matrix;
    marked.push_back({task.changed, matrix.weights, task.weights.scales, matrix.columns,
                      matrix.block_rows, matrix.block_columns, matrix.columns_of_blocks(),
                      matrix.from});
  }
  DW_RETURN_IF_ERROR(copy(out, marked.data(), marked_bytes(marked.size()), stream));
  return wait(stream);
}

Status make_group_codes(const GroupJob& job, Stream stream) {
  const std::optional<int> device = device_of(job.weights);
  if (!device) return invalid_argument("the weights are not on a device");
  const UseDevice use(*device);
  return quantise_groups(job, stream);
}

}  // namespace deltawire::cuda
