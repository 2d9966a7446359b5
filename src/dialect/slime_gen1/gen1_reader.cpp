#include "dialect/slime_gen1/gen1_reader.h"

#include <algorithm>

#include "dialect/slime_gen1/gen1_file.h"
#include "dialect/slime_gen1/gen1_folder.h"
#include "tensor/text.h"

namespace deltawire::gen1 {
namespace {

// Where a tensor's changes are.
struct Place {
  const File* file = nullptr;
  const Param* param = nullptr;
};

class Version final : public ForeignVersion {
 public:
  Version(const Folder& folder, std::vector<File> files) : files_(std::move(files)) {
    info_.version = folder.version;
    info_.sealed = folder.sealed;
    info_.num_files = files_.size();
    for (const File& file : files_) {
      info_.file_bytes += file.file.bytes().size();
      info_.content += file.file.sample();
      info_.base = file.base;
      info_.encoding = file.encoding;
      if (file.has_checksum) info_.checksum = kChecksum;
      for (const Param& param : file.params) places_.push_back({&file, &param});
    }
    std::ranges::sort(places_, {}, [](const Place& place) { return place.param->spec.name; });
    for (const Place& place : places_) {
      const Param& param = *place.param;
      info_.tensors.push_back({param.spec.name, param.spec.dtype, param.spec.shape,
                               param.positions.bytes.size() + param.values.size()});
    }
  }

  Status check() const {
    for (const File& file : files_) {
      const std::string& where = file.file.where();
      if (file.version != info_.version) {
        return corruption(where + ": metadata \"current_version\": expected " +
                          std::to_string(info_.version) + ", got " + std::to_string(file.version));
      }
      if (file.encoding != info_.encoding || file.base != info_.base) {
        return corruption(where + ": encoding or base is not that of " +
                          files_.back().file.where());
      }
    }
    for (size_t i = 1; i < places_.size(); ++i) {
      if (info_.tensors[i].name == info_.tensors[i - 1].name) {
        return corruption("tensor " + quote(info_.tensors[i].name) +
                          " is in two files: " + places_[i - 1].file->file.where() + " and " +
                          places_[i].file->file.where());
      }
    }
    return {};
  }

  const ForeignInfo& info() const noexcept override { return info_; }

  Status apply(size_t index, const TensorSpec& spec, MutableBytes bytes,
               ThreadPool*) const override {
    const Place& at = places_[index];
    return patch(*at.file, *at.param, spec, bytes)
        .at(at.file->file.where() + ", tensor " + quote(at.param->spec.name));
  }

  Status check_unchanged() const override {
    for (const File& file : files_) DW_RETURN_IF_ERROR(file.file.check_unchanged());
    return {};
  }

 private:
  static Status patch(const File& file, const Param& param, const TensorSpec& spec,
                      MutableBytes bytes) {
    if (spec.dtype != param.spec.dtype || spec.shape != param.spec.shape) {
      return invalid_argument("it changes " + std::string(dtype_name(param.spec.dtype)) + " " +
                              shape_to_string(param.spec.shape) + ", the checkpoint has " +
                              std::string(dtype_name(spec.dtype)) + " " +
                              shape_to_string(spec.shape));
    }
    const unsigned width = dtype_bits(spec.dtype) / 8;
    if (file.values_dtype == spec.dtype) {
      return scatter_sparse(param.positions, width, param.values, bytes);
    }
    DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> values, param_values(file, param));
    return scatter_sparse(param.positions, width, values, bytes);
  }

  std::vector<File> files_;
  std::vector<Place> places_;  // as info_.tensors
  ForeignInfo info_;
};

}  // namespace

Result<std::unique_ptr<ForeignVersion>> open_version(Store& store, uint64_t version) {
  DW_ASSIGN_OR_RETURN(const Folder folder, list_folder(store, version));
  if (!folder.temporary.empty()) {
    return unavailable(store.url() + "/" + folder.temporary + ": the version is being written");
  }
  std::vector<File> files;
  for (const ObjectInfo& info : folder.files) {
    DW_ASSIGN_OR_RETURN(ForeignFile file, ForeignFile::open(store, info));
    DW_ASSIGN_OR_RETURN(File opened, open_file(std::move(file)));
    files.push_back(std::move(opened));
  }
  auto opened = std::make_unique<Version>(folder, std::move(files));
  DW_RETURN_IF_ERROR(opened->check());
  return std::unique_ptr<ForeignVersion>(std::move(opened));
}

}  // namespace deltawire::gen1
