#include "carrier/frames.h"

#include "base/bytes.h"

namespace deltawire {
namespace {

constexpr size_t kHeadBytes = 5, kMacBytes = 16;

std::string_view frame_text(const Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

std::string mac_of_frame(const MacKey& key, uint64_t number, std::string_view frame) {
  char digits[sizeof number];
  store_le(digits, number);
  const Mac own = hmac_sha256(frame_text(key), {digits, sizeof digits});
  return std::string(frame_text(hmac_sha256(frame_text(own), frame)).substr(0, kMacBytes));
}

}  // namespace

std::string FrameWriter::write(FrameKind kind, std::string_view payload) {
  char head[kHeadBytes];
  store_le(head, uint32_t(payload.size()));
  head[4] = char(kind);
  std::string frame;
  frame.reserve(kHeadBytes + payload.size() + kMacBytes);
  frame.append(head, kHeadBytes).append(payload);
  frame.append(mac_of_frame(key_, number_++, frame));
  return frame;
}

void FrameReader::add(std::string_view received) {
  if (start_ > 0 && start_ >= buffer_.size() / 2) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  buffer_.append(received);
}

Result<std::optional<Frame>> FrameReader::next() {
  const std::string_view left = std::string_view(buffer_).substr(start_);
  if (left.size() < kHeadBytes) return std::optional<Frame>();
  const uint64_t size = load_le<uint32_t>(left.data());
  const auto kind = uint8_t(left[4]);
  if (size > max_payload_bytes_) {
    return corruption("a message of " + std::to_string(size) + " bytes, where " +
                      std::to_string(max_payload_bytes_) + " are allowed");
  }
  if (kind < uint8_t(FrameKind::kMessage) || kind > uint8_t(FrameKind::kWelcome)) {
    return corruption("a message of kind " + std::to_string(kind));
  }
  const size_t signed_bytes = kHeadBytes + size_t(size);
  if (left.size() < signed_bytes + kMacBytes) return std::optional<Frame>();
  if (!equal_in_constant_time(left.substr(signed_bytes, kMacBytes),
                              mac_of_frame(key_, number_, left.substr(0, signed_bytes)))) {
    return corruption("a message whose HMAC is wrong");
  }
  ++number_;
  Frame frame{FrameKind(kind), std::string(left.substr(kHeadBytes, size_t(size)))};
  start_ += signed_bytes + kMacBytes;
  if (start_ == buffer_.size()) {
    buffer_ = std::string();  // large ones come and go
    start_ = 0;
  }
  return std::optional<Frame>(std::move(frame));
}

}  // namespace deltawire
