#include <optional>

#include "base/guard.h"
#include "device/context.h"
#include "device/slot_memory.h"
#include "format/layout.h"
#include "kernels/cuda/convert.h"

namespace deltawire::cuda {
namespace {

constexpr uint64_t kAllThreadsBytes = uint64_t{4} << 20;  // worth all threads

uint8_t* bytes_of(const DeviceArray& array) { return static_cast<uint8_t*>(array.data); }

}  // namespace

struct DeviceSnapshot::Impl {
  Impl(Context* given, Placement where)
      : context(ContextInternals::of(*given)),
        placement(where),
        memory(where == Placement::kDevice ? Place::kDevice : Place::kPinned) {}

  Result<Slot> hold(DType dtype, uint64_t size_bytes, Matrices matrices) {
    DW_ASSIGN_OR_RETURN(uint8_t* const data, memory.take(size_bytes));
    if (vacant.empty()) {
      vacant.push_back(Slot(slots.size()));
      slots.emplace_back();
    }
    const Slot slot = vacant.back();
    vacant.pop_back();
    slots[slot] = DeviceArray{dtype, data, size_bytes, matrices};
    return slot;
  }

  void drop(Slot slot) noexcept {
    if (!holds(slot)) return;
    memory.give_back(bytes_of(*slots[slot]), slots[slot]->size_bytes);
    slots[slot].reset();
    vacant.push_back(slot);
  }

  bool holds(Slot slot) const noexcept { return slot < slots.size() && slots[slot].has_value(); }
  Status check(Slot slot) const {
    if (holds(slot)) return {};
    return invalid_argument("slot " + std::to_string(slot) + " holds nothing");
  }

  // With the CPU's codecs: few elements change, and the bytes are here.
  Status advance_pinned(std::span<const Step> steps) {
    std::vector<size_t> small;
    for (size_t i = 0; i < steps.size(); ++i) {
      if (slots[steps[i].slot]->size_bytes < kAllThreadsBytes) {
        small.push_back(i);
      } else {
        DW_RETURN_IF_ERROR(advance_one(steps[i], &context.pool).at("step " + std::to_string(i)));
      }
    }
    return parallel_try("patching", &context.pool, small.size(), [&](size_t k, unsigned) {
      return advance_one(steps[small[k]], nullptr).at("step " + std::to_string(small[k]));
    });
  }

  Status advance_one(const Step& step, ThreadPool* threads) {
    const DeviceArray& array = *slots[step.slot];
    const Codec* const codec = find_codec(step.codec);
    if (codec == nullptr) return unsupported("no codec \"" + step.codec + "\"");
    return codec->apply(array_layout(array), step.payload, {bytes_of(array), array.size_bytes},
                        threads);
  }

  Status advance_on_device(std::span<const Step> steps, Stream stream) {
    std::vector<Patch> patches;
    for (const Step& step : steps) {
      const DeviceArray& array = *slots[step.slot];
      patches.push_back({array, step.codec, step.payload});
    }
    return apply_patches(context, patches, ApplyMode::kAnyway, stream);
  }

