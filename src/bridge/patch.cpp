#include "bridge/patch.h"

#include <sys/mman.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>

#include "base/bytes.h"
#include "base/folder.h"
#include "base/mapping.h"
#include "base/waves.h"
#include "bridge/foreign.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr uint64_t kScratchAlignment = 64;
constexpr uint64_t kMemoryShare = 4;

uint64_t default_memory() {
  const long pages = ::sysconf(_SC_PHYS_PAGES), page = ::sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? uint64_t(pages) * uint64_t(page) / kMemoryShare : 0;
}

// Uses huge pages if the system has them: touching a gigabyte of small pages takes as long as
// patching it.
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
  if (bytes <= space_.size()) return {};
  space_ = {};
  memory_.reset();
  file_.reset();
  if (bytes <= memory_bytes_) {
    DW_ASSIGN_OR_RETURN(memory_, allocate_bytes(bytes));
    space_ = {memory_.get(), bytes};
    want_large_pages(space_);
    return {};
  }
  DW_RETURN_IF_ERROR(make_folder(folder_));
  const std::filesystem::path path = folder_ / "scratch";
  remove_stale_temporaries(path);
  DW_ASSIGN_OR_RETURN(MutableFile file, MutableFile::create(path, bytes));
  file_.emplace(std::move(file));
  space_ = file_->bytes();
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
    arrays.push_back(space_.subspan(at, size));
    at += padded(size);
  }
  return arrays;
}

Status Scratch::check() const {
  if (!file_ || file_->whole()) return {};
  return io_error((folder_ / "scratch").string() +
                  ": its disk is full, or cannot be read; give a "
                  "work folder with space for the model");
}

namespace {

// A patch may have failed because files were written to meanwhile.
Status judge(const ForeignVersion& version, Status status) {
  DW_RETURN_IF_ERROR(version.check_unchanged());
  return status;
}

std::string place_in(const ForeignInfo& info, const std::string& tensor) {
  return "version " + std::to_string(info.version) + ", tensor " + quote(tensor);
}

constexpr uint64_t kCopiedBytes = uint64_t{1} << 20;

void copy_tensor(Bytes from, MutableBytes to, ThreadPool* pool) {
  const size_t pieces = size_t((from.size() + kCopiedBytes - 1) / kCopiedBytes);
  parallel_for(pool, pieces, [&](size_t i, unsigned) {
    const uint64_t begin = i * kCopiedBytes;
    copy_out(from.data() + begin, to.data() + begin,
             size_t(std::min(kCopiedBytes, from.size() - begin)));
  });
}

}  // namespace

Status check_fits(const ForeignInfo& info, const Checkpoint& old) {
  if (info.full) return {};
  for (const ForeignTensor& tensor : info.tensors) {
    const CheckpointTensor* const held = old.find(tensor.name);
    if (held == nullptr) {
      return base_mismatch(
          place_in(info, tensor.name) +
          ": the checkpoint that it changes has no such tensor. A head that is tied to the "
          "embeddings is often left out when a checkpoint is saved: begin with a base that has it");
    }
    const TensorView& view = held->view;
    if ((tensor.dtype && *tensor.dtype != view.dtype) ||
        (tensor.shape && *tensor.shape != view.shape)) {
      return base_mismatch(
          place_in(info, tensor.name) + ": is for " +
          form_of(tensor.dtype.value_or(view.dtype), tensor.shape.value_or(view.shape)) +
          ", the checkpoint has " + form_of(view) +
          ": begin with the checkpoint that the run began with");
    }
  }
  return {};
}

