// Applies payloads to arrays. All checks come before the first write: `raw` must have the right
// size, the host decodes `adaptive`, and the device checks the rest.
#include "base/guard.h"
#include "codec/checks.h"
#include "codec/codec.h"
#include "device/context.h"
#include "format/layout.h"

namespace deltawire::cuda {
namespace {

// A copy to an array, made after all checks.
struct Replacement {
  void* to = nullptr;
  Bytes bytes;
};

std::vector<DeviceRegion> device_regions(const Patch& patch, unsigned width) {
  std::vector<DeviceRegion> out;
  for (const Region& region : patch.regions) {
    out.push_back({region.row, region.column, region.rows, region.columns, region.data,
                   uint64_t(region.stride) / width});
  }
  return out;
}

class Applier {
 public:
  Applier(Context::Impl& impl, Stream stream) : impl_(impl), stream_(stream) {}

  // The patch must outlive this.
  Status add(const Patch& patch) {
    // The device skips patches without a payload, but they keep their numbers.
    const size_t number = on_device_.size();
    on_device_.emplace_back();
    const Codec* const codec = find_codec(patch.codec);
    if (codec == nullptr) return unsupported("no codec \"" + patch.codec + "\"");
    const DeviceArray& array = patch.array;
    const Layout layout = array_layout(array);
    if (!patch.regions.empty()) {
      if (codec->id() != CodecId::kTight) return invalid_argument("regions are for tight alone");
      on_device_.back() = {layout,      nullptr,       array.size_bytes / layout.width,
                           codec->id(), patch.payload, device_regions(patch, layout.width)};
      return {};
    }
    DW_RETURN_IF_ERROR(check_memory(array.dtype, array.data, array.size_bytes));
    switch (codec->id()) {
      case CodecId::kGaps:
      case CodecId::kTight:
      case CodecId::kExponents:
        on_device_.back() = {layout,      array.data,    array.size_bytes / layout.width,
                             codec->id(), patch.payload, {}};
        return {};
      case CodecId::kRaw:
        if (patch.payload.size() != array.size_bytes) {
          return bad_payload("payload size", array.size_bytes, patch.payload.size());
        }
        replacements_.push_back({array.data, patch.payload});
        return {};
      default:  // adaptive; an empty payload changes nothing
        if (!patch.payload.empty()) on_host_.push_back({codec, &patch, number});
        return {};
    }
  }

  Status add_all(std::span<const Patch> patches) {
    for (size_t i = 0; i < patches.size(); ++i) {
      DW_RETURN_IF_ERROR(add(patches[i]).at("patch " + std::to_string(i)));
    }
    return {};
  }

  // Decodes what the host has to. In a check nothing else is needed; the results are kept for the
  // apply.
  Status decode(ApplyMode mode) {
    return guard_memory("patching", [&]() -> Status {
      std::vector<HostPatch> rest;
      for (const HostPatch& one : on_host_) {
        std::optional<DecodedPatch> known;
        if (mode == ApplyMode::kChecked) known = impl_.checked.take(*one.patch);
        if (known) {
          use(one, std::move(*known));
        } else {
          rest.push_back(one);
        }
      }
      // The rest belongs to other patches, or to arrays that are about to change.
      impl_.checked.clear();
      HostDecoder decoder(&impl_.workspace, &impl_.pool, stream_);
      for (size_t begin = 0; begin < rest.size();) {
        DW_ASSIGN_OR_RETURN(std::vector<DecodedPatch> some,
                            decoder.decode_some(std::span(rest).subspan(begin)));
        for (DecodedPatch& decoded : some) {
          const HostPatch& one = rest[begin++];
          if (mode == ApplyMode::kCheck) {
            impl_.checked.keep(*one.patch, std::move(decoded));
          } else {
            use(one, std::move(decoded));
          }
        }
      }
      return {};
    });
  }

  Status list(ChangeLists* lists) {
    DeviceOptions options = impl_.codec_options();
    options.all_or_nothing = false;
    options.lists = lists;
    return cuda::apply(on_device_, options, stream_);
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
  void use(const HostPatch& one, DecodedPatch decoded) {
    const DeviceArray& array = one.patch->array;
    if (decoded.bytes.empty()) return;
    decoded_.push_back(std::move(decoded.bytes));
    if (decoded.whole) {
      replacements_.push_back({array.data, decoded_.back()});
    } else {
      const Layout layout = array_layout(array);
      on_device_[one.number] = {layout, array.data, array.size_bytes / layout.width, CodecId::kGaps,
                                decoded_.back()};
    }
  }

  Context::Impl& impl_;
  const Stream stream_;
  std::vector<DevicePatch> on_device_;
  std::vector<HostPatch> on_host_;
  std::vector<std::vector<uint8_t>> decoded_;  // owns decoded bytes
  std::vector<Replacement> replacements_;
};

}  // namespace

Status apply_patches(Context::Impl& impl, std::span<const Patch> patches, ApplyMode mode,
                     Stream stream, PatchedDigests* digests) {
  const UseDevice use(impl.device);
  const auto apply = [&]() -> Status {
    Applier applier(impl, stream);
    DW_RETURN_IF_ERROR(applier.add_all(patches));
    if (digests != nullptr) digests->assign(patches.size(), {});
    DW_RETURN_IF_ERROR(applier.decode(mode));
    return applier.run(mode, digests);
  };
  Status status = apply();
  if (!status.ok()) impl.checked.clear();  // the check has failed
  return status;
}

Status list_changes(Context::Impl& impl, std::span<const Patch> patches, ChangeLists* lists,
                    Stream stream) {
  const UseDevice use(impl.device);
  Applier applier(impl, stream);
  DW_RETURN_IF_ERROR(applier.add_all(patches));
  return applier.list(lists);
}

Status Context::apply(std::span<const Patch> patches, Stream stream) {
  return apply_patches(*impl_, patches, ApplyMode::kAllOrNothing, stream);
}

Status Context::apply_checked(std::span<const Patch> patches, Stream stream,
                              std::vector<std::optional<Digest>>* digests) {
  return apply_patches(*impl_, patches, ApplyMode::kChecked, stream, digests);
}

void Context::forget_checked() noexcept { impl_->checked.clear(); }

uint64_t Context::kept_bytes() const noexcept { return impl_->workspace.kept_bytes(); }

Status Context::check(std::span<const Patch> patches, Stream stream) {
  return apply_patches(*impl_, patches, ApplyMode::kCheck, stream);
}

}  // namespace deltawire::cuda
