#include "diff/device.h"

#include <algorithm>
#include <iterator>

#include "base/guard.h"
#include "device/whole.h"
#include "diff/computed_tensors.h"
#include "format/layout.h"
#include "tensor/text.h"

namespace deltawire {

namespace {

constexpr uint64_t kMostSpareBytes = uint64_t{512} << 20;  // kept from publish to publish

cuda::NewArray array_of(const PublishTensor& tensor) {
  return {tensor.source.value_or(tensor.view.dtype), tensor.view.bytes.data()};
}

cuda::Contents contents_of(const PublishTensor& tensor) {
  const Layout layout = layout_of(tensor.view.dtype, box_shape(tensor.box, tensor.view.shape));
  return {
      array_of(tensor), tensor.view.dtype, published_bytes(tensor), {layout.rows, layout.columns}};
}

// Whole tensors whose elements have a codec.
bool can_be_coded(const PublishTensor& tensor) {
  return on_device(tensor) && tensor.box.whole() && published_bytes(tensor) != 0 &&
         exponents::form_of(layout_of(tensor.view.dtype));
}

class DeviceBody final : public Body {
 public:
  DeviceBody(std::shared_ptr<PublishDevice> device, const PublishTensor& tensor)
      : device_(std::move(device)), tensor_(tensor), size_(published_bytes(tensor)) {}
  ~DeviceBody() override { device_->pieces().forget(this); }
  uint64_t size() const noexcept override { return size_; }
  Status read(uint64_t offset, MutableBytes out) const override {
    if (offset > size_ || out.size() > size_ - offset) {
      return invalid_argument("tensor " + quote(tensor_.view.name) + ": read past the end");
    }
    return device_->pieces().read(
        this, size_, offset, out, [&](uint64_t begin, MutableBytes piece) {
          return device_->fetch(tensor_, begin, piece).at("tensor " + quote(tensor_.view.name));
        });
  }

 private:
  const std::shared_ptr<PublishDevice> device_;
  const PublishTensor tensor_;
  const uint64_t size_;
};

class DeviceCoder final : public ArrayCoder {
 public:
  DeviceCoder(std::shared_ptr<PublishDevice> device, const PublishTensor& tensor)
      : device_(std::move(device)), tensor_(tensor) {}
  Result<std::vector<exponents::BlockPlan>> plan() const override { return device_->plan(tensor_); }
  Status code(size_t first, std::span<const exponents::BlockPlan> plans,
              MutableBytes out) const override {
    Status status = device_->code(tensor_, first, plans, out);
    return status.code() == Code::kIo ? changed_on_device(tensor_) : status;
  }

