#include "replica/device_tensors.h"

#include <algorithm>

#include "base/guard.h"
#include "codec/codec.h"
#include "format/layout.h"
#include "format/tensor_digest.h"
#include "replica/journal_redo.h"
#include "replica/stage.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

// Whether every entry patches contiguous bytes of a held tensor.
bool in_runs(const TensorSteps& steps) {
  return steps.from != nullptr &&
         std::all_of(steps.entries.begin(), steps.entries.end(), [](const Delta::Entry* item) {
           return item->entry.old_digest && slab_range(item->entry).ok();
         });
}

cuda::Contents contents_of(const LiveTensor& tensor) {
  return {{tensor.dtype, tensor.bytes.data()}, tensor.dtype, tensor.bytes.size()};
}

bool overlap(const ByteRange& a, const ByteRange& b) {
  return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

struct PayloadCopy {
  Bytes from;
  MutableBytes to;
};

// Uses many threads, because every page of new memory costs a page fault.
void copy_payloads(const std::vector<PayloadCopy>& copies, ThreadPool* pool) {
  constexpr size_t kSlice = size_t{1} << 20;
  std::vector<PayloadCopy> slices;
  for (const PayloadCopy& copy : copies) {
    for (size_t at = 0; at < copy.from.size(); at += kSlice) {
      const size_t size = std::min(kSlice, copy.from.size() - at);
      slices.push_back({copy.from.subspan(at, size), copy.to.subspan(at, size)});
    }
  }
  parallel_for(pool, slices.size(), [&](size_t i, unsigned) {
    std::copy(slices[i].from.begin(), slices[i].from.end(), slices[i].to.begin());
  });
}

// The turn of each entry: it follows all earlier entries that touch the same bytes.
std::vector<size_t> turns_of(const TensorSteps& steps) {
  std::vector<size_t> turns;
  std::vector<ByteRange> ranges;
  for (const Delta::Entry* item : steps.entries) {
    const ByteRange range = slab_range(item->entry).value();
    size_t turn = 0;
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (overlap(ranges[i], range)) turn = std::max(turn, turns[i] + 1);
    }
    ranges.push_back(range);
    turns.push_back(turn);
  }
  return turns;
}

}  // namespace

Result<std::unique_ptr<DeviceTensors>> DeviceTensors::open(const TensorReplicaOptions& options,
                                                           const LiveTensor& first,
                                                           ThreadPool* pool,
                                                           std::filesystem::path scratch,
                                                           StageMemory memory, SpillSpace* spill) {
  cuda::ContextOptions own{options.cuda.scratch_bytes, options.limits.threads, first.bytes.data()};
  own.kept_bytes = options.cuda.kept_bytes;
  DW_ASSIGN_OR_RETURN(cuda::Context context, cuda::Context::create(own));
  return std::unique_ptr<DeviceTensors>(new DeviceTensors(std::move(context), options.cuda.stream,
                                                          pool, std::move(scratch), memory,
                                                          options.verify_all, spill));
}

void DeviceTensors::add(size_t number, LiveTensor tensor) {
  tensors_.emplace(number, std::move(tensor));
}

Status DeviceTensors::fetch(const LiveTensor& tensor, MutableBytes out) {
  return context_.fetch(contents_of(tensor), 0, out, stream_).at(place_of(tensor));
}

