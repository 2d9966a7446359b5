#include "diff/coded_array.h"

#include <algorithm>
#include <cstring>

#include "base/guard.h"

namespace deltawire {
namespace {

class CodedArrayBody final : public Body {
 public:
  CodedArrayBody(std::shared_ptr<const Body> plain, CodedArray array)
      : plain_(std::move(plain)), array_(std::move(array)) {}
  uint64_t size() const noexcept override { return array_.payload_bytes(); }
  Status read(uint64_t offset, MutableBytes out) const override {
    return array_.read(*plain_, 0, offset, out, &kept_);
  }

 private:
  const std::shared_ptr<const Body> plain_;
  const CodedArray array_;
  mutable KeptBlocks kept_;
};

// Amounts coded at a time by a remote coder. A call takes as long as coding some hundred KB.
constexpr uint64_t kCodedAhead = uint64_t{8} << 20, kMostCoded = uint64_t{64} << 20;

}  // namespace

CodedArray::CodedArray(Layout layout, uint64_t begin, uint64_t array_bytes)
    : layout_(layout), begin_(begin), array_bytes_(array_bytes) {
  if (!exponents::form_of(layout)) return;
  const uint64_t block_bytes = exponents::kBlockElements * layout.width;
  plans_.resize(size_t((array_bytes + block_bytes - 1) / block_bytes));
}

Result<CodedArray> CodedArray::there(Layout layout, uint64_t array_bytes,
                                     std::shared_ptr<const ArrayCoder> coder) {
  CodedArray array(layout, 0, array_bytes);
  DW_ASSIGN_OR_RETURN(std::vector<exponents::BlockPlan> plans, coder->plan());
  if (plans.size() != array.plans_.size()) return internal_error("plans of another array");
  array.plans_ = std::move(plans);
  array.coder_ = std::move(coder);
  return array;
}

Result<Bytes> CodedArray::plain_block(const Body& plain, size_t block,
                                      std::vector<uint8_t>* buffer) const {
  const uint64_t block_bytes = exponents::kBlockElements * layout_.width;
  const uint64_t begin = block * block_bytes;
  buffer->resize(size_t(std::min(block_bytes, array_bytes_ - begin)));
  DW_RETURN_IF_ERROR(plain.read(begin_ + begin, *buffer));
  return Bytes(*buffer);
}

Status CodedArray::plan_block(const Body& plain, size_t block, std::vector<uint8_t>* buffer) {
  DW_ASSIGN_OR_RETURN(const Bytes own, plain_block(plain, block, buffer));
  plans_[block] = exponents::plan_block(layout_, own);
  return {};
}

bool CodedArray::settle() {
  if (plans_.empty()) return false;
  exponents::Directory directory(layout_, array_bytes_, plans_);
  if (directory.payload_bytes() >= array_bytes_) return false;
  front_ = directory.front();
  directory_ = std::move(directory);
  return true;
}

Status CodedArray::read(const Body& plain, uint64_t begin, uint64_t offset, MutableBytes out,
                        KeptBlocks* kept) const {
  copy_overlap(front_, begin, offset, out);
  const uint64_t end = offset + out.size();
  size_t first = 0, last = directory_->num_blocks();  // binary search for the block at `offset`
  while (first < last) {
    const size_t middle = (first + last) / 2;
    begin + directory_->block_end(middle) <= offset ? first = middle + 1 : last = middle;
  }
  if (coder_ != nullptr) return read_there(first, begin, offset, out, kept);
  std::vector<uint8_t> buffer;
  exponents::BlockWriter writer(layout_);
  for (size_t i = first; i < directory_->num_blocks() && begin + directory_->block_begin(i) < end;
       ++i) {
    const uint64_t at = begin + directory_->block_begin(i);
    const auto copy = [&](uint64_t from, Bytes coded) { copy_overlap(coded, from, offset, out); };
    if (at < offset && kept->find(at, copy)) continue;
    DW_ASSIGN_OR_RETURN(const Bytes own, plain_block(plain, i, &buffer));
    const Bytes coded = writer.write(own, plans_[i].base);
    if (coded.size() != directory_->block_end(i) - directory_->block_begin(i)) {
      return io_error("weights changed while they were published");
    }
    copy(at, coded);
    if (at + coded.size() > end) kept->keep(at, coded);
  }
  return {};
}

// Complete blocks are coded directly into `out`. For partial ones some more blocks are coded and
// kept.
Status CodedArray::read_there(size_t block, uint64_t begin, uint64_t offset, MutableBytes out,
                              KeptBlocks* kept) const {
  const uint64_t end = offset + out.size();
  const auto plans = [&](size_t first, size_t last) {
    return std::span(plans_).subspan(first, last - first);
  };
  const auto copy = [&](uint64_t from, Bytes coded) { copy_overlap(coded, from, offset, out); };
  while (block < directory_->num_blocks() && begin + directory_->block_begin(block) < end) {
    const uint64_t at = begin + directory_->block_begin(block);
    uint64_t known = at;
    kept->find(at, [&](uint64_t from, Bytes coded) {
      copy(from, coded);
      known = from + coded.size();
    });
    if (known > at) {
      block = end_of(block, [&](size_t i) { return begin + directory_->block_begin(i) >= known; });
      continue;
    }
    size_t last = end_of(block, [&](size_t i) {
      return begin + directory_->block_end(i) > end || bytes_between(block, i + 1) > kMostCoded;
    });
    // Each call of the coder takes time.
    const bool direct = at >= offset && last > block &&
                        (bytes_between(block, last) >= kCodedAhead || last == plans_.size());
    if (direct) {
      const size_t size = size_t(bytes_between(block, last));
      DW_RETURN_IF_ERROR(
          coder_->code(block, plans(block, last), out.subspan(size_t(at - offset), size)));
    } else {
      last = end_of(block,
                    [&](size_t i) { return i > block && bytes_between(block, i) >= kCodedAhead; });
      const auto code = [&](MutableBytes to) {
        return coder_->code(block, plans(block, last), to);
      };
      DW_RETURN_IF_ERROR(kept->make(at, size_t(bytes_between(block, last)), code, copy));
    }
    block = last;
  }
  return {};
}

void copy_overlap(Bytes bytes, uint64_t begin, uint64_t offset, MutableBytes out) {
  const uint64_t from = std::max(begin, offset);
  const uint64_t to = std::min(begin + bytes.size(), offset + out.size());
  if (from >= to) return;
  std::memcpy(out.data() + (from - offset), bytes.data() + (from - begin), size_t(to - from));
}

Result<std::shared_ptr<const Body>> code_array(Layout layout, std::shared_ptr<const Body> plain,
                                               ThreadPool* pool) {
  return guard_memory("encoding", [&]() -> Result<std::shared_ptr<const Body>> {
    CodedArray array(layout, 0, plain->size());
    std::vector<std::vector<uint8_t>> buffers(num_workers(pool));
    DW_RETURN_IF_ERROR(parallel_try("encoding", pool, array.num_blocks(),
                                    [&](size_t i, unsigned worker) -> Status {
                                      return array.plan_block(*plain, i, &buffers[worker]);
                                    }));
    if (!array.settle()) return std::shared_ptr<const Body>();
    return std::shared_ptr<const Body>(
        std::make_shared<CodedArrayBody>(std::move(plain), std::move(array)));
  });
}

}  // namespace deltawire
