#include "device/device_stage.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "codec/cuda/device_parts.h"
#include "device/context.h"
#include "device/device_lists.h"
#include "kernels/cuda/lists.h"

namespace deltawire {
namespace {

using cuda::PairArray;

constexpr uint64_t kMostElements = uint64_t{1} << 31;  // of an array: offsets have 32 bits

constexpr uint64_t kLeastCapacity = 4096;  // least number of changes that a wave has room for
constexpr uint64_t kListBlock = uint64_t{16} << 20;

// Calls take(row, elements) for the first row of each contiguous run of live rows.
template <class Take>
void for_each_run(const CopiedRows& rows, const Take& take) {
  const bool in_order = rows.rows < 2 || rows.stride == rows.columns;
  const uint64_t count = in_order ? 1 : rows.rows, length = rows.rows * rows.columns / count;
  for (uint64_t row = 0; row < count; ++row) take(row, length);
}

// Splits rows into arrays that are contiguous in both memories; each gets a list.
void append_arrays(const CopiedRows& rows, std::vector<PairArray>* out) {
  for_each_run(rows, [&](uint64_t row, uint64_t length) {
    for (uint64_t at = 0; at < length; at += kMostElements) {
      out->push_back({rows.live + (row * rows.stride + at) * rows.width,
                      rows.copy + (row * length + at) * rows.width,
                      std::min(kMostElements, length - at), 0});
    }
  });
}

// Arrays of one width, their differences from the copies, and device memory for these.
struct FoundChanges {
  std::vector<PairArray> arrays;
  unsigned width;
  uint64_t num_elements = 0, num_tiles = 0;
  uint8_t* table = nullptr;
  cuda::DiffOutput changes{};
  cuda::TilePlace* tiles = nullptr;
  cuda::ArrayChanges* counts = nullptr;
  cuda::OffsetPlace* places = nullptr;
  std::optional<cuda::PairBatch> batch;

  FoundChanges(std::vector<PairArray> of, unsigned of_width)
      : arrays(std::move(of)), width(of_width) {
    const uint64_t tile = cuda::tile_elements(width);
    for (const PairArray& array : arrays) {
      num_elements += array.num_elements;
      num_tiles += (array.num_elements + tile - 1) / tile;
    }
  }
  size_t lay_out(cuda::Carve carve) {
    table = carve.take<uint8_t>(cuda::PairBatch::size_bytes(arrays, width));
    changes.tiles = carve.take<cuda::TileChanges>(num_tiles);
    tiles = carve.take<cuda::TilePlace>(num_tiles);
    counts = carve.take<cuda::ArrayChanges>(arrays.size());
    places = carve.take<cuda::OffsetPlace>(arrays.size());
    changes.total = carve.take<uint64_t>(1);
    changes.positions = carve.take<uint16_t>(changes.capacity);
    changes.values = carve.take<uint8_t>(changes.capacity * width);
    return carve.size();
  }
  // `total` and `of_arrays` are pinned. Does not wait.
  Status start(uint8_t* memory, uint64_t* total, cuda::ArrayChanges* of_arrays,
               cuda::Stream stream) {
    lay_out(cuda::Carve(memory));
    DW_ASSIGN_OR_RETURN(batch, cuda::PairBatch::make_in(table, arrays, width, stream));
    DW_RETURN_IF_ERROR(cuda::fill_zero(changes.total, sizeof(uint64_t), stream));
    DW_RETURN_IF_ERROR(diff(*batch, cuda::NewKind::kSame, 0, num_tiles, changes, stream));
    DW_RETURN_IF_ERROR(place_changes(*batch, changes, tiles, counts, stream));
    DW_RETURN_IF_ERROR(cuda::copy(total, changes.total, sizeof(uint64_t), stream));
    return cuda::copy(of_arrays, counts, arrays.size() * sizeof(cuda::ArrayChanges), stream);
  }
};

}  // namespace

struct DeviceStage::Impl {
  Impl(int device_number, cuda::Context own_context, cuda::OwnedStream own_stream)
      : device(device_number), context(std::move(own_context)), stream(std::move(own_stream)) {}

