#include "replica/unpack_stream.h"

#include <fcntl.h>

#include <algorithm>

#include "format/layout.h"
#include "tensor/safetensors.h"

namespace deltawire {
namespace {

constexpr uint64_t kLengthBytes = sizeof(uint64_t);
constexpr uint64_t kWriteBytes = uint64_t{1} << 20;
constexpr uint64_t kSpaceBytes = uint64_t{32} << 20;

}  // namespace

Status UnpackStream::take(Bytes bytes) {
  while (!bytes.empty()) {
    DW_ASSIGN_OR_RETURN(const uint64_t needed, wanted());
    if (needed == 0) return corruption("bytes after the last tensor");
    if (waiting_.empty() && bytes.size() >= needed) {  // without a copy
      DW_RETURN_IF_ERROR(step(bytes.first(size_t(needed))));
      bytes = bytes.subspan(size_t(needed));
      continue;
    }
    const size_t count = size_t(std::min<uint64_t>(needed - waiting_.size(), bytes.size()));
    waiting_.insert(waiting_.end(), bytes.begin(), bytes.begin() + long(count));
    bytes = bytes.subspan(count);
    if (waiting_.size() < needed) return {};
    DW_RETURN_IF_ERROR(step(waiting_));
    waiting_.clear();
  }
  return {};
}

Status UnpackStream::finish() {
  const bool whole = file_ && tensor_ == file_->tensors.size() && waiting_.empty();
  return whole ? Status() : corruption("the packed file is truncated");
}

Result<uint64_t> UnpackStream::wanted() {
  if (!file_) {
    if (front_.empty()) return kLengthBytes;
    const auto length = load_le<uint64_t>(front_.data());
    if (length > std::min(packed_bytes_, kMaxHeaderBytes))
      return corruption("a header of " + std::to_string(length) + " bytes");
    if (front_.size() < kLengthBytes + length) return kLengthBytes + length - front_.size();
    DW_ASSIGN_OR_RETURN(const uint64_t all, packed_front_bytes(front_, packed_bytes_));
    return all - front_.size();
  }
  if (tensor_ == file_->tensors.size()) return 0;
  if (tensor().codec == CodecId::kRaw) return std::min(kWriteBytes, tensor().size - done_);
  const Layout layout = layout_of(tensor().dtype);
  if (payload_front_.empty()) return 1;
  if (directory_) return directory_->block_end(block_) - directory_->block_begin(block_);
  DW_ASSIGN_OR_RETURN(const uint64_t all, exponents::Directory::front_bytes(
                                              layout, tensor().plain_size, payload_front_[0]));
  if (all > tensor().size) return corruption("the directory is larger than its payload");
  return all - payload_front_.size();
}

Status UnpackStream::step(Bytes bytes) {
  if (!file_) {
    const bool header_was_whole = front_.size() >= kLengthBytes &&
                                  front_.size() == kLengthBytes + load_le<uint64_t>(front_.data());
    front_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return header_was_whole ? begin_file() : Status();
  }
  const PackedTensor& own = tensor();
  if (own.codec == CodecId::kRaw) {
    DW_RETURN_IF_ERROR(write(own.plain_begin + done_, bytes));
    done_ += bytes.size();
    return begin_tensors();
  }
  const Layout layout = layout_of(own.dtype);
  if (!directory_) {
    payload_front_.insert(payload_front_.end(), bytes.begin(), bytes.end());
    DW_ASSIGN_OR_RETURN(const uint64_t all, exponents::Directory::front_bytes(
                                                layout, own.plain_size, payload_front_[0]));
    if (payload_front_.size() < all) return {};
    DW_ASSIGN_OR_RETURN(
        directory_, exponents::Directory::parse(layout, own.plain_size, payload_front_, own.size));
    return begin_tensors();
  }
  const uint64_t begin = directory_->array_begin(block_);
  block_bytes_.resize(size_t(directory_->array_end(block_) - begin));
  DW_RETURN_IF_ERROR(exponents::read_block(layout, bytes, block_bytes_));
  DW_RETURN_IF_ERROR(write(own.plain_begin + begin, block_bytes_));
  ++block_;
  return begin_tensors();
}

// Allocates space a little ahead: allocating a large file at once would take seconds.
Status UnpackStream::write(uint64_t offset, Bytes bytes) {
  const uint64_t end = offset + bytes.size();
  if (end > space_) {
    const uint64_t next = std::max(end, std::min(space_ + kSpaceBytes, file_->plain_bytes));
    DW_RETURN_IF_ERROR(take_space(out_->get(), space_, next - space_, to_));
    space_ = next;
  }
  return write_all(out_->get(), offset, bytes, to_);
}

Status UnpackStream::begin_file() {
  DW_ASSIGN_OR_RETURN(file_, parse_packed_front(front_, packed_bytes_));
  out_.emplace(::open(to_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (out_->get() < 0) return system_error(to_, "cannot create");
  const std::string& header = file_->plain_header;
  DW_RETURN_IF_ERROR(write(0, {reinterpret_cast<const uint8_t*>(header.data()), header.size()}));
  return begin_tensors();
}

// Skips tensors and blocks that need no more bytes.
Status UnpackStream::begin_tensors() {
  for (; tensor_ < file_->tensors.size(); ++tensor_) {
    if (tensor().codec == CodecId::kRaw ? done_ < tensor().size : !directory_) return {};
    if (directory_ && block_ < directory_->num_blocks()) {
      if (directory_->block_end(block_) != directory_->block_begin(block_)) return {};
      return corruption("a block is empty");
    }
    done_ = 0;
    payload_front_.clear();
    directory_.reset();
    block_ = 0;
  }
  return {};
}

}  // namespace deltawire
