
#include <algorithm>

#include "base/guard.h"
#include "codec/choose.h"
#include "diff/coded_array.h"
#include "format/checkpoint_files.h"
#include "format/layout.h"
#include "format/packed_file.h"
#include "tensor/safetensors.h"

namespace deltawire {
namespace {

// Packing must save at least this share, because other tools cannot read packed files.
constexpr uint64_t kLeastPackedGain = 50;  // a fiftieth

struct CodedTensor {
  PackedTensor place;
  CodedArray array;  // not used for a raw tensor
};

class PackedBody final : public Body {
 public:
  static Result<std::shared_ptr<PackedBody>> make(std::shared_ptr<const Body> plain,
                                                  ThreadPool* pool, const CodedThere& there) {
    auto body = std::make_shared<PackedBody>();
    body->plain_ = std::move(plain);
    DW_ASSIGN_OR_RETURN(const SafetensorsHeader header, body->read_header());
    DW_RETURN_IF_ERROR(body->plan(header, pool, there));
    return body;
  }

  uint64_t size() const noexcept override { return size_; }

  Status read(uint64_t offset, MutableBytes out) const override {
    const uint64_t end = offset + out.size();
    copy_overlap(Bytes(reinterpret_cast<const uint8_t*>(front_.data()), front_.size()), 0, offset,
                 out);
    auto at = std::partition_point(tensors_.begin(), tensors_.end(), [&](const CodedTensor& one) {
      return one.place.begin + one.place.size <= offset;
    });
    for (; at != tensors_.end() && at->place.begin < end; ++at) {
      DW_RETURN_IF_ERROR(read_tensor(*at, offset, out));
    }
    return {};
  }

 private:
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

  static Result<CodedArray> array_of(const TensorEntry& entry, const PackedTensor& place,
                                     const CodedThere& there) {
    const Layout layout = layout_of(place.dtype);
    const auto coder = there.coders.find(entry.spec.name);
    if (coder == there.coders.end()) {
      return CodedArray(layout, place.plain_begin, place.plain_size);
    }
    return CodedArray::there(layout, place.plain_size, coder->second);
  }

  Status plan(const SafetensorsHeader& header, ThreadPool* pool, const CodedThere& there) {
    std::vector<std::pair<size_t, size_t>> blocks;  // tensor and block
    std::vector<std::string> names;
    for (const TensorEntry& entry : header.entries) {
      PackedTensor place;
      place.dtype = entry.spec.dtype;
      place.plain_begin = plain_header_.size() + entry.begin;
      place.plain_size = place.size = entry.end - entry.begin;
      DW_ASSIGN_OR_RETURN(CodedArray array, array_of(entry, place, there));
      for (size_t i = 0; i < array.num_blocks(); ++i) blocks.emplace_back(tensors_.size(), i);
      tensors_.push_back({place, std::move(array)});
      names.push_back(entry.spec.name);
    }
    std::vector<std::vector<uint8_t>> buffers(num_workers(pool));
    DW_RETURN_IF_ERROR(
        parallel_try("packing", pool, blocks.size(), [&](size_t i, unsigned worker) -> Status {
          return tensors_[blocks[i].first].array.plan_block(*plain_, blocks[i].second,
                                                            &buffers[worker]);
        }));
    PackedFile file;
    file.plain_header = plain_header_;
    file.plain_bytes = plain_->size();
    for (CodedTensor& tensor : tensors_) {
      if (tensor.array.settle()) {
        tensor.place.codec = CodecId::kExponents;
        tensor.place.size = tensor.array.payload_bytes();
      }
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

  Status read_tensor(const CodedTensor& tensor, uint64_t offset, MutableBytes out) const {
    const uint64_t begin = tensor.place.begin, end = offset + out.size();
    if (tensor.place.codec == CodecId::kExponents) {
      return tensor.array.read(*plain_, begin, offset, out, &kept_);
    }
    const uint64_t from = std::max(begin, offset), to = std::min(begin + tensor.place.size, end);
    return plain_->read(tensor.place.plain_begin + (from - begin),
                        out.subspan(size_t(from - offset), size_t(to - from)));
  }

  std::shared_ptr<const Body> plain_;
  std::string plain_header_, front_;
  std::vector<CodedTensor> tensors_;
  uint64_t size_ = 0;
  mutable KeptBlocks kept_;
};

}  // namespace

Result<std::shared_ptr<const Body>> pack_body(std::shared_ptr<const Body> plain, ThreadPool* pool,
                                              const CodedThere& there) {
  return guard_memory("packing", [&]() -> Result<std::shared_ptr<const Body>> {
    const uint64_t plain_bytes = plain->size();
    DW_ASSIGN_OR_RETURN(std::shared_ptr<const Body> packed,
                        PackedBody::make(std::move(plain), pool, there));
    if (packed->size() > plain_bytes - plain_bytes / kLeastPackedGain) packed = nullptr;
    return packed;
  });
}

Result<Payload> new_tensor_payload(const EncodeItem& item, const std::string& codec, bool stream,
                                   ThreadPool* pool, DeltaEntry* entry) {
  const bool raw = codec == "raw";
  const Layout layout = layout_of(entry->dtype);
  if (!stream) {
    std::vector<uint8_t> bytes(item.size_bytes());
    DW_RETURN_IF_ERROR(item.new_contents->read(0, bytes));
    DW_ASSIGN_OR_RETURN(Choice whole, encode_whole_array(layout, bytes, raw, pool));
    entry->codec = whole.codec;
    return Payload::own(std::move(whole.encoded.payload));
  }
  const Bytes bytes = item.change.new_bytes;
  if (raw) return Payload::of(item.new_contents, bytes);
  DW_ASSIGN_OR_RETURN(std::shared_ptr<const Body> coded,
                      code_array(layout, item.new_contents, pool));
  if (coded == nullptr) return Payload::of(item.new_contents, bytes);
  entry->codec = CodecId::kExponents;
  return Payload::of(coded, bytes.first(size_t(coded->size())));
}

}  // namespace deltawire