  Context::Impl& context;
  const Placement placement;
  SlotMemory memory;
  std::vector<std::optional<DeviceArray>> slots;
  std::vector<Slot> vacant;
};

DeviceSnapshot::DeviceSnapshot(Context* context, Placement placement)
    : impl_(std::make_unique<Impl>(context, placement)) {}
DeviceSnapshot::~DeviceSnapshot() = default;
DeviceSnapshot::DeviceSnapshot(DeviceSnapshot&&) noexcept = default;
DeviceSnapshot& DeviceSnapshot::operator=(DeviceSnapshot&&) noexcept = default;

Result<DeviceSnapshot::Slot> DeviceSnapshot::add(const Contents& contents, Stream stream) {
  const UseDevice use(impl_->context.device);
  DW_ASSIGN_OR_RETURN(const NewKind kind, kind_of(contents.array.dtype, contents.as));
  DW_RETURN_IF_ERROR(check_memory(contents.as, contents.array.data, contents.size_bytes));
  DW_ASSIGN_OR_RETURN(const Slot slot,
                      impl_->hold(contents.as, contents.size_bytes, contents.matrices));
  uint8_t* const to = bytes_of(*impl_->slots[slot]);
  const auto fill = [&]() -> Status {
    if (kind == NewKind::kSame) {
      DW_RETURN_IF_ERROR(copy(to, contents.array.data, contents.size_bytes, stream));
    } else if (impl_->placement == Placement::kDevice) {
      DW_RETURN_IF_ERROR(convert(contents.array.data, kind, 0,
                                 contents.size_bytes / converted_width(kind), to, stream));
    } else {
      return fetch_bytes(impl_->context.lane(), contents, 0, {to, contents.size_bytes}, stream);
    }
    return wait(stream);
  };
  if (Status filled = fill(); !filled.ok()) {
    impl_->drop(slot);
    return filled;
  }
  return slot;
}

Result<DeviceSnapshot::Slot> DeviceSnapshot::add(std::span<const uint8_t> contents, DType dtype,
                                                 Matrices matrices) {
  const UseDevice use(impl_->context.device);
  DW_RETURN_IF_ERROR(check_memory(dtype, contents.data(), contents.size()));
  DW_ASSIGN_OR_RETURN(const Slot slot, impl_->hold(dtype, contents.size(), matrices));
  if (Status sent = send_bytes(impl_->context, contents, impl_->slots[slot]->data, nullptr);
      !sent.ok()) {
    impl_->drop(slot);
    return sent;
  }
  return slot;
}

void DeviceSnapshot::remove(Slot slot) noexcept { impl_->drop(slot); }

Result<std::vector<Coded>> DeviceSnapshot::encode(std::string_view codec,
                                                  std::span<const Change> changes, Stream stream,
                                                  NewDigests digests) {
  const UseDevice use(impl_->context.device);
  std::vector<DevicePair> pairs;
  for (size_t i = 0; i < changes.size(); ++i) {
    const std::string place = "change " + std::to_string(i);
    DW_RETURN_IF_ERROR(impl_->check(changes[i].slot).at(place));
    const DeviceArray& array = *impl_->slots[changes[i].slot];
    if (changes[i].marked != nullptr) {
      pairs.push_back({array_layout(array), array.data, changes[i].marked, array.size_bytes,
                       NewKind::kMarkedFp8});
      continue;
    }
    Result<DevicePair> pair = device_pair({array, changes[i].after});
    if (!pair.ok()) return std::move(pair).status().at(place);
    pairs.push_back(*pair);
  }
  if (impl_->placement == Placement::kPinned) {
    return encode_pinned(impl_->context, {codec, digests}, pairs, stream);
  }
  return encode_pairs(impl_->context.lane(), {codec, digests}, pairs, stream);
}

Status DeviceSnapshot::advance(std::span<const Step> steps, Stream stream) {
  for (size_t i = 0; i < steps.size(); ++i) {
    DW_RETURN_IF_ERROR(impl_->check(steps[i].slot).at("step " + std::to_string(i)));
  }
  return impl_->placement == Placement::kDevice ? impl_->advance_on_device(steps, stream)
                                                : impl_->advance_pinned(steps);
}

Result<std::vector<Digest>> DeviceSnapshot::replace(std::span<const Change> changes,
                                                    Stream stream) {
  if (impl_->placement != Placement::kDevice) return unsupported("a snapshot in host memory");
  std::vector<Contents> arrays;
  std::vector<uint8_t*> slots;
  for (size_t i = 0; i < changes.size(); ++i) {
    DW_RETURN_IF_ERROR(impl_->check(changes[i].slot).at("change " + std::to_string(i)));
    const DeviceArray& array = *impl_->slots[changes[i].slot];
    arrays.push_back({changes[i].after, array.dtype, array.size_bytes});
    slots.push_back(bytes_of(array));
  }
  return digests_of(impl_->context, arrays, stream, slots);
}

Result<std::vector<Digest>> DeviceSnapshot::digests(std::span<const Slot> slots,
                                                    Stream stream) const {
  std::vector<Contents> arrays;
  for (const Slot slot : slots) {
    DW_RETURN_IF_ERROR(impl_->check(slot));
    const DeviceArray& array = *impl_->slots[slot];
    arrays.push_back({{array.dtype, array.data}, array.dtype, array.size_bytes});
  }
  if (impl_->placement == Placement::kDevice) return digests_of(impl_->context, arrays, stream);
  std::vector<Digest> out(slots.size());
  parallel_for(&impl_->context.pool, slots.size(), [&](size_t i, unsigned) {
    const DeviceArray& array = *impl_->slots[slots[i]];
    out[i] = digest_of(DigestKind::kSum128, {bytes_of(array), array.size_bytes});
  });
  return out;
}

Status DeviceSnapshot::read(Slot slot, uint64_t offset, std::span<uint8_t> out,
                            Stream stream) const {
  const UseDevice use(impl_->context.device);
  DW_RETURN_IF_ERROR(impl_->check(slot));
  const DeviceArray& array = *impl_->slots[slot];
  return fetch_bytes(impl_->context.lane(),
                     {{array.dtype, array.data}, array.dtype, array.size_bytes}, offset, out,
                     stream);
}

uint8_t* DeviceSnapshot::data(Slot slot) const noexcept {
  const bool there = impl_->placement == Placement::kDevice && impl_->holds(slot);
  return there ? bytes_of(*impl_->slots[slot]) : nullptr;
}

uint64_t DeviceSnapshot::device_bytes() const noexcept {
  return impl_->placement == Placement::kDevice ? impl_->memory.num_bytes() : 0;
}

uint64_t DeviceSnapshot::host_bytes() const noexcept {
  return impl_->placement == Placement::kPinned ? impl_->memory.num_bytes() : 0;
}

}  // namespace deltawire::cuda
