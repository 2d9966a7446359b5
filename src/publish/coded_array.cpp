#include "publish/coded_array.h"

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
    return guard_memory("encoding",
                        [&]() -> Status { return array_.read(*plain_, 0, offset, out, &kept_); });
  }

 private:
  const std::shared_ptr<const Body> plain_;
  const CodedArray array_;
  mutable KeptBlock kept_;
};

}  // namespace

CodedArray::CodedArray(Layout layout, uint64_t begin, uint64_t array_bytes)
    : layout_(layout), begin_(begin), array_bytes_(array_bytes) {
  if (!exponents::form_of(layout)) return;
  const uint64_t block_bytes = exponents::kBlockElements * layout.width;
  plans_.resize(size_t((array_bytes + block_bytes - 1) / block_bytes));
}

Result<Bytes> CodedArray::plain_block(const Body& plain, size_t block,
                                      std::vector<uint8_t>* room) const {
  const uint64_t block_bytes = exponents::kBlockElements * layout_.width;
  const uint64_t begin = block * block_bytes;
  room->resize(size_t(std::min(block_bytes, array_bytes_ - begin)));
  DW_RETURN_IF_ERROR(plain.read(begin_ + begin, *room));
  return Bytes(*room);
}

Status CodedArray::plan_block(const Body& plain, size_t block, std::vector<uint8_t>* room) {
  DW_ASSIGN_OR_RETURN(const Bytes own, plain_block(plain, block, room));
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
                        KeptBlock* kept) const {
  copy_overlap(front_, begin, offset, out);
  const uint64_t end = offset + out.size();
  size_t first = 0, last = directory_->num_blocks();  // by bisection: which block has `offset`?
  while (first < last) {
    const size_t middle = (first + last) / 2;
    begin + directory_->block_end(middle) <= offset ? first = middle + 1 : last = middle;
  }
  std::vector<uint8_t> room;
  exponents::BlockWriter writer(layout_);
  for (size_t i = first; i < directory_->num_blocks() && begin + directory_->block_begin(i) < end;
       ++i) {
    const uint64_t at = begin + directory_->block_begin(i);
    const auto copy = [&](Bytes coded) { copy_overlap(coded, at, offset, out); };
    if (at < offset && kept->find(at, copy)) continue;
    DW_ASSIGN_OR_RETURN(const Bytes own, plain_block(plain, i, &room));
    const Bytes coded = writer.write(own, plans_[i].base);
    if (coded.size() != directory_->block_end(i) - directory_->block_begin(i)) {
      return io_error("weights change while they are published");
    }
    copy(coded);
    if (at + coded.size() > end) kept->keep(at, coded);
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
    std::vector<std::vector<uint8_t>> rooms(num_workers(pool));
    DW_RETURN_IF_ERROR(parallel_try("encoding", pool, array.num_blocks(),
                                    [&](size_t i, unsigned worker) -> Status {
                                      return array.plan_block(*plain, i, &rooms[worker]);
                                    }));
    if (!array.settle()) return std::shared_ptr<const Body>();
    return std::shared_ptr<const Body>(
        std::make_shared<CodedArrayBody>(std::move(plain), std::move(array)));
  });
}

}  // namespace deltawire
