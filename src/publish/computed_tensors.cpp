#include "publish/computed_tensors.h"

#include "tensor/text.h"

namespace deltawire {

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

// At a time, unless one is larger.
constexpr uint64_t kWindowBytes = uint64_t{512} << 20;

// All begin where kernels load fastest.
constexpr uint64_t aligned(uint64_t num_bytes) {
  constexpr uint64_t kAlignment = 256;
  return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_marked(const ComputedTensors::Wanted& one) {
  const cuda::Fp8Weights* const fp8 =
      one.before == nullptr ? nullptr : fp8_of(one.tensor->computed.get());
  return fp8 != nullptr && cuda::has_marks(*fp8);
}

uint64_t room_of(const ComputedTensors::Wanted& one) {
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
    bytes += room_of(wanted[end]);
    if (bytes > kWindowBytes && end != begin) break;
  }
  return end;
}

Result<std::vector<ComputedTensors::There>> ComputedTensors::make(std::span<const Wanted> wanted) {
  std::vector<There> out;
  std::vector<cuda::Fp8Task> tasks, marked;
  std::vector<size_t> task_of, marked_at;  // whose they are
  uint64_t bytes = 0;
  for (const Wanted& one : wanted) bytes += room_of(one);
  const uint64_t marks_at = bytes;
  bytes += cuda::marked_bytes(wanted.size());
  if (marks_at != 0) DW_RETURN_IF_ERROR(room_.reserve(context_, bytes));
  uint64_t at = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const PublishTensor& tensor = *wanted[i].tensor;
    out.push_back({tensor, nullptr});
    if (!tensor.computed) continue;
    uint8_t* const to = room_.data() + at;
    at += room_of(wanted[i]);
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
  auto* const marks = reinterpret_cast<cuda::MarkedFp8*>(room_.data() + marks_at);
  DW_RETURN_IF_ERROR(cuda::mark_fp8(marked, marks, stream_));
  for (size_t k = 0; k < marked.size(); ++k) {
    const uint64_t before = cuda::marked_bytes(k);
    out[marked_at[k]].marked =
        reinterpret_cast<const cuda::MarkedFp8*>(room_.data() + marks_at + before);
    out[marked_at[k]].tensor.view.bytes = {};
  }
  return out;
}

}  // namespace deltawire
