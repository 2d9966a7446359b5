#include "bridge/scratch.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/folder.h"

namespace deltawire {
namespace {

constexpr uint64_t kScratchAlignment = 64;
constexpr uint64_t kMemoryShare = 4;

uint64_t default_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? uint64_t(pages) * uint64_t(page) / kMemoryShare : 0;
}

// Large pages where the system has them: the first touch of a gigabyte of small ones takes as long
// as to patch it.
void want_large_pages(MutableBytes bytes) {
  constexpr uintptr_t kLargePage = uintptr_t{2} << 20;
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (begin + kLargePage - 1) / kLargePage * kLargePage;
  const uintptr_t last = (begin + bytes.size()) / kLargePage * kLargePage;
  if (first < last) {
    (void)::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  }
}

}  // namespace

Scratch::Scratch(std::filesystem::path folder, uint64_t memory_bytes)
    : folder_(std::move(folder)),
      memory_bytes_(memory_bytes == 0 ? default_memory() : memory_bytes) {}

Status Scratch::reserve(uint64_t bytes) {
  if (bytes <= room_.size()) return {};
  room_ = {};
  memory_.reset();
  file_.reset();
  if (bytes <= memory_bytes_) {
    DW_ASSIGN_OR_RETURN(memory_, allocate_bytes(bytes));
    room_ = {memory_.get(), bytes};
    want_large_pages(room_);
    return {};
  }
  DW_RETURN_IF_ERROR(make_folder(folder_));
  const std::filesystem::path path = folder_ / "scratch";
  remove_stale_temporaries(path);
  DW_ASSIGN_OR_RETURN(MutableFile file, MutableFile::create(path, bytes));
  file_.emplace(std::move(file));
  room_ = file_->bytes();
  return {};
}

Result<std::vector<MutableBytes>> Scratch::make(std::span<const uint64_t> sizes) {
  const auto padded = [](uint64_t size) {
    return (size + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  };
  uint64_t total = 0;
  for (const uint64_t size : sizes) total += padded(size);
  DW_RETURN_IF_ERROR(reserve(total));
  std::vector<MutableBytes> arrays;
  uint64_t at = 0;
  for (const uint64_t size : sizes) {
    arrays.push_back(room_.subspan(at, size));
    at += padded(size);
  }
  return arrays;
}

Status Scratch::check() const {
  if (!file_ || file_->whole()) return {};
  return io_error((folder_ / "scratch").string() +
                  ": its disk is full, or cannot be read; give a "
                  "work folder with room for the model");
}

}  // namespace deltawire