 private:
  const std::shared_ptr<PublishDevice> device_;
  const PublishTensor tensor_;
};

}  // namespace

Status changed_on_device(const PublishTensor& tensor) {
  return io_error("tensor " + quote(tensor.view.name) +
                  ": changed while it was read; nothing was committed, publish again when " +
                  "nobody writes to it");
}

PublishDevice::PublishDevice(cuda::Context context, const CudaOptions& options, bool pinned)
    : context_(std::move(context)),
      snapshot_(&context_, pinned ? cuda::DeviceSnapshot::Placement::kPinned
                                  : cuda::DeviceSnapshot::Placement::kDevice),
      computed_(context_, options.stream),
      stream_(options.stream),
      pinned_(pinned),
      wave_bytes_(options.wave_bytes) {}

Result<std::shared_ptr<PublishDevice>> PublishDevice::open(const Limits& limits,
                                                           const CudaOptions& options, bool pinned,
                                                           std::span<const PublishTensor> tensors) {
  const auto first = std::find_if(tensors.begin(), tensors.end(), [](const PublishTensor& tensor) {
    return on_device(tensor) && !tensor.view.bytes.empty();
  });
  const void* const memory = first == tensors.end() ? nullptr : first->view.bytes.data();
  DW_ASSIGN_OR_RETURN(cuda::Context context,
                      cuda::Context::create({options.scratch_bytes, limits.threads, memory,
                                             std::min(limits.memory_bytes / 4, kMostSpareBytes)}));
  return std::shared_ptr<PublishDevice>(new PublishDevice(std::move(context), options, pinned));
}

Result<std::shared_ptr<const PublishDevice::Held>> PublishDevice::hold(
    const PublishTensor& tensor) {
  const std::lock_guard lock(mutex_);
  return computed_.with_one(
      tensor, [&](const PublishTensor& own) -> Result<std::shared_ptr<const Held>> {
        DW_ASSIGN_OR_RETURN(const auto slot, snapshot_.add(contents_of(own), stream_));
        return std::make_shared<const Held>(shared_from_this(), slot, published_bytes(own));
      });
}

Result<std::shared_ptr<const PublishDevice::Held>> PublishDevice::hold(Bytes contents, DType dtype,
                                                                       const Layout& layout) {
  const std::lock_guard lock(mutex_);
  DW_ASSIGN_OR_RETURN(const auto slot,
                      snapshot_.add(contents, dtype, {layout.rows, layout.columns}));
  return std::make_shared<const Held>(shared_from_this(), slot, contents.size());
}

Result<std::vector<cuda::Coded>> PublishDevice::encode(const std::string& codec,
                                                       std::span<const Comparison> items) {
  std::vector<ComputedTensors::Wanted> wanted;
  std::vector<cuda::Coded> all;
  const std::lock_guard lock(mutex_);
  for (const Comparison& item : items) {
    wanted.push_back({item.after, snapshot_.data(item.before->slot_)});
  }
  DW_RETURN_IF_ERROR(computed_.for_windows(
      wanted, [&](size_t first, const std::vector<ComputedTensors::There>& there) -> Status {
        std::vector<cuda::DeviceSnapshot::Change> changes;
        for (size_t i = 0; i < there.size(); ++i) {
          changes.push_back(
              {items[first + i].before->slot_, array_of(there[i].tensor), there[i].marked});
        }
        DW_ASSIGN_OR_RETURN(std::vector<cuda::Coded> some,
                            snapshot_.encode(codec, changes, stream_, cuda::NewDigests::kSum128));
        std::move(some.begin(), some.end(), std::back_inserter(all));
        return {};
      }));
  return all;
}

Payload PublishDevice::own(std::vector<uint8_t> payload) const {
  const auto recycle = [recycle = context_.recycler()](std::vector<uint8_t>* used) {
    recycle(std::move(*used));
    delete used;
  };
  const std::shared_ptr<std::vector<uint8_t>> owner(new std::vector<uint8_t>(std::move(payload)),
                                                    recycle);
  return {*owner, owner};
}

Status PublishDevice::advance(std::span<const Step> steps) {
  std::vector<cuda::DeviceSnapshot::Step> all;
  for (const Step& step : steps) {
    all.push_back({step.held->slot_, std::string(find_codec(step.change->codec)->name()),
                   step.change->payload.bytes});
  }
  const std::lock_guard lock(mutex_);
  return snapshot_.advance(all, stream_);
}

// FP8 blocks are not computed as tensors: one pass over the weights gives digests and elements.
Result<std::vector<Digest>> PublishDevice::look_at(std::span<const PublishTensor* const> tensors,
                                                   std::span<uint8_t* const> elements,
                                                   const LookAtOthers& look) {
  std::vector<Digest> all(tensors.size());
  std::vector<cuda::Fp8Task> tasks;
  std::vector<size_t> at, others;
  std::vector<ComputedTensors::Wanted> wanted;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const cuda::Fp8Weights* const fp8 = fp8_of(tensors[i]->computed.get());
    if (fp8 == nullptr || !fp8->matrix.has_whole_words()) {
      others.push_back(i);
      wanted.push_back({tensors[i]});
      continue;
    }
    tasks.push_back({*fp8, nullptr, nullptr, elements.empty() ? nullptr : elements[i]});
    at.push_back(i);
  }
  DW_ASSIGN_OR_RETURN(const std::vector<cuda::Fp8Outcome> found,
                      cuda::quantise_fp8(tasks, cuda::Fp8Digests::kSum128, stream_));
  for (size_t k = 0; k < found.size(); ++k) {
    if (!found[k].bounded) return unbounded_weights(tensors[at[k]]->view.name);
    all[at[k]] = *found[k].digest;
  }
  DW_RETURN_IF_ERROR(computed_.for_windows(
      wanted, [&](size_t first, const std::vector<ComputedTensors::There>& there) -> Status {
        const std::span<const size_t> numbers = std::span(others).subspan(first, there.size());
        DW_ASSIGN_OR_RETURN(const std::vector<Digest> some, look(numbers, there));
        for (size_t k = 0; k < some.size(); ++k) all[numbers[k]] = some[k];
        return {};
      }));
  return all;
}

Result<std::vector<Digest>> PublishDevice::replace(std::span<const Comparison> items) {
  std::vector<const PublishTensor*> tensors;
  std::vector<uint8_t*> slots;
  if (pinned_) return unsupported("a snapshot in host memory");
  const std::lock_guard lock(mutex_);
  for (const Comparison& item : items) {
    tensors.push_back(item.after);
    slots.push_back(snapshot_.data(item.before->slot_));
  }
  return look_at(tensors, slots, [&](std::span<const size_t> numbers, const auto& there) {
    std::vector<cuda::DeviceSnapshot::Change> changes;
    for (size_t k = 0; k < numbers.size(); ++k) {
      changes.push_back({items[numbers[k]].before->slot_, array_of(there[k].tensor)});
    }
    return snapshot_.replace(changes, stream_);
  });
}

