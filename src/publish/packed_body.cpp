#include "publish/packed_body.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "base/guard.h"
#include "codec/exponents.h"
#include "format/checkpoint_files.h"
#include "format/layout.h"
#include "format/packed_file.h"
#include "tensor/safetensors.h"

namespace deltawire {
namespace {

using exponents::BlockPlan;

// Less than this is not worth that nobody can read the file directly.
constexpr uint64_t kLeastGain = 50;  // a fiftieth

struct CodedTensor {
  PackedTensor place;
  Layout layout;
  std::vector<BlockPlan> plans;  // none: raw
  std::optional<exponents::Directory> directory;
  std::vector<uint8_t> front;  // of the payload

  uint64_t block_bytes() const { return exponents::kBlockElements * layout.width; }
};

class PackedBody final : public Body {
 public:
  static Result<std::shared_ptr<PackedBody>> make(std::shared_ptr<const Body> plain,
                                                  ThreadPool* pool) {
    auto body = std::make_shared<PackedBody>();
    body->plain_ = std::move(plain);
    DW_ASSIGN_OR_RETURN(const SafetensorsHeader header, body->read_header());
    DW_RETURN_IF_ERROR(body->plan(header, pool));
    return body;
  }

  uint64_t size() const noexcept override { return size_; }

  Status read(uint64_t offset, MutableBytes out) const override {
    return guard_memory("packing", [&]() -> Status {
      const uint64_t end = offset + out.size();
      copy_from(Bytes(reinterpret_cast<const uint8_t*>(front_.data()), front_.size()), 0, offset,
                out);
      auto at = std::partition_point(tensors_.begin(), tensors_.end(), [&](const CodedTensor& one) {
        return one.place.begin + one.place.size <= offset;
      });
      for (; at != tensors_.end() && at->place.begin < end; ++at) {
        DW_RETURN_IF_ERROR(read_tensor(*at, offset, out));
      }
      return {};
    });
  }

 private:
  // The part of `out`, which begins at `offset` of the file, that `bytes` at `begin` have.
  static void copy_from(Bytes bytes, uint64_t begin, uint64_t offset, MutableBytes out) {
    const uint64_t from = std::max(begin, offset);
    const uint64_t to = std::min(begin + bytes.size(), offset + out.size());
    if (from >= to) return;
    std::memcpy(out.data() + (from - offset), bytes.data() + (from - begin), size_t(to - from));
  }

  Result<SafetensorsHeader> read_header() {
    uint8_t length_bytes[sizeof(uint64_t)];
    if (plain_->size() < sizeof length_bytes) return corruption("cut short");
    DW_RETURN_IF_ERROR(plain_->read(0, length_bytes));
    const auto length = load_le<uint64_t>(length_bytes);
    if (length > std::min(kMaxHeaderBytes, plain_->size() - sizeof length_bytes)) {
      return corruption("a header of " + std::to_string(length) + " bytes");
    }
    std::vector<uint8_t> header(sizeof length_bytes + size_t(length));
    DW_RETURN_IF_ERROR(plain_->read(0, header));
    plain_header_.assign(header.begin(), header.end());
    return parse_safetensors_header(std::string_view(plain_header_).substr(sizeof length_bytes),
                                    plain_->size() - header.size());
  }

  Status plan(const SafetensorsHeader& header, ThreadPool* pool) {
    std::vector<std::pair<size_t, size_t>> blocks;  // of which tensor
    std::vector<std::string> names;
    for (const TensorEntry& entry : header.entries) {
      CodedTensor tensor;
      tensor.layout = layout_of(entry.spec.dtype);
      tensor.place.dtype = entry.spec.dtype;
      tensor.place.plain_begin = plain_header_.size() + entry.begin;
      tensor.place.plain_size = entry.end - entry.begin;
      if (exponents::form_of(tensor.layout)) {
        tensor.plans.resize(
            size_t((tensor.place.plain_size + tensor.block_bytes() - 1) / tensor.block_bytes()));
      }
      for (size_t i = 0; i < tensor.plans.size(); ++i) blocks.emplace_back(tensors_.size(), i);
      tensors_.push_back(std::move(tensor));
      names.push_back(entry.spec.name);
    }
    std::vector<std::vector<uint8_t>> rooms(num_workers(pool));
    DW_RETURN_IF_ERROR(
        parallel_try("packing", pool, blocks.size(), [&](size_t i, unsigned worker) -> Status {
          CodedTensor& tensor = tensors_[blocks[i].first];
          DW_ASSIGN_OR_RETURN(const Bytes own,
                              plain_block(tensor, blocks[i].second, &rooms[worker]));
          tensor.plans[blocks[i].second] = exponents::plan_block(tensor.layout, own);
          return {};
        }));
    PackedFile file;
    file.plain_header = plain_header_;
    file.plain_bytes = plain_->size();
    for (CodedTensor& tensor : tensors_) {
      settle(&tensor);
      file.tensors.push_back(tensor.place);
    }
    DW_ASSIGN_OR_RETURN(front_, serialise_packed_front(names, &file));
    size_ = front_.size();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      tensors_[i].place.begin = file.tensors[i].begin;
      size_ += file.tensors[i].size;
    }
    return {};
  }

