#include "replica/tensor_set.h"

#include <algorithm>

#include "base/copy_parallel.h"
#include "base/waves.h"
#include "codec/codec.h"
#include "format/layout.h"
#include "format/tensor_digest.h"
#include "replica/stage.h"
#include "tensor/text.h"

namespace deltawire {

std::string place_of(const LiveTensor& tensor) {
  const std::string name = "tensor " + quote(tensor.name);
  return tensor.box.whole() ? name : name + ", box " + box_to_string(tensor.box);
}

Status check_digest(const std::string& place, const Digest& got, const Manifest& manifest,
                    size_t number) {
  if (got == manifest.digests[number]) return {};
  return base_mismatch(place + ": does not match version " + std::to_string(manifest.version) +
                       ": " + digest_difference(manifest.digests[number], got));
}

Status check_digest(const LiveTensor& tensor, const Digest& got, const Digest& expected) {
  if (got == expected) return {};
  return base_mismatch(place_of(tensor) +
                       ": does not match the tensor: " + digest_difference(expected, got));
}

void HostTensors::add(size_t number, LiveTensor tensor) {
  tensors_.emplace(number, Tensor{std::move(tensor)});
}

Status HostTensors::check(std::span<const size_t> which, const Manifest& manifest) {
  std::vector<uint64_t> sizes;
  for (const size_t number : which) sizes.push_back(tensors_.at(number).live.bytes.size());
  const auto check_one = [&](size_t i, ThreadPool*) -> Status {
    const LiveTensor& live = tensors_.at(which[i]).live;
    const Digest got =
        tensor_digest(live.dtype, live.shape, live.bytes, boxes_hashed(manifest, live.name));
    return check_digest(place_of(live), got, manifest, which[i]);
  };
  return Waves(std::move(sizes), Waves::Inside::kOneThread, pool_, {}).run(check_one);
}

Status HostTensors::stage_one(const TensorSteps& steps, const Target& target, ThreadPool* inner) {
  Tensor& tensor = tensors_.at(steps.index);
  const LiveTensor& live = tensor.live;
  const TensorView held{live, live.bytes};
  const std::string place = place_of(live);
  const StageJob job{steps, target, place, held, scratch_, memory_, ahead_};
  return stage_tensor(job, inner, [&](RedoEntry redo) -> Status {
    DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(redo.entry));
    DW_ASSIGN_OR_RETURN(const Bytes payload, spill_->keep(std::move(redo.payload)));
    tensor.staged.push_back(
        {range.offset, range.size, redo.entry.codec, payload, redo.entry.num_changed});
    return {};
  });
}

Status HostTensors::stage(std::span<const TensorSteps> steps, const Target& target,
                          const Progress& progress) {
  std::vector<uint64_t> sizes;
  for (const TensorSteps& one : steps) sizes.push_back(tensors_.at(one.index).live.bytes.size());
  return Waves(std::move(sizes), Waves::Inside::kShared, pool_, progress, memory_.wave_bytes)
      .run([&](size_t i, ThreadPool* inner) { return stage_one(steps[i], target, inner); });
}

Status HostTensors::stage_change(size_t number, const ArrayChange& change) {
  tensors_.at(number).staged.push_back(change);
  return {};
}

Status HostTensors::check_arrays(std::span<const ArrayDigest> expected) {
  std::vector<uint64_t> sizes;
  for (const ArrayDigest& one : expected)
    sizes.push_back(tensors_.at(one.number).live.bytes.size());
  const auto check_one = [&](size_t i, ThreadPool*) -> Status {
    const LiveTensor& live = tensors_.at(expected[i].number).live;
    return check_digest(live, digest_of(expected[i].digest.kind, live.bytes), expected[i].digest);
  };
  return Waves(std::move(sizes), Waves::Inside::kOneThread, pool_, {}).run(check_one);
}

Status HostTensors::read(size_t number, MutableBytes out) {
  const MutableBytes bytes = tensors_.at(number).live.bytes;
  std::copy(bytes.begin(), bytes.end(), out.begin());
  return {};
}

Status HostTensors::stage_whole(size_t number, Bytes contents) {
  Tensor& tensor = tensors_.at(number);
  if (contents.size() != tensor.live.bytes.size()) {
    return internal_error("contents have the wrong size");
  }
  tensor.whole = contents;
  return {};
}

uint64_t HostTensors::num_staged() const {
  uint64_t count = 0;
  for (const auto& [number, tensor] : tensors_) {
    count += tensor.whole.size() / layout_of(tensor.live.dtype).width;
    for (const ArrayChange& change : tensor.staged) count += change.num_changed;
  }
  return count;
}

Status HostTensors::write(const Tensor& tensor, ThreadPool* inner) {
  const MutableBytes bytes = tensor.live.bytes;
  copy_parallel(tensor.whole, bytes, inner);
  for (const ArrayChange& change : tensor.staged) {
    DW_RETURN_IF_ERROR(find_codec(change.codec)
                           ->apply(layout_of(tensor.live.dtype), change.payload,
                                   bytes.subspan(change.begin, change.size_bytes), inner));
  }
  return {};
}

Status HostTensors::commit() {
  std::vector<const Tensor*> staged;
  std::vector<uint64_t> sizes;
  for (const auto& [number, tensor] : tensors_) {
    if (tensor.staged.empty() && tensor.whole.empty()) continue;
    staged.push_back(&tensor);
    sizes.push_back(tensor.live.bytes.size());
  }
  return Waves(std::move(sizes), Waves::Inside::kShared, pool_, {})
      .run([&](size_t i, ThreadPool* inner) { return write(*staged[i], inner); });
}

void HostTensors::drop() noexcept {
  for (auto& [number, tensor] : tensors_) {
    tensor.staged = {};
    tensor.whole = {};
  }
}

}  // namespace deltawire
