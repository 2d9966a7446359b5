#include "diff/computed_tensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "diff/device.h"
#include "kernels/bf16.h"
#include "kernels/f16.h"
#include "store/bodies.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Elements as the bits of F32.
uint32_t f32_of(uint64_t f64) { return std::bit_cast<uint32_t>(float(std::bit_cast<double>(f64))); }
uint32_t same(uint32_t f32) { return f32; }
uint32_t f32_of_half(uint16_t f16) { return f32_of_f16(f16); }
uint32_t f32_of_bf16(uint16_t bf16) { return uint32_t{bf16} << 16; }

template <class From, uint32_t (*Widen)(From), class To, class Narrow>
void convert(const uint8_t* from, size_t count, uint8_t* to, const Narrow& narrow) {
  for (size_t i = 0; i < count; ++i) {
    From wide;
    std::memcpy(&wide, from + i * sizeof wide, sizeof wide);
    const To own = To(narrow(Widen(wide)));
    std::memcpy(to + i * sizeof own, &own, sizeof own);
  }
}

template <class From, uint32_t (*Widen)(From)>
void convert_to(DType dtype, const uint8_t* from, size_t count, uint8_t* to) {
  switch (dtype) {
    case DType::kBF16:
      return convert<From, Widen, uint16_t>(from, count, to,
                                            [](uint32_t f32) { return bf16_of_f32(f32); });
    case DType::kF16:
      return convert<From, Widen, uint16_t>(from, count, to,
                                            [](uint32_t f32) { return f16_of_f32(f32); });
    default:
      return convert<From, Widen, uint32_t>(from, count, to, [](uint32_t f32) { return f32; });
  }
}

void convert(DType source, DType dtype, const uint8_t* from, size_t count, uint8_t* to) {
  switch (source) {
    case DType::kF64:
      return convert_to<uint64_t, f32_of>(dtype, from, count, to);
    case DType::kF32:
      return convert_to<uint32_t, same>(dtype, from, count, to);
    case DType::kF16:
      return convert_to<uint16_t, f32_of_half>(dtype, from, count, to);
    default:
      return convert_to<uint16_t, f32_of_bf16>(dtype, from, count, to);
  }
}

class RoundingBody final : public Body {
 public:
  explicit RoundingBody(const PublishTensor& tensor)
      : tensor_(tensor), size_(published_bytes(tensor)) {}
  uint64_t size() const noexcept override { return size_; }
  Status read(uint64_t offset, MutableBytes out) const override {
    return read_published(tensor_, offset, out);
  }

 private:
  const PublishTensor tensor_;
  const uint64_t size_;
};

}  // namespace

