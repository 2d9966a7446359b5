#include "device/whole.h"

#include "codec/cuda/exponents_encode.h"
#include "device/context.h"
#include "format/layout.h"

namespace deltawire::cuda {

Status DeviceBuffer::reserve(const Context& context, uint64_t num_bytes, bool pinned) {
  if (num_bytes <= size()) return {};
  memory_ = nullptr;  // first, so that both need not fit
  size_ = 0;
  const UseDevice use(ContextInternals::of(context).device);
  const Place place = pinned ? Place::kPinned : Place::kDevice;
  DW_ASSIGN_OR_RETURN(Buffer taken, Buffer::allocate(place, size_t(num_bytes)));
  const auto owner = std::make_shared<Buffer>(std::move(taken));
  memory_ = std::shared_ptr<uint8_t>(owner, owner->data());
  size_ = num_bytes;
  return {};
}

Status copy_there(void* to, const void* from, uint64_t num_bytes, Stream stream) {
  const UseDevice use(device_of(to).value_or(0));
  DW_RETURN_IF_ERROR(copy(to, from, size_t(num_bytes), stream));
  return wait(stream);
}

namespace {

Result<DeviceWhole> device_whole(const Contents& contents) {
  DW_ASSIGN_OR_RETURN(const NewKind kind, kind_of(contents.array.dtype, contents.as));
  DW_RETURN_IF_ERROR(check_memory(contents.as, contents.array.data, contents.size_bytes));
  const Layout layout = deltawire::layout_of(contents.as);
  return DeviceWhole{layout, contents.array.data, contents.size_bytes / layout.width, kind};
}

}  // namespace

Result<std::vector<exponents::BlockPlan>> plan_whole_array(const Context& context,
                                                           const Contents& contents,
                                                           Stream stream) {
  Context::Impl& impl = ContextInternals::of(context);
  const UseDevice use(impl.device);
  DW_ASSIGN_OR_RETURN(const DeviceWhole array, device_whole(contents));
  DW_ASSIGN_OR_RETURN(std::vector<BlockPlans> plans,
                      plan_whole({&array, 1}, impl.codec_options(), stream));
  return std::move(plans[0]);
}

Status code_whole_array(const Context& context, const Contents& contents, size_t first,
                        std::span<const exponents::BlockPlan> plans, MutableBytes out,
                        Stream stream) {
  Context::Impl& impl = ContextInternals::of(context);
  const UseDevice use(impl.device);
  DW_ASSIGN_OR_RETURN(const DeviceWhole array, device_whole(contents));
  return code_blocks(array, first, plans, out, impl.codec_options(), stream);
}

}  // namespace deltawire::cuda