Result<std::vector<Digest>> PublishDevice::digests(std::span<const PublishTensor* const> tensors) {
  const std::lock_guard lock(mutex_);
  return look_at(tensors, {}, [&](std::span<const size_t>, const auto& there) {
    std::vector<cuda::Contents> contents;
    for (const ComputedTensors::There& one : there) contents.push_back(contents_of(one.tensor));
    return context_.digests(contents, stream_);
  });
}

Result<std::vector<Digest>> PublishDevice::digests(std::span<const Held* const> held) {
  std::vector<cuda::DeviceSnapshot::Slot> slots;
  for (const Held* one : held) slots.push_back(one->slot_);
  const std::lock_guard lock(mutex_);
  return snapshot_.digests(slots, stream_);
}

Result<std::vector<Sums>> PublishDevice::sums(std::span<const PublishTensor* const> tensors) {
  std::vector<Sums> all;
  std::vector<ComputedTensors::Wanted> wanted;
  for (const PublishTensor* tensor : tensors) wanted.push_back({tensor});
  const std::lock_guard lock(mutex_);
  DW_RETURN_IF_ERROR(computed_.for_windows(
      wanted, [&](size_t, const std::vector<ComputedTensors::There>& there) -> Status {
        std::vector<cuda::BoxContents> boxes;
        for (const ComputedTensors::There& one : there) {
          boxes.push_back({contents_of(one.tensor), one.tensor.view.shape, one.tensor.box});
        }
        DW_ASSIGN_OR_RETURN(std::vector<Sums> some, context_.sums(boxes, stream_));
        std::move(some.begin(), some.end(), std::back_inserter(all));
        return {};
      }));
  return all;
}

Status PublishDevice::fetch(const PublishTensor& tensor, uint64_t offset, MutableBytes out) {
  const std::lock_guard lock(mutex_);
  return computed_.with_one(tensor, [&](const PublishTensor& own) {
    return context_.fetch(contents_of(own), offset, out, stream_);
  });
}

std::shared_ptr<const Body> PublishDevice::body(const PublishTensor& tensor) {
  return std::make_shared<DeviceBody>(shared_from_this(), tensor);
}

Result<CodedThere> PublishDevice::code_there(std::span<const PublishTensor> tensors) {
  CodedThere there;
  std::vector<PublishTensor> chosen;
  for (const PublishTensor& tensor : tensors) {
    if (can_be_coded(tensor)) chosen.push_back(tensor);
  }
  if (chosen.empty()) return there;
  const auto look = [device = shared_from_this()](const std::vector<PublishTensor>& all) {
    std::vector<const PublishTensor*> at;
    for (const PublishTensor& tensor : all) at.push_back(&tensor);
    return device->digests(at);
  };
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> first, look(chosen));
  for (size_t i = 0; i < chosen.size(); ++i) {
    const std::string& name = chosen[i].view.name;
    there.coders[name] = std::make_shared<DeviceCoder>(shared_from_this(), chosen[i]);
    there.digests[name] = first[i];
  }
  there.check_unchanged = [look, chosen = std::move(chosen), first]() -> Status {
    DW_ASSIGN_OR_RETURN(const std::vector<Digest> last, look(chosen));
    for (size_t i = 0; i < last.size(); ++i) {
      if (last[i] != first[i]) return changed_on_device(chosen[i]);
    }
    return {};
  };
  return there;
}

Result<std::vector<exponents::BlockPlan>> PublishDevice::plan(const PublishTensor& tensor) {
  const std::lock_guard lock(mutex_);
  return computed_.with_one(tensor, [&](const PublishTensor& own) {
    return cuda::plan_whole_array(context_, contents_of(own), stream_);
  });
}

Status PublishDevice::code(const PublishTensor& tensor, size_t first,
                           std::span<const exponents::BlockPlan> plans, MutableBytes out) {
  cuda::DeviceBuffer landing;
  std::unique_lock lock(mutex_);
  landed_.wait(lock, [&] { return !landings_.empty(); });
  landing = std::move(landings_.back());
  landings_.pop_back();
  Status status = guard_memory("encoding", [&]() -> Status {
    DW_RETURN_IF_ERROR(landing.reserve(context_, out.size(), true));
    return computed_.with_one(tensor, [&](const PublishTensor& own) {
      return cuda::code_whole_array(context_, contents_of(own), first, plans,
                                    {landing.data(), out.size()}, stream_);
    });
  });
  lock.unlock();  // others use the device meanwhile
  if (status.ok()) std::copy_n(landing.data(), out.size(), out.data());
  lock.lock();
  landings_.push_back(std::move(landing));
  landed_.notify_one();
  return status;
}

Status PublishDevice::read(cuda::DeviceSnapshot::Slot slot, MutableBytes out) {
  const std::lock_guard lock(mutex_);
  return snapshot_.read(slot, 0, out, stream_);
}

void PublishDevice::release(cuda::DeviceSnapshot::Slot slot) noexcept {
  const std::lock_guard lock(mutex_);
  snapshot_.remove(slot);
}

}  // namespace deltawire