Status DeviceTensors::check(std::span<const size_t> which, const Manifest& manifest) {
  std::vector<cuda::Contents> contents;
  std::vector<size_t> numbers;
  for (const size_t number : which) {
    const LiveTensor& tensor = tensors_.at(number);
    const std::vector<BoxDigest>* const boxes = boxes_hashed(manifest, tensor.name);
    if (boxes == nullptr) {
      contents.push_back(contents_of(tensor));
      numbers.push_back(number);
      continue;
    }
    // The digest covers boxes, which are cut out on the host.
    DW_ASSIGN_OR_RETURN(
        const ScratchCopy copy, guard_memory("hashing", [&]() -> Result<ScratchCopy> {
          return ScratchCopy::make(scratch_, number, tensor.bytes.size(), memory_.large_tensor);
        }));
    DW_RETURN_IF_ERROR(fetch(tensor, copy.bytes()));
    const Digest got = tensor_digest(tensor.dtype, tensor.shape, copy.bytes(), boxes);
    DW_RETURN_IF_ERROR(check_digest(place_of(tensor), got, manifest, number));
  }
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> got, context_.digests(contents, stream_));
  for (size_t i = 0; i < got.size(); ++i) {
    DW_RETURN_IF_ERROR(
        check_digest(place_of(tensors_.at(numbers[i])), got[i], manifest, numbers[i]));
  }
  return {};
}

// The first entry of each byte range has the digest of the current contents.
Status DeviceTensors::check_base(std::span<const TensorSteps* const> steps) {
  std::vector<cuda::Contents> contents;
  std::vector<const Delta::Entry*> items;
  for (const TensorSteps* one : steps) {
    const LiveTensor& tensor = tensors_.at(one->index);
    const std::vector<size_t> turns = turns_of(*one);
    for (size_t i = 0; i < turns.size(); ++i) {
      if (turns[i] != 0) continue;
      const ByteRange range = slab_range(one->entries[i]->entry).value();
      contents.push_back(
          {{tensor.dtype, tensor.bytes.data() + range.offset}, tensor.dtype, range.size});
      items.push_back(one->entries[i]);
    }
  }
  if (items.empty()) return {};
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> got, context_.digests(contents, stream_));
  for (size_t i = 0; i < items.size(); ++i) {
    if (got[i] == *items[i]->entry.old_digest) continue;
    return not_the_base("tensor " + quote(items[i]->entry.tensor), *items[i], got[i]);
  }
  return {};
}

Status DeviceTensors::stage_on_host(const TensorSteps& steps, const Target& target) {
  const LiveTensor& tensor = tensors_.at(steps.index);
  DW_ASSIGN_OR_RETURN(const MutableBytes whole, spill_->take(tensor.bytes.size()));
  if (steps.from != nullptr) DW_RETURN_IF_ERROR(fetch(tensor, whole));
  DW_RETURN_IF_ERROR(advance_tensor(steps, target, place_of(tensor), whole, pool_));
  return stage_whole(steps.index, whole);
}

Status DeviceTensors::stage(std::span<const TensorSteps> steps, const Target& target,
                            const Progress& progress) {
  std::vector<const TensorSteps*> here;
  const size_t staged_before = turns_.empty() ? 0 : turns_[0].size();
  uint64_t done = 0, total = 0;
  for (const TensorSteps& one : steps) {
    total += tensors_.at(one.index).bytes.size();
    if (in_runs(one)) here.push_back(&one);
  }
  DW_RETURN_IF_ERROR(check_base(here));
  std::vector<PayloadCopy> copies;
  for (const TensorSteps& one : steps) {
    if (!in_runs(one)) {
      DW_RETURN_IF_ERROR(stage_on_host(one, target));
    } else {
      const std::vector<size_t> turns = turns_of(one);
      for (size_t i = 0; i < turns.size(); ++i) {
        const Delta::Entry& item = *one.entries[i];
        const ByteRange range = slab_range(item.entry).value();
        if (turns_.size() <= turns[i]) turns_.resize(turns[i] + 1);
        DW_ASSIGN_OR_RETURN(const MutableBytes payload, spill_->take(item.payload.size()));
        copies.push_back({item.payload, payload});
        turns_[turns[i]].push_back({one.index,
                                    {range.offset, range.size, item.entry.codec, payload,
                                     item.entry.num_changed, item.entry.layout()}});
        num_staged_ += item.entry.num_changed;
      }
    }
    done += tensors_.at(one.index).bytes.size();
    if (progress && !progress(done, total)) return cancelled("stopped on request");
  }
  copy_payloads(copies, pool_);
  // Later turns depend on the results of the first one, so commit() checks them.
  return turns_.empty() ? Status() : context_.check(patches_of(turns_[0], staged_before), stream_);
}

