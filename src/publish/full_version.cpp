#include "publish/full_version.h"

#include <algorithm>
#include <cstring>

#include "base/file.h"
#include "base/sync_point.h"
#include "diff/coded_array.h"
#include "format/checkpoint_files.h"
#include "store/bodies.h"
#include "tensor/box.h"
#include "tensor/sharded_index.h"
#include "tensor/text.h"
#include "transfer/fetch.h"
#include "transfer/read_ahead.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
// PEFT's file name for an adapter, which engines expect.
constexpr std::string_view kAdapterFile = "adapter_model.safetensors";

// One safetensors file whose tensors are assembled from pieces.
class ShardBody final : public Body {
 public:
  static Result<std::shared_ptr<const Body>> make(std::vector<WholeTensor> tensors) {
    std::vector<TensorSpec> specs;
    for (const WholeTensor& tensor : tensors) specs.push_back(tensor.spec);
    auto body = std::make_shared<ShardBody>();
    // transformers requires the framework to be named.
    DW_ASSIGN_OR_RETURN(body->header_, serialise_safetensors_header(specs, {{"format", "pt"}}));
    body->size_ = body->header_.size();
    for (WholeTensor& tensor : tensors) {
      DW_ASSIGN_OR_RETURN(const uint64_t size,
                          tensor_size_bytes(tensor.spec.dtype, tensor.spec.shape));
      if (size == 0) continue;
      Placed placed{body->size_, size, {}};
      for (WholeTensor::Piece& piece : tensor.pieces) {
        placed.pieces.push_back(
            {BoxRows(piece.box, tensor.spec.dtype, tensor.spec.shape), std::move(piece.contents)});
      }
      body->tensors_.push_back(std::move(placed));
      body->size_ += size;
    }
    return std::shared_ptr<const Body>(std::move(body));
  }

  uint64_t size() const noexcept override { return size_; }

  Status read(uint64_t offset, MutableBytes out) const override {
    if (offset < header_.size()) {
      const size_t count = size_t(std::min<uint64_t>(header_.size() - offset, out.size()));
      std::memcpy(out.data(), header_.data() + offset, count);
      offset += count;
      out = out.subspan(count);
    }
    auto at = std::upper_bound(tensors_.begin(), tensors_.end(), offset,
                               [](uint64_t value, const Placed& t) { return value < t.begin; });
    while (!out.empty()) {
      const Placed& tensor = *--at;
      const uint64_t skip = offset - tensor.begin;
      const size_t count = size_t(std::min<uint64_t>(tensor.size - skip, out.size()));
      for (const PlacedPiece& piece : tensor.pieces) {
        DW_RETURN_IF_ERROR(read_piece(piece, skip, out.first(count)));
      }
      offset += count;
      out = out.subspan(count);
      at += 2;
    }
    return {};
  }

 private:
  struct PlacedPiece {
    BoxRows rows;
    std::shared_ptr<const Body> contents;
  };
  struct Placed {
    uint64_t begin, size;
    std::vector<PlacedPiece> pieces;
  };

  // Copies the piece's share of the tensor's bytes, starting at `begin`.
  static Status read_piece(const PlacedPiece& piece, uint64_t begin, MutableBytes out) {
    const uint64_t end = begin + out.size(), row_bytes = piece.rows.row_bytes();
    for (uint64_t row = piece.rows.first_behind(begin); row < piece.rows.count(); ++row) {
      const uint64_t position = piece.rows.position(row);
      if (position >= end) break;
      const uint64_t from = std::max(begin, position), to = std::min(end, position + row_bytes);
      DW_RETURN_IF_ERROR(
          piece.contents->read(row * row_bytes + (from - position),
                               out.subspan(size_t(from - begin), size_t(to - from))));
    }
    return {};
  }

  std::string header_;
  std::vector<Placed> tensors_;
  uint64_t size_ = 0;
};