bool can_round(DType from, DType to) {
  const auto is_one_of = [](DType dtype, std::initializer_list<DType> all) {
    return std::find(all.begin(), all.end(), dtype) != all.end();
  };
  return is_one_of(from, {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) &&
         is_one_of(to, {DType::kBF16, DType::kF16, DType::kF32});
}

bool is_computed(const PublishTensor& tensor) {
  return tensor.computed != nullptr ||
         (!on_device(tensor) && tensor.source && *tensor.source != tensor.view.dtype);
}

Status read_published(const PublishTensor& tensor, uint64_t offset, MutableBytes out) {
  if (out.empty()) return {};
  if (tensor.computed) return tensor.computed->read(offset, out);
  const uint8_t* const data = tensor.view.bytes.data();
  if (!is_computed(tensor)) {
    std::memcpy(out.data(), data + offset, out.size());
    return {};
  }
  const uint64_t from = dtype_bits(*tensor.source) / 8, to = dtype_bits(tensor.view.dtype) / 8;
  // A piece may begin or end inside an element.
  const auto read_partly = [&](size_t count) {
    uint8_t element[8];
    convert(*tensor.source, tensor.view.dtype, data + offset / to * from, 1, element);
    std::memcpy(out.data(), element + offset % to, count);
    offset += count;
    out = out.subspan(count);
  };
  if (offset % to != 0) read_partly(size_t(std::min<uint64_t>(out.size(), to - offset % to)));
  const size_t count = out.size() / to;
  convert(*tensor.source, tensor.view.dtype, data + offset / to * from, count, out.data());
  offset += count * to;
  out = out.subspan(count * to);
  if (!out.empty()) read_partly(out.size());
  return {};
}

Result<Digest> published_digest(const PublishTensor& tensor) {
  if (!is_computed(tensor)) return digest_of(DigestKind::kSum128, tensor.view.bytes);
  return digest_of_body(DigestKind::kSum128, *published_body(tensor));
}

std::shared_ptr<const Body> published_body(const PublishTensor& tensor) {
  if (tensor.computed) return tensor.computed;
  if (is_computed(tensor)) return std::make_shared<RoundingBody>(tensor);
  return std::make_shared<MemoryBody>(tensor.view.bytes);
}

Status ComputedFp8::read(uint64_t offset, MutableBytes out) const {
  if (offset != 0 || out.size() != size()) return internal_error("FP8 blocks are made whole");
  const cuda::Fp8Task task{weights_, nullptr, nullptr, out.data()};
  DW_ASSIGN_OR_RETURN(const std::vector<cuda::Fp8Outcome> done,
                      cuda::quantise_fp8({&task, 1}, cuda::Fp8Digests::kNone, nullptr));
  return done[0].bounded ? Status() : invalid_argument("NaN or an infinity cannot be quantised");
}

const cuda::Fp8Weights* fp8_of(const Body* made) {
  const auto* const own = dynamic_cast<const ComputedFp8*>(made);
  return own == nullptr ? nullptr : &own->weights();
}

Status unbounded_weights(const std::string& tensor) {
  return invalid_argument("tensor " + quote(tensor) +
                          ": holds NaN or an infinity, and cannot be quantised");
}

namespace {

// Limit for tensors computed together, unless a single one is larger.
constexpr uint64_t kWindowBytes = uint64_t{512} << 20;

// Aligned for fast loads in kernels.
constexpr uint64_t aligned(uint64_t num_bytes) {
  constexpr uint64_t kAlignment = 256;
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_marked(const ComputedTensors::Wanted& one) {
  const cuda::Fp8Weights* const fp8 =
      one.before == nullptr ? nullptr : fp8_of(one.tensor->computed.get());
  return fp8 != nullptr && cuda::has_marks(*fp8);
}

uint64_t buffer_bytes(const ComputedTensors::Wanted& one) {
  if (!one.tensor->computed) return 0;
  const uint64_t size = published_bytes(*one.tensor);
  return aligned(is_marked(one) ? size / 8 : size);
}

}  // namespace

uint64_t published_bytes(const PublishTensor& tensor) {
  // Sizes were checked with the tensor.
  return tensor_size_bytes(tensor.view.dtype, box_shape(tensor.box, tensor.view.shape)).value();
}

size_t ComputedTensors::end_of_window(std::span<const Wanted> wanted, size_t begin) {
  size_t end = begin;
  for (uint64_t bytes = 0; end < wanted.size(); ++end) {
    bytes += buffer_bytes(wanted[end]);
    if (bytes > kWindowBytes && end != begin) break;
  }
  return end;
}

Result<std::vector<ComputedTensors::There>> ComputedTensors::make(std::span<const Wanted> wanted) {
  std::vector<There> out;
  std::vector<cuda::Fp8Task> tasks, marked;
  std::vector<size_t> task_of, marked_at;  // numbers of their tensors
  uint64_t bytes = 0;
  for (const Wanted& one : wanted) bytes += buffer_bytes(one);
  const uint64_t marks_at = bytes;
  bytes += cuda::marked_bytes(wanted.size());
  if (marks_at != 0) DW_RETURN_IF_ERROR(buffer_.reserve(context_, bytes));
  uint64_t at = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const PublishTensor& tensor = *wanted[i].tensor;
    out.push_back({tensor, nullptr});
    if (!tensor.computed) continue;
    uint8_t* const to = buffer_.data() + at;
    at += buffer_bytes(wanted[i]);
    const MutableBytes contents(to, size_t(published_bytes(tensor)));
    const cuda::Fp8Weights* const fp8 = fp8_of(tensor.computed.get());
    if (fp8 == nullptr) {
      DW_RETURN_IF_ERROR(tensor.computed->read(0, contents));
    } else if (is_marked(wanted[i])) {
      tasks.push_back({*fp8, wanted[i].before, reinterpret_cast<uint32_t*>(to), nullptr});
      marked.push_back(tasks.back());
      marked_at.push_back(i);
    } else {
      tasks.push_back({*fp8, nullptr, nullptr, to});
    }
    if (fp8 != nullptr) task_of.push_back(i);
    out[i].tensor.computed = nullptr;
    out[i].tensor.view.bytes = contents;
  }
  DW_ASSIGN_OR_RETURN(const std::vector<cuda::Fp8Outcome> done,
                      cuda::quantise_fp8(tasks, cuda::Fp8Digests::kNone, stream_));
  for (size_t k = 0; k < done.size(); ++k) {
    if (!done[k].bounded) return unbounded_weights(wanted[task_of[k]].tensor->view.name);
  }
  auto* const marks = reinterpret_cast<cuda::MarkedFp8*>(buffer_.data() + marks_at);
  DW_RETURN_IF_ERROR(cuda::mark_fp8(marked, marks, stream_));
  for (size_t k = 0; k < marked.size(); ++k) {
    const uint64_t before = cuda::marked_bytes(k);
    out[marked_at[k]].marked =
        reinterpret_cast<const cuda::MarkedFp8*>(buffer_.data() + marks_at + before);
    out[marked_at[k]].tensor.view.bytes = {};
  }
  return out;
}

}  // namespace deltawire
