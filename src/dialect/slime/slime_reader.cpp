#include "dialect/slime/slime_index.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "dialect/dialect.h"
#include "dialect/foreign_file.h"
#include "dialect/frames/frames.h"
#include "dialect/slime/slime_index.h"
#include "tensor/defects.h"
#include "tensor/text.h"

namespace deltawire::slime {
namespace {

using Objects = std::map<std::string, ObjectInfo, std::less<>>;  // by file name

Result<Objects> part_objects(Store& store, const std::string& folder) {
  Objects objects;
  DW_RETURN_IF_ERROR(list_all(store, folder + "/", "", [&](const ObjectInfo& info) {
    const std::string name = info.name.substr(folder.size() + 1);
    if (name.find('/') == name.npos && name.ends_with(kPartEnd)) objects.emplace(name, info);
    return true;
  }));
  return objects;
}

std::string tensor_place(std::string_view name) { return "tensor " + quote(name) + ": "; }

// A tensor of a part: a payload, or the tensor itself.
struct PartTensor {
  ForeignTensor what;
  Bytes body;
  size_t file = 0;  // in Parts::files
};

struct Parts {
  std::vector<ForeignFile> files;
  std::vector<PartTensor> tensors;  // sorted by name
};

class PartsReader {
 public:
  PartsReader(Store& store, std::string folder, const Index& index)
      : store_(store), folder_(std::move(folder)), index_(index) {}

  Result<Parts> read() {
    DW_ASSIGN_OR_RETURN(const Objects objects, part_objects(store_, folder_));
    DW_ASSIGN_OR_RETURN(const auto names, names_to_open(objects));
    for (const std::string& name : names) DW_RETURN_IF_ERROR(add(objects.at(name), name));
    std::ranges::sort(parts_.tensors, {}, [](const PartTensor& t) { return t.what.name; });
    DW_RETURN_IF_ERROR(check_all_there());
    return std::move(parts_);
  }

 private:
  Status bad(const std::string& file, std::string message) const {
    return corruption(store_.url() + "/" + folder_ + "/" + file + ": " + std::move(message));
  }

  // The files that the index lists. For a delta, also all other parts, because slime's readers
  // would apply them.
  Result<std::set<std::string>> names_to_open(const Objects& objects) const {
    std::set<std::string> names;
    for (const IndexEntry& entry : index_.entries) {
      if (!names.insert(entry.file).second || objects.contains(entry.file)) continue;
      return bad(entry.file, std::string(defect::kShardMissing) + " (tensor " +
                                 quote(entry.tensor) + "); its name must end in .safetensors");
    }
    if (!index_.delta) return names;
    for (const auto& [name, info] : objects) names.insert(name);
    return names;
  }

  Status add(const ObjectInfo& object, const std::string& name) {
    DW_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::open(store_, object));
    DW_ASSIGN_OR_RETURN(auto view,
                        located(parse_safetensors(file.bytes(), &header_), file.where()));
    std::unordered_map<std::string_view, std::string_view> digests;
    for (const auto& [key, value] : view.metadata) digests.emplace(key, value);
    for (TensorView& tensor : view.tensors) {
      DW_RETURN_IF_ERROR(check_mapped(tensor.name, name));
      const auto found = digests.find(tensor.name);
      DW_ASSIGN_OR_RETURN(
          ForeignTensor what,
          describe(tensor, name, found == digests.end() ? nullptr : &found->second));
      parts_.tensors.push_back({std::move(what), tensor.bytes, parts_.files.size()});
    }
    parts_.files.push_back(std::move(file));
    return {};
  }

  Status check_mapped(const std::string& tensor, const std::string& file) {
    if (const auto [it, is_new] = seen_.emplace(tensor, file); !is_new) {
      return bad(file, tensor_place(tensor) + std::string(defect::kTensorTwice) + ", this and " +
                           it->second + ": remove the version");
    }
    const auto entry = std::ranges::lower_bound(index_.entries, tensor, {}, &IndexEntry::tensor);
    if (entry == index_.entries.end() || entry->tensor != tensor) {
      return bad(file, tensor_place(tensor) + std::string(defect::kTensorUnmapped));
    }
    // Reported at the end: a tensor in two files is the more precise error.
    if (entry->file != file && misplaced_.ok()) {
      misplaced_ =
          bad(file, tensor_place(tensor) + "the index says that it is in " + quote(entry->file));
    }
    return {};
  }

  Result<ForeignTensor> describe(TensorView& tensor, const std::string& file,
                                 const std::string_view* digest) const {
    ForeignTensor what;
    what.payload_bytes = tensor.bytes.size();
    if (!index_.delta) {
      if (digest != nullptr) {
        return bad(file, tensor_place(tensor.name) +
                             "has a digest, as in a delta, but the index has no delta_encoding");
      }
      what.dtype = tensor.dtype;
      what.shape = std::move(tensor.shape);
    } else {
      if (digest == nullptr) return bad(file, tensor_place(tensor.name) + "has no digest");
      auto parsed = parse_checksum(index_.delta->checksum, *digest);
      if (!parsed.ok()) return bad(file, tensor_place(tensor.name) + parsed.status().message());
      what.checksum = std::move(*parsed);
    }
    what.name = std::move(tensor.name);
    return what;
  }

  Status check_all_there() const {
    DW_RETURN_IF_ERROR(misplaced_);
    for (const IndexEntry& entry : index_.entries) {
      if (seen_.contains(entry.tensor)) continue;
      return bad(entry.file, tensor_place(entry.tensor) + std::string(defect::kTensorMissing));
    }
    return {};
  }

  Store& store_;
  const std::string folder_;
  const Index& index_;
  std::string header_;
  std::unordered_map<std::string, std::string> seen_;  // tensor -> file
  Status misplaced_;
  Parts parts_;
};

std::string describe_spec(DType dtype, const Shape& shape) {
  return std::string(dtype_name(dtype)) + " " + shape_to_string(shape);
}

// A pool of decompressors; reusing one keeps its window in the cache.
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
      return invalid_argument("the checkpoint has a different tensor here: " + quote(spec.name));
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
  DW_ASSIGN_OR_RETURN(auto index, located(parse_slime_index(text, version),
                                          store.url() + "/" + index_name(version)));
  DW_ASSIGN_OR_RETURN(Parts parts, PartsReader(store, folder_name(version), index).read());
  ForeignInfo info = describe_version(version, index, parts, text.size());
  return std::unique_ptr<ForeignVersion>(
      std::make_unique<SlimeVersion>(std::move(info), index.delta, std::move(parts)));
}

}  // namespace deltawire::slime
