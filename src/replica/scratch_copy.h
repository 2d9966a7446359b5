// Room for a copy of one tensor: in memory, or in a file when the tensor is large.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/file.h"
#include "deltawire/status.h"

namespace deltawire {

class ScratchCopy {
 public:
  // `number` tells copies in one folder apart. Larger than `in_memory`, it lives in a file, whose
  // pages the kernel can write out.
  static Result<ScratchCopy> make(const std::filesystem::path& folder, size_t number, uint64_t size,
                                  uint64_t in_memory) {
    ScratchCopy copy;
    if (size <= in_memory) {
      copy.memory_ = std::make_unique_for_overwrite<uint8_t[]>(size);
      copy.bytes_ = {copy.memory_.get(), size_t(size)};
      return copy;
    }
    DW_ASSIGN_OR_RETURN(MutableFile file,
                        MutableFile::create(folder / ("tensor-" + std::to_string(number)), size));
    copy.file_ = std::make_unique<MutableFile>(std::move(file));
    copy.bytes_ = copy.file_->bytes();
    return copy;
  }
  MutableBytes bytes() const { return bytes_; }

 private:
  std::unique_ptr<uint8_t[]> memory_;
  std::unique_ptr<MutableFile> file_;
  MutableBytes bytes_;
};

}  // namespace deltawire
