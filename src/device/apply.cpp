// Payloads onto arrays. All checks come before the first write: `raw` has its size, codecs without
// kernels are decoded into host memory, the device checks the rest before it writes it.
#include "base/guard.h"
#include "codec/checks.h"
#include "codec/codec.h"
#include "device/arrays.h"
#include "device/context.h"
#include "format/layout.h"

namespace deltawire::cuda {
namespace {

// What is copied to an array once everything is known to be good.
struct Replacement {
  void* to = nullptr;
  Bytes bytes;
  std::vector<uint8_t> own;  // where the bytes are, unless they are the payload's
};

class Applier {
 public:
  Applier(Context::Impl& impl, Stream stream) : impl_(impl), stream_(stream) {}

  Status add(const Patch& patch) {
    // On the device a patch without a payload is passed over, but keeps its number.
    on_device_.emplace_back();
    const Codec* const codec = find_codec(patch.codec);
    if (codec == nullptr) return unsupported("no codec \"" + patch.codec + "\"");
    const DeviceArray& array = patch.array;
    DW_RETURN_IF_ERROR(check_memory(array.dtype, array.data, array.size_bytes));
    const Layout layout = layout_of(array.dtype);
    switch (codec->id()) {
      case CodecId::kIndices:
      case CodecId::kGaps:
      case CodecId::kTight:
      case CodecId::kExponents:
        on_device_.back() = {layout, array.data, array.size_bytes / layout.width, codec->id(),
                             patch.payload};
        return {};
      case CodecId::kRaw:
        if (patch.payload.size() != array.size_bytes) {
          return bad_payload("payload size", array.size_bytes, patch.payload.size());
        }
        replacements_.push_back({array.data, patch.payload, {}});
        return {};
      default:
        return decode_on_host(*codec, layout, patch);
    }
  }

  Status run(ApplyMode mode, PatchedDigests* digests) {
    DeviceOptions options = impl_.codec_options();
    options.all_or_nothing = mode == ApplyMode::kAllOrNothing;
    options.apply_follows = mode == ApplyMode::kCheck;
    options.as_checked = mode == ApplyMode::kChecked;
    options.patched_digests = digests;
    options.keep_bytes = impl_.options.kept_bytes;
    if (mode == ApplyMode::kCheck) return cuda::check(on_device_, options, stream_);
    DW_RETURN_IF_ERROR(cuda::apply(on_device_, options, stream_));
    for (const Replacement& one : replacements_) {
      DW_RETURN_IF_ERROR(copy(one.to, one.bytes.data(), one.bytes.size(), stream_));
    }
    return wait(stream_);
  }

 private:
  Status decode_on_host(const Codec& codec, Layout layout, const Patch& patch) {
    return guard_memory("patching", [&]() -> Status {
      std::vector<uint8_t> bytes(patch.array.size_bytes);
      DW_RETURN_IF_ERROR(copy(bytes.data(), patch.array.data, bytes.size(), stream_));
      DW_RETURN_IF_ERROR(wait(stream_));
      DW_RETURN_IF_ERROR(codec.apply(layout, patch.payload, bytes, &impl_.pool));
      Replacement made{patch.array.data, {}, std::move(bytes)};
      made.bytes = made.own;
      replacements_.push_back(std::move(made));
      return {};
    });
  }

  Context::Impl& impl_;
  const Stream stream_;
  std::vector<DevicePatch> on_device_;
  std::vector<Replacement> replacements_;
};

}  // namespace

Status apply_patches(Context::Impl& impl, std::span<const Patch> patches, ApplyMode mode,
                     Stream stream, PatchedDigests* digests) {
  const UseDevice use(impl.device);
  Applier applier(impl, stream);
  for (size_t i = 0; i < patches.size(); ++i) {
    DW_RETURN_IF_ERROR(applier.add(patches[i]).at("patch " + std::to_string(i)));
  }
  if (digests != nullptr) digests->assign(patches.size(), {});
  return applier.run(mode, digests);
}

Status Context::apply(std::span<const Patch> patches, Stream stream) {
  return apply_patches(*impl_, patches, ApplyMode::kAllOrNothing, stream);
}

Status Context::apply_checked(std::span<const Patch> patches, Stream stream,
                              std::vector<std::optional<Digest>>* digests) {
  return apply_patches(*impl_, patches, ApplyMode::kChecked, stream, digests);
}

uint64_t Context::kept_bytes() const noexcept { return impl_->workspace.kept_bytes(); }

Status Context::check(std::span<const Patch> patches, Stream stream) {
  return apply_patches(*impl_, patches, ApplyMode::kCheck, stream);
}

}  // namespace deltawire::cuda
