#include <algorithm>

#include "codec/checks.h"
#include "codec/exponents.h"

namespace deltawire::exponents {
namespace {

constexpr size_t kLogBytes = 1, kEndBytes = sizeof(uint64_t);

Status check_log2(uint8_t block_log2) {
  if (block_log2 >= kMinBlockLog2 && block_log2 <= kMaxBlockLog2) return {};
  return bad_payload("block_log2",
                     std::to_string(kMinBlockLog2) + " to " + std::to_string(kMaxBlockLog2),
                     block_log2);
}

}  // namespace

Directory::Directory(Layout layout, uint64_t array_bytes, uint8_t block_log2)
    : block_log2_(block_log2),
      block_bytes_(uint64_t{layout.width} << block_log2),
      array_bytes_(array_bytes) {}

Directory::Directory(Layout layout, uint64_t array_bytes, std::span<const BlockPlan> plans)
    : Directory(layout, array_bytes, kBlockLog2) {
  uint64_t end = 0;
  for (const BlockPlan& plan : plans) ends_.push_back(end += plan.size_bytes);
}

Result<uint64_t> Directory::front_bytes(Layout layout, uint64_t array_bytes, uint8_t first) {
  DW_RETURN_IF_ERROR(check_log2(first));
  const uint64_t block_bytes = uint64_t{layout.width} << first;
  return kLogBytes + (array_bytes / block_bytes + (array_bytes % block_bytes != 0)) * kEndBytes;
}

Result<Directory> Directory::parse(Layout layout, uint64_t array_bytes, Bytes front,
                                   uint64_t payload_bytes) {
  if (front.empty()) return bad_payload("payload", "a size of blocks", "the end of the payload");
  DW_ASSIGN_OR_RETURN(const uint64_t size, front_bytes(layout, array_bytes, front[0]));
  if (front.size() < size || payload_bytes < size) {
    return bad_payload("payload size", "at least " + std::to_string(size), payload_bytes);
  }
  Directory directory(layout, array_bytes, front[0]);
  const uint64_t all = payload_bytes - size;
  uint64_t last = 0;
  directory.ends_.reserve(size_t((size - kLogBytes) / kEndBytes));
  for (size_t at = kLogBytes; at < size; at += kEndBytes) {
    const auto end = load_le<uint64_t>(front.data() + at);
    if (end < last || end > all) return bad_payload("end of a block", "ascending ends", end);
    const size_t block = directory.ends_.size();
    const uint64_t most = directory.array_end(block) - directory.array_begin(block);
    if (end - last > most) {
      return bad_payload("size of a block", "at most " + std::to_string(most), end - last);
    }
    directory.ends_.push_back(last = end);
  }
  if (last != all) return bad_payload("payload size", size + last, payload_bytes);
  return directory;
}

uint64_t Directory::payload_bytes() const noexcept {
  return kLogBytes + ends_.size() * kEndBytes + (ends_.empty() ? 0 : ends_.back());
}

std::vector<uint8_t> Directory::front() const {
  std::vector<uint8_t> front(kLogBytes + ends_.size() * kEndBytes);
  front[0] = block_log2_;
  for (size_t i = 0; i < ends_.size(); ++i) {
    store_le(front.data() + kLogBytes + i * kEndBytes, ends_[i]);
  }
  return front;
}

uint64_t Directory::block_begin(size_t block) const noexcept {
  return kLogBytes + ends_.size() * kEndBytes + (block == 0 ? 0 : ends_[block - 1]);
}
uint64_t Directory::block_end(size_t block) const noexcept {
  return kLogBytes + ends_.size() * kEndBytes + ends_[block];
}
uint64_t Directory::array_end(size_t block) const noexcept {
  return std::min(array_bytes_, (block + 1) * block_bytes_);
}

}  // namespace deltawire::exponents
