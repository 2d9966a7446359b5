#include "dialect/slime/slime_reader.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "dialect/frames/frames.h"
#include "dialect/slime/slime_index.h"
#include "dialect/slime/slime_parts.h"
#include "tensor/text.h"

namespace deltawire::slime {
namespace {

std::string describe_spec(DType dtype, const Shape& shape) {
  return std::string(dtype_name(dtype)) + " " + shape_to_string(shape);
}

// Decompressors that threads take and give back: their windows are warm.
class Streams {
 public:
  std::unique_ptr<ZstdStream> take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<ZstdStream>();
    auto stream = std::move(free_.back());
    free_.pop_back();
    return stream;
  }
  void give(std::unique_ptr<ZstdStream> stream) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(stream));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<ZstdStream>> free_;
};

class SlimeVersion final : public ForeignVersion {
 public:
  SlimeVersion(ForeignInfo info, std::optional<Delta> delta, Parts parts)
      : info_(std::move(info)), delta_(delta), parts_(std::move(parts)) {}

  const ForeignInfo& info() const noexcept override { return info_; }

  Status apply(size_t index, const TensorSpec& spec, MutableBytes bytes,
               ThreadPool*) const override {
    if (index >= parts_.tensors.size()) return invalid_argument("no such tensor in the version");
    const PartTensor& tensor = parts_.tensors[index];
    Status status = check_spec(tensor, spec, bytes.size());
    if (status.ok()) status = delta_ ? patch(tensor, bytes) : copy(tensor, bytes);
    if (status.ok()) return status;
    return std::move(status).at(parts_.files[tensor.file].where() + ", tensor " +
                                quote(tensor.what.name));
  }

  Status check_unchanged() const override {
    for (const ForeignFile& file : parts_.files) DW_RETURN_IF_ERROR(file.check_unchanged());
    return {};
  }

 private:
  static Status check_spec(const PartTensor& tensor, const TensorSpec& spec, size_t size_bytes) {
    if (spec.name != tensor.what.name) {
      return invalid_argument("the checkpoint's tensor is another: " + quote(spec.name));
    }
    DW_ASSIGN_OR_RETURN(const uint64_t expected, tensor_size_bytes(spec.dtype, spec.shape));
    if (expected != size_bytes) {
      return invalid_argument(describe_spec(spec.dtype, spec.shape) + " takes " +
                              std::to_string(expected) + " bytes, got " +
                              std::to_string(size_bytes));
    }
    if (!tensor.what.dtype ||
        (*tensor.what.dtype == spec.dtype && *tensor.what.shape == spec.shape)) {
      return {};
    }
    return invalid_argument("the checkpoint has " + describe_spec(spec.dtype, spec.shape) +
                            ", the file " + describe_spec(*tensor.what.dtype, *tensor.what.shape));
  }

  static Status copy(const PartTensor& tensor, MutableBytes bytes) {
    std::ranges::copy(tensor.body, bytes.begin());
    return {};
  }

  Status patch(const PartTensor& tensor, MutableBytes bytes) const {
    std::unique_ptr<ZstdStream> zstd = streams_.take();
    Checksummer checksummer(delta_->checksum);
    const auto patch_frame = delta_->overwrite ? patch_overwrite_frame : patch_xor_frame;
    DW_RETURN_IF_ERROR(patch_frame(tensor.body, bytes, zstd.get(), &checksummer));
    streams_.give(std::move(zstd));
    const Checksum got = checksummer.finish();
    if (got == *tensor.what.checksum) return {};
    return corruption(info_.checksum + " expected " + tensor.what.checksum->hex + ", got " +
                      got.hex + ": the part is damaged, or what was patched is not version " +
                      std::to_string(delta_->base));
  }

  const ForeignInfo info_;
  const std::optional<Delta> delta_;
  const Parts parts_;
  mutable Streams streams_;
};

Result<std::string> read_index(Store& store, uint64_t version) {
  auto text = store.get(index_name(version), kMaxIndexBytes);
  if (text.ok() || text.status().code() != Code::kNotFound) return text;
  return not_found(store.url() + "/" + folder_name(version) + ": there is no " +
                   std::string(kIndexFileName) +
                   ", which is written last: there is no such version, it is not finished yet, or "
                   "its writer was killed");
}

ForeignInfo describe_version(uint64_t version, const Index& index, const Parts& parts,
                             uint64_t index_bytes) {
  ForeignInfo info;
  info.version = version;
  info.full = !index.delta;
  info.encoding = kFull;
  if (index.delta) {
    info.base = index.delta->base;
    info.encoding = index.delta->overwrite ? kOverwrite : kXor;
    info.checksum = checksum_name(index.delta->checksum);
  }
  info.num_files = parts.files.size() + 1;
  info.file_bytes = index_bytes;
  for (const ForeignFile& file : parts.files) {
    info.file_bytes += file.bytes().size();
    info.content += file.sample();
  }
  for (const PartTensor& tensor : parts.tensors) info.tensors.push_back(tensor.what);
  return info;
}

}  // namespace

Result<std::unique_ptr<ForeignVersion>> open_version(Store& store, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const std::string text, read_index(store, version));
  auto index = parse_slime_index(text, version);
  if (!index.ok()) {
    return std::move(index).status().at(store.url() + "/" + index_name(version));
  }
  DW_ASSIGN_OR_RETURN(Parts parts, open_parts(store, version, *index));
  ForeignInfo info = describe_version(version, *index, parts, text.size());
  return std::unique_ptr<ForeignVersion>(
      std::make_unique<SlimeVersion>(std::move(info), index->delta, std::move(parts)));
}

}  // namespace deltawire::slime
