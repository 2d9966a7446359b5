#include "lab/bench/data.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <utility>

#include "base/guard.h"
#include "codec/changes.h"
#include "delta/open_checkpoint.h"
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

uint64_t huge_page_bytes() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;) {
    if (uint64_t kib = 0; word == "AnonHugePages:" && rollup >> kib) return kib << 10;
  }
  return 0;
}

// Gives each tensor its place in the three arenas; sizes[i] belongs to tensors[i].
Status place(const std::vector<uint64_t>& sizes, BenchData* data) {
  uint64_t total = 0;
  for (const uint64_t size : sizes) total += round_up(size, kAlignment);
  DW_ASSIGN_OR_RETURN(data->before, Arena::create(total));
  DW_ASSIGN_OR_RETURN(data->after, Arena::create(total));
  DW_ASSIGN_OR_RETURN(data->work, Arena::create(total));
  uint64_t offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    BenchTensor& tensor = data->tensors[i];
    tensor.layout = layout_of(tensor.dtype);
    tensor.before = {data->before.data() + offset, sizes[i]};
    tensor.after = {data->after.data() + offset, sizes[i]};
    tensor.work = {data->work.data() + offset, sizes[i]};
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
  std::vector<size_t> order(data->tensors.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return data->tensors[a].after.size() > data->tensors[b].after.size();
  });
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
  data->huge_page_bytes = huge_page_bytes();
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

}  // namespace

Result<Arena> Arena::create(uint64_t size_bytes) {
  Arena arena;
  arena.size_ = round_up(std::max<uint64_t>(size_bytes, 1), kHugePage);
  void* at = mmap(nullptr, arena.size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) {
    return out_of_memory("bench needs three times " + std::to_string(arena.size_) + " bytes");
  }
  madvise(at, arena.size_, MADV_HUGEPAGE);  // a wish; what came of it is reported
  arena.data_ = static_cast<uint8_t*>(at);
  return arena;
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, size_);
}

Arena::Arena(Arena&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Arena& Arena::operator=(Arena&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<BenchData> simulate_bench_data(uint64_t params, double density, uint64_t seed,
                                      ThreadPool* pool, const Progress& progress) {
  const std::vector<SimulatedTensor> model = simulated_model(params);
  const double step_size = calibrate_step_size(model, density);
  BenchData data;
  data.source = "simulated, seed " + std::to_string(seed);
  std::vector<uint64_t> sizes;
  for (const SimulatedTensor& tensor : model) {
    DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(DType::kBF16, tensor.shape));
    sizes.push_back(size);
    data.tensors.push_back({tensor.name, DType::kBF16, {}, {}, {}, {}});
  }
  DW_RETURN_IF_ERROR(place(sizes, &data));
  DW_RETURN_IF_ERROR(fill_all(&data, pool, progress, [&](size_t i) {
    TensorSimulation simulation(model[i], step_size, seed);
    std::memcpy(writable(data.tensors[i].before), simulation.values().data(), sizes[i]);
    simulation.step();
    std::memcpy(writable(data.tensors[i].after), simulation.values().data(), sizes[i]);
  }));
  return data;
}

Result<BenchData> load_bench_data(const std::string& old_path, const std::string& new_path,
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
    if (before == nullptr || before->view.dtype != after.dtype ||
        before->view.shape != after.shape) {
      ++data.num_skipped;
      continue;
    }
    pairs.emplace_back(&before->view, &after);
    sizes.push_back(after.bytes.size());
    data.tensors.push_back({after.name, after.dtype, {}, {}, {}, {}});
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

void reset_work(const BenchData& data, ThreadPool* pool) {
  if (data.tensors.empty()) return;
  const BenchTensor& last = data.tensors.back();
  const uint64_t total = uint64_t(last.before.data() - data.before.data()) + last.before.size();
  parallel_for(pool, size_t((total + kCopyBytes - 1) / kCopyBytes), [&](size_t i, unsigned) {
    const uint64_t begin = i * kCopyBytes;
    std::memcpy(data.work.data() + begin, data.before.data() + begin,
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

}  // namespace deltawire::cli