  static void settle(CodedTensor* tensor) {
    PackedTensor& place = tensor->place;
    place.size = place.plain_size;
    if (tensor->plans.empty()) return;
    exponents::Directory directory(tensor->layout, place.plain_size, tensor->plans);
    if (directory.payload_bytes() >= place.plain_size) {
      tensor->plans.clear();
      return;
    }
    place.codec = CodecId::kExponents;
    place.size = directory.payload_bytes();
    tensor->front = directory.front();
    tensor->directory = std::move(directory);
  }

  Result<Bytes> plain_block(const CodedTensor& tensor, size_t block,
                            std::vector<uint8_t>* room) const {
    const uint64_t begin = block * tensor.block_bytes();
    room->resize(size_t(std::min(tensor.block_bytes(), tensor.place.plain_size - begin)));
    DW_RETURN_IF_ERROR(plain_->read(tensor.place.plain_begin + begin, *room));
    return Bytes(*room);
  }

  Status read_tensor(const CodedTensor& tensor, uint64_t offset, MutableBytes out) const {
    const uint64_t begin = tensor.place.begin, end = offset + out.size();
    if (!tensor.directory) {
      const uint64_t from = std::max(begin, offset), to = std::min(begin + tensor.place.size, end);
      return plain_->read(tensor.place.plain_begin + (from - begin),
                          out.subspan(size_t(from - offset), size_t(to - from)));
    }
    copy_from(tensor.front, begin, offset, out);
    const exponents::Directory& directory = *tensor.directory;
    size_t first = 0, last = directory.num_blocks();  // by bisection: which block has `offset`?
    while (first < last) {
      const size_t middle = (first + last) / 2;
      begin + directory.block_end(middle) <= offset ? first = middle + 1 : last = middle;
    }
    std::vector<uint8_t> room;
    exponents::BlockWriter writer(tensor.layout);
    for (size_t i = first; i < directory.num_blocks() && begin + directory.block_begin(i) < end;
         ++i) {
      const uint64_t at = begin + directory.block_begin(i);
      const size_t size = size_t(directory.block_end(i) - directory.block_begin(i));
      DW_RETURN_IF_ERROR(read_block(tensor, i, {at, size}, {offset, out}, &writer, &room));
    }
    return {};
  }

  struct BlockPlace {
    uint64_t at;
    size_t size;
  };
  struct Wanted {
    uint64_t offset;
    MutableBytes out;
  };
  // Readers come from front to end, in pieces that end inside a block: that one is kept.
  Status read_block(const CodedTensor& tensor, size_t block, BlockPlace place, Wanted wanted,
                    exponents::BlockWriter* writer, std::vector<uint8_t>* room) const {
    const bool cut = place.at < wanted.offset;
    if (cut) {
      const std::lock_guard lock(mutex_);
      if (kept_at_ == place.at) {
        copy_from(kept_, place.at, wanted.offset, wanted.out);
        return {};
      }
    }
    DW_ASSIGN_OR_RETURN(const Bytes own, plain_block(tensor, block, room));
    const Bytes coded = writer->write(own, tensor.plans[block].base);
    if (coded.size() != place.size) return io_error("weights change while they are published");
    copy_from(coded, place.at, wanted.offset, wanted.out);
    if (place.at + place.size > wanted.offset + wanted.out.size()) {
      const std::lock_guard lock(mutex_);
      kept_.assign(coded.begin(), coded.end());
      kept_at_ = place.at;
    }
    return {};
  }

  std::shared_ptr<const Body> plain_;
  std::string plain_header_, front_;
  std::vector<CodedTensor> tensors_;
  uint64_t size_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<uint8_t> kept_;
  mutable uint64_t kept_at_ = UINT64_MAX;
};

}  // namespace

Result<std::shared_ptr<const Body>> pack_body(std::shared_ptr<const Body> plain, ThreadPool* pool) {
  return guard_memory("packing", [&]() -> Result<std::shared_ptr<const Body>> {
    const uint64_t plain_bytes = plain->size();
    DW_ASSIGN_OR_RETURN(std::shared_ptr<const Body> packed,
                        PackedBody::make(std::move(plain), pool));
    if (packed->size() > plain_bytes - plain_bytes / kLeastGain) packed = nullptr;
    return packed;
  });
}

Status pack_files(std::vector<FullFile>* files, ThreadPool* pool) {
  for (FullFile& file : *files) {
    if (!file.name.ends_with(kSafetensorsSuffix)) continue;
    DW_ASSIGN_OR_RETURN(std::shared_ptr<const Body> packed, pack_body(file.body, pool));
    if (packed == nullptr) continue;
    file.body = std::move(packed);
    file.name += kPackedSuffix;
  }
  return {};
}

}  // namespace deltawire