  int device;
  cuda::Context context;
  cuda::OwnedStream stream;
  std::mutex fetching;
  cuda::Buffer copies, found, counts;
  const std::shared_ptr<SpareBlock> spare = std::make_shared<SpareBlock>();
  DeviceLists lists;
  uint64_t most_list_bytes = 0, bytes_left = 0, num_changed = 0;
  double density = 0.03;  // estimated changes per element, for allocations
  std::vector<std::pair<uintptr_t, uintptr_t>> listed;  // memory of arrays with lists
  // The free rest of the newest blocks.
  std::span<uint8_t> device_block, pinned_block;

  uint64_t* total() const { return counts.data<uint64_t>(); }
  cuda::ArrayChanges* of_arrays() const {
    return reinterpret_cast<cuda::ArrayChanges*>(total() + 1);
  }

  Status find(FoundChanges* own);
  Status collect(std::vector<PairArray> arrays, unsigned width);
  Status reserve(uint64_t needed, uint64_t wave_bytes);
  Result<uint8_t*> take(uint64_t num_bytes);
  Result<std::vector<uint8_t*>> take_all(std::span<const uint64_t> sizes);
  void note_listed(const void* data, uint64_t num_bytes) {
    listed.emplace_back(uintptr_t(data), uintptr_t(data) + num_bytes);
  }
};

// Allocates room on the device for the lists of a wave and of some later ones, because allocating
// takes longer than filling. Takes at most the size of the existing lists in advance, in case this
// wave is denser than others: the exchange keeps the memory.
Status DeviceStage::Impl::reserve(uint64_t needed, uint64_t wave_bytes) {
  if (needed <= device_block.size()) return {};
  const double share = double(bytes_left) / double(std::max<uint64_t>(wave_bytes, 1));
  const uint64_t ahead =
      std::min(uint64_t(double(needed) * share * 1.05), std::max(kListBlock, lists.device_bytes));
  const uint64_t left = most_list_bytes - std::min(most_list_bytes, lists.device_bytes);
  const uint64_t size = std::min(needed + ahead, left);
  if (size <= device_block.size()) return {};
  DW_ASSIGN_OR_RETURN(device_block, lists.allocate(cuda::Place::kDevice, size));
  return {};
}

Result<uint8_t*> DeviceStage::Impl::take(uint64_t num_bytes) {
  std::span<uint8_t>* block = &device_block;
  if (num_bytes > device_block.size()) {
    block = &pinned_block;
    if (num_bytes > pinned_block.size()) {
      const uint64_t size = std::max(num_bytes, kListBlock);
      DW_ASSIGN_OR_RETURN(pinned_block, lists.allocate(cuda::Place::kPinned, size));
    }
  }
  uint8_t* const taken = block->data();
  *block = block->subspan(num_bytes);
  return taken;
}

Result<std::vector<uint8_t*>> DeviceStage::Impl::take_all(std::span<const uint64_t> sizes) {
  uint64_t needed = 0;
  for (const uint64_t size : sizes) needed += aligned_list(size);
  // The next version, perhaps a little larger, is to find room in the same block.
  if (needed <= most_list_bytes / 2) needed += needed / 8;
  DW_RETURN_IF_ERROR(reserve(needed, UINT64_MAX));
  std::vector<uint8_t*> out;
  for (const uint64_t size : sizes) {
    DW_ASSIGN_OR_RETURN(out.emplace_back(), take(aligned_list(size)));
  }
  return out;
}

// Afterwards `counts` has the number of changes of all arrays and of each.
Status DeviceStage::Impl::find(FoundChanges* own) {
  const size_t count_bytes = sizeof(uint64_t) + own->arrays.size() * sizeof(cuda::ArrayChanges);
  if (counts.size() < count_bytes) {
    DW_ASSIGN_OR_RETURN(counts, cuda::Buffer::allocate(cuda::Place::kPinned, 2 * count_bytes));
  }
  const double elements = double(own->num_elements);
  uint64_t& capacity = own->changes.capacity;
  capacity = std::min(own->num_elements, kLeastCapacity + uint64_t(elements * density));
  for (;;) {
    const size_t size = own->lay_out(cuda::Carve(nullptr));
    if (found.size() < size) {
      found = cuda::Buffer();  // freed first, because both may not fit
      DW_ASSIGN_OR_RETURN(found, cuda::Buffer::allocate(cuda::Place::kDevice, size + size / 4));
    }
    DW_RETURN_IF_ERROR(own->start(found.data(), total(), of_arrays(), stream.get()));
    DW_RETURN_IF_ERROR(cuda::wait(stream.get()));
    if (*total() <= capacity) return {};
    capacity = *total();  // happens once: nobody writes to the arrays
    density = std::max(density, 1.25 * double(capacity) / elements);
  }
}

Status DeviceStage::Impl::collect(std::vector<PairArray> arrays, unsigned width) {
  FoundChanges own(std::move(arrays), width);
  DW_RETURN_IF_ERROR(find(&own));
  const size_t num_arrays = own.arrays.size();
  uint64_t needed = 0;
  for (size_t i = 0; i < num_arrays; ++i) needed += list_room(of_arrays()[i].count, width);
  DW_RETURN_IF_ERROR(reserve(needed, own.num_elements * width));
  std::vector<cuda::OffsetPlace> to(num_arrays);
  for (size_t i = 0; i < num_arrays; ++i) {
    const uint64_t count = of_arrays()[i].count;
    if (count == 0) continue;
    DW_ASSIGN_OR_RETURN(uint8_t* const at, take(list_room(count, width)));
    to[i] = {reinterpret_cast<uint32_t*>(at), at + aligned_list(count * sizeof(uint32_t))};
    void* const live = const_cast<void*>(own.arrays[i].old_data);
    note_listed(live, own.arrays[i].num_elements * width);
    lists.swaps.push_back({live, to[i].offsets, to[i].values, count, width, 0});
  }
  num_changed += *total();
  DW_RETURN_IF_ERROR(
      cuda::copy(own.places, to.data(), num_arrays * sizeof(cuda::OffsetPlace), stream.get()));
  return write_offsets(*own.batch, own.changes, own.tiles, own.places, stream.get());
}

Result<DeviceStage> DeviceStage::create(std::span<const void* const> arrays, uint64_t scratch_bytes,
                                        unsigned threads) {
  constexpr uint64_t kLeastScratch = uint64_t{8} << 20;
  DW_RETURN_IF_ERROR(cuda::check_device());
  DW_ASSIGN_OR_RETURN(const int device, device_of_all(arrays));
  const cuda::UseDevice use(device);
  cuda::ContextOptions context_options;
  context_options.scratch_bytes = std::max(scratch_bytes, kLeastScratch);
  context_options.threads = threads;
  context_options.beside = arrays[0];
  context_options.kept_bytes = 0;
  DW_ASSIGN_OR_RETURN(cuda::Context context, cuda::Context::create(context_options));
  DW_ASSIGN_OR_RETURN(cuda::OwnedStream stream, cuda::OwnedStream::create());
  return DeviceStage(std::make_unique<Impl>(device, std::move(context), std::move(stream)));
}

Status DeviceStage::begin(std::span<const void* const> arrays, const DeviceStageOptions& options) {
  DW_ASSIGN_OR_RETURN(const int device, device_of_all(arrays));
  if (device != impl_->device) return unsupported("arrays on another GPU than before");
  const cuda::UseDevice use(device);
  DW_RETURN_IF_ERROR(cuda::wait(impl_->stream.get()));  // after a failed staging
  impl_->lists = {};
  impl_->lists.spare = impl_->spare;
  impl_->listed.clear();
  impl_->device_block = impl_->pinned_block = {};
  impl_->num_changed = 0;
  impl_->bytes_left = options.total_bytes;
  if (impl_->copies.size() < options.copy_bytes) {
    impl_->copies = cuda::Buffer();  // freed first, because both may not fit
    DW_ASSIGN_OR_RETURN(impl_->copies,
                        cuda::Buffer::allocate(cuda::Place::kDevice, options.copy_bytes));
  }
  DW_ASSIGN_OR_RETURN(const uint64_t free, cuda::free_memory());
  impl_->most_list_bytes =
      options.most_list_bytes.value_or((free + impl_->spare->block.size()) / 2);
  return {};
}

DeviceStage::DeviceStage(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
// Running work uses memory that is about to be freed.
DeviceStage::~DeviceStage() {
  if (impl_) (void)cuda::wait(impl_->stream.get());
}
DeviceStage::DeviceStage(DeviceStage&&) noexcept = default;
DeviceStage& DeviceStage::operator=(DeviceStage&&) noexcept = default;

uint8_t* DeviceStage::copies() const noexcept { return impl_->copies.data(); }

Status DeviceStage::copy(std::span<const CopiedRows> rows) {
  const cuda::UseDevice use(impl_->device);
  for (const CopiedRows& own : rows) {
    const size_t row_bytes = own.columns * own.width;
    DW_RETURN_IF_ERROR(cuda::copy_rows(own.copy, row_bytes, own.live, own.stride * own.width,
                                       row_bytes, own.rows, impl_->stream.get()));
  }
  return {};
}

Status DeviceStage::apply(std::span<const cuda::Patch> patches) {
  return apply_patches(cuda::ContextInternals::of(impl_->context), patches,
                       cuda::ApplyMode::kAnyway, impl_->stream.get());
}

Status DeviceStage::list(std::span<const cuda::Patch> patches, std::span<const CopiedRows> rows) {
  const cuda::UseDevice use(impl_->device);
  for (const CopiedRows& own : rows) {
    for_each_run(own, [&](uint64_t row, uint64_t length) {
      impl_->note_listed(own.live + row * own.stride * own.width, length * own.width);
    });
  }
  cuda::ChangeLists found;
  found.take = [&](std::span<const uint64_t> sizes) { return impl_->take_all(sizes); };
  DW_RETURN_IF_ERROR(list_changes(cuda::ContextInternals::of(impl_->context), patches, &found,
                                  impl_->stream.get()));
  for (const cuda::SwapList& list : found.lists) impl_->num_changed += list.count;
  auto& swaps = impl_->lists.swaps;
  swaps.insert(swaps.end(), found.lists.begin(), found.lists.end());
  return {};
}

Status DeviceStage::collect(std::span<const CopiedRows> rows) {
  const cuda::UseDevice use(impl_->device);
  std::map<unsigned, std::vector<PairArray>> by_width;
  for (const CopiedRows& own : rows) {
    append_arrays(own, &by_width[own.width]);
    impl_->bytes_left -= std::min(impl_->bytes_left, own.size_bytes());
  }
  for (auto& [width, arrays] : by_width) {
    DW_RETURN_IF_ERROR(impl_->collect(std::move(arrays), width));
  }
  return {};
}

Status DeviceStage::fetch(std::span<const CopiedRows> rows) {
  const std::lock_guard lock(impl_->fetching);
  DW_RETURN_IF_ERROR(copy(rows));
  return cuda::wait(impl_->stream.get());
}

uint64_t DeviceStage::num_changed() const noexcept { return impl_->num_changed; }

Result<DeviceExchange> DeviceStage::finish(std::span<const ExchangeList* const> lists) {
  const cuda::UseDevice use(impl_->device);
  auto& listed = impl_->listed;
  std::sort(listed.begin(), listed.end());
  for (size_t i = 1; i < listed.size(); ++i) {
    if (listed[i].first < listed[i - 1].second) {
      return invalid_argument("two held boxes share memory of a GPU");
    }
  }
  DeviceLists& own = impl_->lists;
  const cuda::Stream stream = impl_->stream.get();
  DW_RETURN_IF_ERROR(own.copy(lists, impl_->most_list_bytes, stream));
  return DeviceExchange::of(impl_->device, std::move(own), stream);
}

}  // namespace deltawire