Result<std::vector<PublishTensor>> patch_tensors(const ForeignVersion& version,
                                                 const Checkpoint& old, Scratch* scratch,
                                                 ThreadPool* pool, const Progress& progress) {
  const ForeignInfo& info = version.info();
  DW_RETURN_IF_ERROR(check_fits(info, old));
  std::vector<uint64_t> sizes;
  std::vector<const CheckpointTensor*> held;
  for (const ForeignTensor& tensor : info.tensors) {
    held.push_back(old.find(tensor.name));
    sizes.push_back(held.back()->view.bytes.size());
  }
  DW_ASSIGN_OR_RETURN(const std::vector<MutableBytes> made, scratch->make(sizes));
  Status patched = Waves(sizes, Waves::Inside::kShared, pool, progress)
                       .run([&](size_t i, ThreadPool* inner) -> Status {
                         const TensorView& view = held[i]->view;
                         copy_tensor(view.bytes, made[i], inner);
                         return version.apply(i, view, made[i], inner);
                       });
  DW_RETURN_IF_ERROR(judge(version, std::move(patched)));
  DW_RETURN_IF_ERROR(scratch->check());
  DW_RETURN_IF_ERROR(old.check_whole());
  std::vector<PublishTensor> tensors;
  size_t next = 0;  // both are sorted by name
  for (const CheckpointTensor& tensor : old.tensors()) {
    PublishTensor& now = tensors.emplace_back();
    now.view = tensor.view;
    now.unchanged = true;
    if (next == info.tensors.size() || held[next] != &tensor) continue;
    now.view.bytes = made[next++];
    now.unchanged = false;
  }
  if (next != info.tensors.size()) return internal_error("tensors of a version are not sorted");
  return tensors;
}

Result<std::vector<PublishTensor>> whole_tensors(const ForeignVersion& version, Scratch* scratch,
                                                 ThreadPool* pool, const Progress& progress) {
  const ForeignInfo& info = version.info();
  std::vector<PublishTensor> tensors;
  std::vector<uint64_t> sizes;
  for (const ForeignTensor& tensor : info.tensors) {
    if (!tensor.dtype || !tensor.shape)
      return internal_error("a whole version must name every dtype and shape");
    tensors.emplace_back().view = {tensor.name, *tensor.dtype, *tensor.shape, {}};
    DW_ASSIGN_OR_RETURN(const uint64_t size, tensor_size_bytes(*tensor.dtype, *tensor.shape));
    sizes.push_back(size);
  }
  DW_ASSIGN_OR_RETURN(const std::vector<MutableBytes> made, scratch->make(sizes));
  Status read = Waves(sizes, Waves::Inside::kShared, pool, progress)
                    .run([&](size_t i, ThreadPool* inner) -> Status {
                      TensorView& view = tensors[i].view;
                      view.bytes = made[i];
                      return version.apply(i, view, made[i], inner);
                    });
  DW_RETURN_IF_ERROR(judge(version, std::move(read)));
  DW_RETURN_IF_ERROR(scratch->check());
  return tensors;
}

Status try_patch(const ForeignVersion& version, const Checkpoint& old, ThreadPool* pool,
                 const Progress& progress) {
  const ForeignInfo& info = version.info();
  DW_RETURN_IF_ERROR(check_fits(info, old));
  std::vector<uint64_t> sizes;
  for (const ForeignTensor& tensor : info.tensors) {
    sizes.push_back(old.find(tensor.name)->view.bytes.size());
  }
  std::atomic<bool> changed = false;
  Status patched = Waves(sizes, Waves::Inside::kShared, pool, progress)
                       .run([&](size_t i, ThreadPool* inner) -> Status {
                         const TensorView& view = old.find(info.tensors[i].name)->view;
                         DW_ASSIGN_OR_RETURN(const auto copy, allocate_bytes(sizes[i]));
                         const MutableBytes bytes{copy.get(), sizes[i]};
                         copy_tensor(view.bytes, bytes, inner);
                         DW_RETURN_IF_ERROR(version.apply(i, view, bytes, inner));
                         if (!changed && !std::ranges::equal(bytes, view.bytes)) changed = true;
                         return {};
                       });
  DW_RETURN_IF_ERROR(judge(version, std::move(patched)));
  DW_RETURN_IF_ERROR(old.check_whole());
  const auto writes = [](const ForeignTensor& tensor) { return tensor.payload_bytes != 0; };
  if (changed || std::ranges::none_of(info.tensors, writes)) return {};
  // Used without a digest: these writers write only what changed.
  return corruption("version " + std::to_string(info.version) + " changes nothing of " +
                    old.path().string() + ", which has its values already");
}

}  // namespace deltawire
