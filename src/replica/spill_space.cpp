#include "replica/spill_space.h"

#include <algorithm>

namespace deltawire {
namespace {

constexpr uint64_t kFileBytes = uint64_t{64} << 20;  // at least: many entries share a file

}  // namespace

Result<MutableBytes> SpillSpace::take(uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (size_bytes > memory_bytes_ - used_) return take_from_file(size_bytes);
  rooms_.push_back(std::make_unique_for_overwrite<uint8_t[]>(size_bytes));
  used_ += size_bytes;
  return MutableBytes(rooms_.back().get(), size_bytes);
}

Result<MutableBytes> SpillSpace::take_from_file(uint64_t size_bytes) {
  if (files_.empty() || size_bytes > files_.back().bytes().size() - file_used_) {
    const std::string name = "spill-" + std::to_string(files_.size());
    DW_ASSIGN_OR_RETURN(MutableFile file,
                        MutableFile::create(folder_ / name, std::max(size_bytes, kFileBytes)));
    files_.push_back(std::move(file));
    file_used_ = 0;
  }
  const MutableBytes room = files_.back().bytes().subspan(file_used_, size_bytes);
  file_used_ += size_bytes;
  spilled_ += size_bytes;
  return room;
}

Result<Bytes> SpillSpace::keep(std::vector<uint8_t> bytes) {
  bytes.shrink_to_fit();
  {
    const std::lock_guard lock(mutex_);
    if (bytes.size() <= memory_bytes_ - used_) {
      used_ += bytes.size();
      kept_.push_back(std::move(bytes));
      return Bytes(kept_.back());
    }
  }
  DW_ASSIGN_OR_RETURN(const MutableBytes room, take(bytes.size()));
  std::copy(bytes.begin(), bytes.end(), room.begin());
  return Bytes(room);
}

void SpillSpace::clear() noexcept {
  const std::lock_guard lock(mutex_);
  rooms_.clear();
  kept_.clear();
  files_.clear();
  used_ = spilled_ = file_used_ = 0;
}

}  // namespace deltawire
