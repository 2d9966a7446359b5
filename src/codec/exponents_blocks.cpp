// Blocks of `exponents`: base:u8, planes, far keys; or the elements as they are, if that is no
// longer. A block's length says which.
#include <algorithm>
#include <array>
#include <cstring>

#include "codec/checks.h"
#include "codec/exponents.h"
#include "kernels/kernels.h"

namespace deltawire::exponents {
namespace {

uint8_t choose_base(KeyForm form, Bytes block) noexcept {
  const size_t width = key_planes::width(form), n = block.size() / width;
  std::array<uint32_t, 256> counts{};
  for (size_t i = 0; i < key_planes::num_samples(n); ++i) {
    const size_t begin = key_planes::sample_begin(n, i);
    const size_t end = std::min(n, begin + kRowElements);
    for (size_t at = begin; at < end; ++at) {
      ++counts[key_planes::split(form, key_planes::load_top(form, block.data() + at * width)).key];
    }
  }
  uint32_t near = 0;
  for (size_t key = 0; key < kNearKeys; ++key) near += counts[key];
  uint32_t best = key_planes::base_score(near, 0);
  for (size_t base = 1; base <= key_planes::max_base(form); ++base) {
    near += counts[base + kNearKeys - 1] - counts[base - 1];
    best = std::max(best, key_planes::base_score(near, uint8_t(base)));
  }
  return key_planes::base_of_score(best);
}

}  // namespace

std::optional<KeyForm> form_of(Layout layout) noexcept {
  if (layout.width == 2 && layout.key_shift == 7 && layout.key_mask == 0xff) return KeyForm::k8of16;
  if (layout.width == 2 && layout.key_shift == 10 && layout.key_mask == 0x1f) {
    return KeyForm::k5of16;
  }
  if (layout.width == 4 && layout.key_shift == 23 && layout.key_mask == 0xff) {
    return KeyForm::k8of32;
  }
  return std::nullopt;
}

uint8_t plan_base(Layout layout, Bytes block) noexcept {
  const std::optional<KeyForm> form = form_of(layout);
  return form ? choose_base(*form, block) : uint8_t{0};
}

BlockPlan plan_block(Layout layout, Bytes block) noexcept {
  BlockPlan plan{uint32_t(block.size())};
  const std::optional<KeyForm> form = form_of(layout);
  if (!form) return plan;
  const size_t n = block.size() / layout.width;
  plan.base = choose_base(*form, block);
  const size_t far = kernels().count_far[size_t(*form)](block.data(), n, plan.base);
  plan.size_bytes = uint32_t(std::min(block.size(), 1 + key_planes::bytes(*form, n) + far));
  return plan;
}

Bytes BlockWriter::write(Bytes block, uint8_t base) {
  const std::optional<KeyForm> form = form_of(layout_);
  if (!form) return block;
  const size_t n = block.size() / layout_.width, planes = key_planes::bytes(*form, n);
  // Every key may be far, when somebody writes to the array meanwhile.
  if (room_.size() < 1 + planes + n) room_.resize(1 + planes + n);
  room_[0] = base;
  const size_t far = kernels().split_keys[size_t(*form)](block.data(), n, base, room_.data() + 1,
                                                         room_.data() + 1 + planes);
  const size_t size = 1 + planes + far;
  return size < block.size() ? Bytes(room_).first(size) : block;
}

Status check_block(Layout layout, Bytes block, size_t array_bytes) {
  if (block.size() == array_bytes) return {};
  const std::optional<KeyForm> form = form_of(layout);
  if (!form) return bad_payload("block size", array_bytes, block.size());
  const size_t front = 1 + key_planes::bytes(*form, array_bytes / layout.width);
  if (block.size() < front || block.size() > array_bytes) {
    return bad_payload("block size", std::to_string(front) + " to " + std::to_string(array_bytes),
                       block.size());
  }
  if (block[0] > key_planes::max_base(*form)) {
    return bad_payload("base", "at most " + std::to_string(key_planes::max_base(*form)), block[0]);
  }
  return {};
}

Status read_block(Layout layout, Bytes block, MutableBytes array) {
  DW_RETURN_IF_ERROR(check_block(layout, block, array.size()));
  if (block.size() == array.size()) {
    if (!block.empty()) std::memcpy(array.data(), block.data(), block.size());
    return {};
  }
  const KeyForm form = *form_of(layout);
  const size_t n = array.size() / layout.width, front = 1 + key_planes::bytes(form, n);
  if (!kernels().join_keys[size_t(form)](block.data() + 1, block.data() + front,
                                         block.size() - front, block[0], n, array.data())) {
    return bad_payload("block", "planes and the keys they lack", "keys that do not fit");
  }
  return {};
}

}  // namespace deltawire::exponents