Status DeviceTensors::stage_whole(size_t number, Bytes contents) {
  const LiveTensor& tensor = tensors_.at(number);
  if (contents.size() != tensor.bytes.size()) return internal_error("contents have the wrong size");
  wholes_.push_back({number, contents});
  num_staged_ += contents.size() / layout_of(tensor.dtype).width;
  return {};
}

// The change affects only its own array, so it belongs to the first turn.
Status DeviceTensors::stage_change(size_t number, const ArrayChange& change) {
  const std::lock_guard lock(mutex_);
  if (turns_.empty()) turns_.emplace_back();
  turns_[0].push_back({number, change});
  num_staged_ += change.num_changed;
  return {};
}

Status DeviceTensors::check_arrays(std::span<const ArrayDigest> expected) {
  if (expected.empty()) return {};
  std::vector<cuda::Contents> contents;
  for (const ArrayDigest& one : expected) contents.push_back(contents_of(tensors_.at(one.number)));
  DW_ASSIGN_OR_RETURN(const std::vector<Digest> got, context_.digests(contents, stream_));
  for (size_t i = 0; i < got.size(); ++i) {
    DW_RETURN_IF_ERROR(check_digest(tensors_.at(expected[i].number), got[i], expected[i].digest));
  }
  return {};
}

Status DeviceTensors::read(size_t number, MutableBytes out) {
  return fetch(tensors_.at(number), out);
}

std::vector<cuda::Patch> DeviceTensors::patches_of(std::span<const Change> changes,
                                                   size_t first) const {
  std::vector<cuda::Patch> patches;
  for (const auto& [number, change] : changes.subspan(first)) {
    const LiveTensor& tensor = tensors_.at(number);
    patches.push_back({{tensor.dtype,
                        tensor.bytes.data() + change.begin,
                        change.size_bytes,
                        {change.layout.rows, change.layout.columns}},
                       std::string(find_codec(change.codec)->name()),
                       change.payload});
  }
  return patches;
}

Status DeviceTensors::commit() {
  for (const Whole& whole : wholes_) {
    DW_RETURN_IF_ERROR(
        context_.send(whole.contents, tensors_.at(whole.number).bytes.data(), stream_));
  }
  written_.clear();
  std::vector<std::optional<Digest>> digests;
  for (const std::vector<Change>& turn : turns_) {
    DW_RETURN_IF_ERROR(context_.apply_checked(patches_of(turn, 0), stream_, &digests));
    for (size_t i = 0; i < turn.size(); ++i) {
      const auto& [number, change] = turn[i];
      const bool whole = change.size_bytes == tensors_.at(number).bytes.size();
      if (whole && digests[i]) {
        written_[number] = *digests[i];
      } else {
        written_.erase(number);
      }
    }
  }
  return {};
}

// Digests of completely rewritten tensors are known; other tensors are read again.
Status DeviceTensors::check_written(std::span<const size_t> which, const Manifest& manifest) {
  std::vector<size_t> others;
  for (const size_t number : which) {
    const LiveTensor& tensor = tensors_.at(number);
    const auto known = written_.find(number);
    const bool summed = manifest.boxes.count(tensor.name) == 0 && known != written_.end();
    if (read_again_ || !summed) {
      others.push_back(number);
    } else {
      DW_RETURN_IF_ERROR(check_digest(place_of(tensor), known->second, manifest, number));
    }
  }
  return others.empty() ? Status() : check(others, manifest);
}

void DeviceTensors::drop() noexcept {
  turns_ = {};
  wholes_ = {};
  written_ = {};
  num_staged_ = 0;
  context_.forget_checked();
}

}  // namespace deltawire
