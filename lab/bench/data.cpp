#include "lab/bench/data.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/guard.h"
#include "base/waves.h"
#include "cli/table.h"
#include "codec/changes.h"
#include "codec/elements.h"
#include "delta/delta_writer.h"
#include "deltawire/checkpoint.h"
#include "format/layout.h"
#include "kernels/kernels.h"
#include "lab/simulate/simulation.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kAlignment = 64;
constexpr uint64_t kCopyBytes = uint64_t{4} << 20;

constexpr uint64_t round_up(uint64_t size, uint64_t unit) {
  return (size + unit - 1) / unit * unit;
}

Result<Arena> make_arena(uint64_t size_bytes) {
  const uint64_t size = round_up(std::max<uint64_t>(size_bytes, 1), kHugePage);
  void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    return out_of_memory("bench needs three times " + std::to_string(size) + " bytes");
  }
  madvise(at, size, MADV_HUGEPAGE);  // it works without them
  return Arena(static_cast<uint8_t*>(at), Unmap{size});
}

// Gives each tensor its place in the three arenas; sizes[i] belongs to tensors[i].
Status place(const std::vector<uint64_t>& sizes, BenchData* data) {
  uint64_t total = 0;
  for (const uint64_t size : sizes) total += round_up(size, kAlignment);
  DW_ASSIGN_OR_RETURN(data->before, make_arena(total));
  DW_ASSIGN_OR_RETURN(data->after, make_arena(total));
  DW_ASSIGN_OR_RETURN(data->work, make_arena(total));
  uint64_t offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    BenchTensor& tensor = data->tensors[i];
    tensor.before = {data->before.get() + offset, sizes[i]};
    tensor.after = {data->after.get() + offset, sizes[i]};
    tensor.work = {data->work.get() + offset, sizes[i]};
    data->weights_bytes += sizes[i];
    data->num_elements += sizes[i] / tensor.layout.width;
    offset += round_up(sizes[i], kAlignment);
  }
  return {};
}

uint8_t* writable(Bytes bytes) { return const_cast<uint8_t*>(bytes.data()); }  // ours: an arena's

// Fills the tensors by fill(index), largest first, then counts what changed.
template <class Fill>
Status fill_all(BenchData* data, ThreadPool* pool, const Progress& progress, const Fill& fill) {
  const std::vector<size_t> order =
      largest_first(data->tensors.size(), [&](size_t i) { return data->tensors[i].after.size(); });
  std::atomic<uint64_t> done{0}, changed{0};
  DW_RETURN_IF_ERROR(
      parallel_try("measuring", pool, order.size(), [&](size_t i, unsigned worker) -> Status {
        const BenchTensor& tensor = data->tensors[order[i]];
        fill(order[i]);
        const unsigned width = tensor.layout.width;
        changed += count_different(width, tensor.before.data(), tensor.after.data(),
                                   tensor.after.size() / width);
        done += tensor.after.size();
        if (worker == 0 && !progress(done, data->weights_bytes))
          return cancelled("stopped on request");
        return {};
      }));
  data->num_changed = changed;
  reset_work(*data, pool);
  return {};
}

Status difference(const BenchTensor& tensor, const std::string& who) {
  const size_t width = tensor.layout.width;
  const auto [got, want] =
      std::mismatch(tensor.work.begin(), tensor.work.end(), tensor.after.begin());
  const size_t element = size_t(want - tensor.after.begin()) / width;
  return internal_error(who + ": tensor " + quote(tensor.name) + ", element " +
                        std::to_string(element) + ": differs from the new weights after apply");
}

Result<BenchData> simulate_data(const BenchOptions& options, ThreadPool* pool,
                                const Progress& progress) {
  DW_ASSIGN_OR_RETURN(const std::vector<SimulatedTensor> model, simulated_model(options.params));
  const double step_size = calibrate_step_size(model, options.density);
  BenchData data;
  data.source = "simulated, seed " + std::to_string(options.seed);
  std::vector<uint64_t> sizes;
  for (const SimulatedTensor& tensor : model) {
    DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(DType::kBF16, tensor.shape));
    sizes.push_back(size);
    data.tensors.push_back(
        {tensor.name, DType::kBF16, layout_of(DType::kBF16, tensor.shape), {}, {}, {}});
  }
  DW_RETURN_IF_ERROR(place(sizes, &data));
  DW_RETURN_IF_ERROR(fill_all(&data, pool, progress, [&](size_t i) {
    TensorSimulation simulation(model[i], step_size, options.seed);
    std::memcpy(writable(data.tensors[i].before), simulation.values().data(), sizes[i]);
    simulation.step();
    std::memcpy(writable(data.tensors[i].after), simulation.values().data(), sizes[i]);
  }));
  return data;
}