// Wide elements first, so that all are aligned, then by name: the order of Hugging Face.
void sort_for_file(std::vector<WholeTensor>* tensors) {
  std::sort(tensors->begin(), tensors->end(), [](const WholeTensor& a, const WholeTensor& b) {
    const uint32_t a_bits = dtype_bits(a.spec.dtype), b_bits = dtype_bits(b.spec.dtype);
    return a_bits != b_bits ? a_bits > b_bits : a.spec.name < b.spec.name;
  });
}

// Whether the names are those of an adapter saved by PEFT. Inside a model the names include the
// adapter's name.
bool is_adapter(const std::vector<std::string_view>& names) {
  bool has_lora = false;
  for (const std::string_view name : names) {
    if (!name.starts_with("base_model.model.")) return false;
    has_lora |= name.ends_with(".lora_A.weight") || name.ends_with(".lora_embedding_A");
  }
  return has_lora;
}

std::string shard_name(size_t number, size_t of) {
  char text[64];
  std::snprintf(text, sizeof text, "model-%05zu-of-%05zu.safetensors", number + 1, of);
  return text;
}

// Counts the bytes that are read.
class CountingBody final : public Body {
 public:
  CountingBody(const Body& body, std::atomic<uint64_t>* count) : body_(body), count_(count) {}
  uint64_t size() const noexcept override { return body_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override {
    *count_ += out.size();
    return body_.read(offset, out);
  }

 private:
  const Body& body_;
  std::atomic<uint64_t>* const count_;
};

// Whether the store and every reader accept the names.
bool names_fit(const Checkpoint& checkpoint) {
  std::vector<NamedSize> files;
  for (const CheckpointFile& file : checkpoint.files()) {
    if (!check_object_name(file.name).ok()) return false;
    files.push_back({file.name, file.bytes.size()});
  }
  return check_weights_files(files).ok();
}

}  // namespace

Result<std::vector<FullFile>> lay_out_checkpoint(std::vector<WholeTensor> tensors,
                                                 uint64_t shard_bytes) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const WholeTensor& a, const WholeTensor& b) {
    return a.spec.name < b.spec.name;
  });
  std::vector<std::string_view> names;
  for (const WholeTensor& tensor : tensors) names.push_back(tensor.spec.name);
  const bool adapter = is_adapter(names);
  // PEFT and engines do not support adapters in several files
  if (adapter) shard_bytes = UINT64_MAX;
  std::vector<std::vector<WholeTensor>> shards(1);
  uint64_t filled = 0, total = 0;
  for (WholeTensor& tensor : tensors) {
    if (!shards.back().empty() && shards.back().back().spec.name == tensor.spec.name) {
      std::move(tensor.pieces.begin(), tensor.pieces.end(),
                std::back_inserter(shards.back().back().pieces));
      continue;
    }
    DW_ASSIGN_OR_RETURN(const uint64_t size,
                        tensor_size_bytes(tensor.spec.dtype, tensor.spec.shape));
    if (filled != 0 && size > shard_bytes - std::min(filled, shard_bytes)) {
      shards.emplace_back();
      filled = 0;
    }
    filled += size;
    total += size;
    shards.back().push_back(std::move(tensor));
  }
  std::vector<FullFile> files;
  std::vector<IndexEntry> index;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shards.size() > 1 ? shard_name(i, shards.size())
                             : adapter         ? std::string(kAdapterFile)
                                               : std::string(kSingleFile);
    for (const WholeTensor& tensor : shards[i]) index.push_back({tensor.spec.name, name});
    sort_for_file(&shards[i]);
    DW_ASSIGN_OR_RETURN(std::shared_ptr<const Body> body, ShardBody::make(std::move(shards[i])));
    files.push_back({name, std::move(body)});
  }
  if (files.size() > 1) {
    DW_ASSIGN_OR_RETURN(std::string text, serialise_index(index, total));
    files.push_back({std::string(kIndexFileName), OwnedBody::of(std::move(text))});
  }
  return files;
}