Result<BenchData> load_data(const std::string& old_path, const std::string& new_path,
                            ThreadPool* pool, const Progress& progress) {
  DW_ASSIGN_OR_RETURN(const Checkpoint old_checkpoint, open_checkpoint(old_path));
  DW_ASSIGN_OR_RETURN(const Checkpoint new_checkpoint, open_checkpoint(new_path));
  BenchData data;
  data.source = old_path + " -> " + new_path;
  std::vector<std::pair<const TensorView*, const TensorView*>> pairs;
  std::vector<uint64_t> sizes;
  for (const CheckpointTensor& tensor : new_checkpoint.tensors()) {
    const TensorView& after = tensor.view;
    const CheckpointTensor* before = old_checkpoint.find(after.name);
    if (before == nullptr || !same_form(before->view, after)) {
      ++data.num_skipped;
      continue;
    }
    pairs.emplace_back(&before->view, &after);
    sizes.push_back(after.bytes.size());
    data.tensors.push_back(
        {after.name, after.dtype, layout_of(after.dtype, after.shape), {}, {}, {}});
  }
  DW_RETURN_IF_ERROR(place(sizes, &data));
  if (data.weights_bytes == 0) {
    return invalid_argument(new_path + ": has no tensor in common with " + old_path);
  }
  DW_RETURN_IF_ERROR(fill_all(&data, pool, progress, [&](size_t i) {
    std::memcpy(writable(data.tensors[i].before), pairs[i].first->bytes.data(), sizes[i]);
    std::memcpy(writable(data.tensors[i].after), pairs[i].second->bytes.data(), sizes[i]);
  }));
  return data;
}

}  // namespace

Result<BenchData> make_bench_data(const Context& context, const BenchOptions& options,
                                  ThreadPool* pool) {
  const bool simulated = options.old_path.empty();
  ProgressBar bar(context, simulated ? "simulate" : "load");
  return simulated ? simulate_data(options, pool, bar.callback())
                   : load_data(options.old_path, options.new_path, pool, bar.callback());
}

void say_data(const Context& context, const BenchData& data) {
  context.say(fmt::format("data      {}", data.source));
  context.say(fmt::format("          {} elements in {} tensors, {}; {} changed ({})",
                          human_count(data.num_elements), data.tensors.size(),
                          human_bytes(double(data.weights_bytes)), human_count(data.num_changed),
                          percent(data.density())));
  if (data.num_skipped == 0) return;
  context.say(fmt::format("          {} left out: no counterpart of the same form",
                          plural(data.num_skipped, "tensor")));
}

void reset_work(const BenchData& data, ThreadPool* pool) {
  if (data.tensors.empty()) return;
  const BenchTensor& last = data.tensors.back();
  const uint64_t total = uint64_t(last.before.data() - data.before.get()) + last.before.size();
  parallel_for(pool, size_t((total + kCopyBytes - 1) / kCopyBytes), [&](size_t i, unsigned) {
    const uint64_t begin = i * kCopyBytes;
    std::memcpy(data.work.get() + begin, data.before.get() + begin,
                std::min(kCopyBytes, total - begin));
  });
}

Status check_work(const BenchData& data, const std::string& who, ThreadPool* pool) {
  return parallel_try("measuring", pool, data.tensors.size(), [&](size_t i, unsigned) -> Status {
    const BenchTensor& tensor = data.tensors[i];
    if (kernels().equal(tensor.work.data(), tensor.after.data(), tensor.after.size())) return {};
    return difference(tensor, who);
  });
}

namespace {

double xlog2x(double x) { return x > 0 ? x * std::log2(x) : 0; }

// Bits that say which k of n, at k / n each: n H(k / n). None and all are certain: no bits, and no
// rest of a rounding either.
double choice_bits(uint64_t n, uint64_t k) {
  if (k == 0 || k == n) return 0;
  return xlog2x(double(n)) - xlog2x(double(k)) - xlog2x(double(n - k));
}

// Bits for a sequence of values drawn by their own frequencies. Sorts them.
double sequence_bits(std::vector<uint64_t>* values) {
  std::sort(values->begin(), values->end());
  if (values->empty() || values->front() == values->back()) return 0;
  double bits = xlog2x(double(values->size()));
  for (auto run = values->begin(); run != values->end();) {
    const auto end = std::upper_bound(run, values->end(), *run);
    bits -= xlog2x(double(end - run));
    run = end;
  }
  return bits;
}

template <class Element>
Bound bound_of_elements(const BenchTensor& tensor) {
  const Layout layout = tensor.layout;
  const size_t n = tensor.after.size() / sizeof(Element);
  std::array<uint64_t, 256> seen{};
  std::array<std::vector<uint64_t>, 256> steps;  // of the changed elements, by key
  for (size_t i = 0; i < n; ++i) {
    const auto before = load_le<Element>(tensor.before.data() + i * sizeof(Element));
    const auto after = load_le<Element>(tensor.after.data() + i * sizeof(Element));
    const size_t key = size_t(before >> layout.key_shift) & layout.key_mask;
    ++seen[key];
    if (before != after) steps[key].push_back(Element(after - before));
  }
  Bound bits;
  for (size_t key = 0; key < seen.size(); ++key) {
    bits.positions += choice_bits(seen[key], steps[key].size());
    bits.values += sequence_bits(&steps[key]);
  }
  return {bits.positions / 8, bits.values / 8};
}

}  // namespace

Bound tensor_bound(const BenchTensor& tensor) {
  return with_element(tensor.layout.width,
                      [&](auto element) { return bound_of_elements<decltype(element)>(tensor); });
}

Bound bound_of(std::span<const BenchTensor> tensors, ThreadPool* pool) {
  std::vector<Bound> each(tensors.size());
  parallel_for(pool, tensors.size(),
               [&](size_t i, unsigned) { each[i] = tensor_bound(tensors[i]); });
  Bound sum;
  for (const Bound& one : each) {
    sum.positions += one.positions;
    sum.values += one.values;
  }
  return sum;
}

}  // namespace deltawire::cli