Result<std::vector<FullFile>> files_of_checkpoint(const Checkpoint& checkpoint,
                                                  const Contents& contents) {
  if (checkpoint.has_index() && !names_fit(checkpoint)) {
    std::vector<WholeTensor> tensors;
    for (size_t i = 0; i < contents.size(); ++i) {
      const TensorView& view = checkpoint.tensors()[i].view;
      tensors.push_back({view, {{{}, contents[i]}}});
    }
    return lay_out_checkpoint(std::move(tensors));
  }
  std::vector<std::string_view> names;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) names.push_back(tensor.view.name);
  const std::string_view single = is_adapter(names) ? kAdapterFile : kSingleFile;
  std::vector<FullFile> files;
  for (const CheckpointFile& file : checkpoint.files()) {
    const std::string name = checkpoint.has_index() ? file.name : std::string(single);
    std::vector<std::shared_ptr<const Body>> bodies = {OwnedBody::of(file.header)};
    for (const size_t tensor : file.tensors) bodies.push_back(contents[tensor]);
    files.push_back({name, std::make_shared<JoinedBody>(std::move(bodies))});
  }
  if (checkpoint.has_index()) {
    files.push_back({std::string(kIndexFileName), OwnedBody::of(checkpoint.index_text())});
  }
  return files;
}

Status pack_files(std::vector<FullFile>* files, ThreadPool* pool, const CodedThere& there) {
  for (FullFile& file : *files) {
    if (!file.name.ends_with(kSafetensorsSuffix)) continue;
    DW_ASSIGN_OR_RETURN(std::shared_ptr<const Body> packed, pack_body(file.body, pool, there));
    if (packed == nullptr) continue;
    file.plain = std::exchange(file.body, std::move(packed));
    file.name += kPackedSuffix;
  }
  return {};
}

uint64_t total_bytes(const std::vector<FullFile>& files) {
  uint64_t total = 0;
  for (const FullFile& file : files) total += file.body->size();
  return total;
}

FullUpload::FullUpload(Store& store, std::string folder, std::vector<FullFile> files,
                       PublishClock clock, Progress progress)
    : store_(store), files_(std::move(files)) {
  for (const FullFile& file : files_) {
    parts_.push_back({folder + file.name, file.body->size(), {}});
  }
  const uint64_t total = total_bytes(files_);
  queue_ = std::make_unique<UploadQueue>("uploading", objects_at_once(), UINT64_MAX, clock,
                                         [this, total, progress = std::move(progress)] {
                                           return !progress ||
                                                  progress(std::min(read_.load(), total), total);
                                         });
  for (size_t i = 0; i < files_.size(); ++i) {
    // Cannot fail, because the queue is not limited. finish() reports failures of the jobs.
    (void)queue_->push(0, [this, i, stop = &queue_->stopping()] { return put(i, *stop); });
  }
}

FullUpload::~FullUpload() {
  if (!finished_) abandon();
}

Status FullUpload::put(size_t file, const std::atomic<bool>& stop) {
  const StoppableBody stoppable(*files_[file].body, stop);
  ReadAhead ahead(stoppable);
  const CountingBody counting(ahead, &read_);
  DW_SYNC_POINT("full: before put");
  DW_RETURN_IF_ERROR(store_.put(parts_[file].name, counting));
  DW_SYNC_POINT("full: after put");
  DW_ASSIGN_OR_RETURN(parts_[file].sha256, ahead.sha256());
  return {};
}

Result<std::vector<PartRef>> FullUpload::finish() {
  DW_RETURN_IF_ERROR(queue_->finish());
  for (const FullFile& file : files_) {
    if (file.check_unchanged) DW_RETURN_IF_ERROR(file.check_unchanged());
  }
  finished_ = true;
  return parts_;
}

void FullUpload::abandon() {
  queue_.reset();
  for (const PartRef& part : parts_) (void)store_.remove(part.name);
  finished_ = true;
}

}  // namespace deltawire
