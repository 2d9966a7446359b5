#include "dialect/slime_gen1/gen1_version.h"

#include <algorithm>
#include <array>

#include "dialect/foreign_file.h"
#include "dialect/slime_gen1/gen1_file.h"
#include "dialect/slime_gen1/gen1_folder.h"
#include "dialect/slime_gen1/gen1_params.h"
#include "dialect/slime_gen1/gen1_values.h"
#include "dialect/sparse_changes.h"
#include "tensor/form.h"
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
    if (!same_form(spec, param.spec)) {
      return invalid_argument("it changes " + form_of(param.spec) + ", the checkpoint has " +
                              form_of(spec));
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

namespace {

constexpr std::string_view kWayOut = "deltawire export slime";
constexpr std::array kEncodings = {kIndices, kDeltas, kDeltasZstd};

Status check_options(const ForeignOptions& options) {
  if (!options.encoding.empty() && std::ranges::count(kEncodings, options.encoding) == 0) {
    return invalid_argument("encoding \"" + options.encoding +
                            "\": slime-gen1 has indices, deltas and deltas_zstd");
  }
  if (!options.checksum.empty() && options.checksum != kChecksum) {
    return invalid_argument("checksum \"" + options.checksum + "\": slime-gen1 has xor alone");
  }
  if (options.buffer_bytes == 0) return invalid_argument("the buffer size is 0");
  return {};
}

Status check_draft(const ForeignDraft& draft) {
  if (draft.full || draft.version == 0) {
    return unsupported("slime-gen1 cannot hold version " + std::to_string(draft.version) +
                       " whole; way out: " + std::string(kWayOut));
  }
  DW_RETURN_IF_ERROR(check_sparse_draft(draft, "slime-gen1", kWayOut));
  for (const TensorSpec& spec : draft.tensors) {
    if (torch_dtype_name(spec.dtype).empty()) {
      return unsupported("tensor " + quote(spec.name) + ": slime-gen1 has no dtype for " +
                         std::string(dtype_name(spec.dtype)) +
                         "; way out: " + std::string(kWayOut));
    }
  }
  return {};
}

// While a version is written, `rank0000.tmp` lies in its folder. Readers of theirs do not see it;
// ours take the folder for unfinished; and what a killed process left can be told from a version
// of someone else.
class Writer final : public ForeignWriter {
 public:
  Writer(std::shared_ptr<Store> store, const ForeignDraft& draft, const ForeignOptions& options)
      : store_(std::move(store)),
        order_(draft),
        options_(options),
        version_(draft.version),
        folder_(folder_name(draft.version) + "/"),
        note_(folder_ + "rank" + padded_number(options.rank, 4) + ".tmp") {
    if (options_.encoding.empty()) options_.encoding = kIndices;
  }

  ~Writer() override {
    if (!begun_ || finished_) return;
    // DONE first: it says that all files are there. One that another process put says it of files
    // of the same names.
    if (done_tried_ ? !store_->remove(done_name()).ok()
                    : store_->stat(done_name()).status().code() != Code::kNotFound) {
      return;
    }
    if (remove_files(put_).ok() && remove_files(left_over_).ok())
      static_cast<void>(store_->remove(note_));
  }

  Status begin() {
    bool taken = false, left_over = false, done = false;
    const std::string rank = folder_ + "rank" + padded_number(options_.rank, 4);
    DW_RETURN_IF_ERROR(list_all(*store_, folder_, "", [&](const ObjectInfo& info) {
      if (info.name == note_) {
        left_over = true;
      } else if (info.name == done_name()) {
        done = true;
      } else if (info.name.starts_with(rank + "_")) {
        left_over_.push_back(info.name);
      } else {
        taken |= options_.world == 1;
      }
      return true;
    }));
    // Whoever removes the last file of a folder removes the folder: an empty one is a version.
    taken |= options_.world == 1 && !left_over && folder_exists(*store_, version_);
    if (done || taken || (!left_over_.empty() && !left_over)) {
      return conflict(store_->url() + "/" + folder_ + ": version " + std::to_string(version_) +
                      " is there");
    }
    begun_ = true;
    return store_->put(note_, MemoryBody(std::string_view()));
  }

  Status add(const TensorSpec& spec, Bytes old_bytes, Bytes new_bytes, ThreadPool* pool) override {
    DW_RETURN_IF_ERROR(order_.next(spec, old_bytes, new_bytes));
    DW_ASSIGN_OR_RETURN(SparseChanges changes,
                        collect_sparse(dtype_bits(spec.dtype) / 8, old_bytes, new_bytes,
                                       options_.encoding != kIndices, pool));
    if (changes.count == 0) return {};
    DW_RETURN_IF_ERROR(refuse_nan(spec, changes));
    const uint64_t size = changes.positions.size() + changes.values.size();
    if (!bucket_.empty() &&
        (bucket_.size_bytes() + size > options_.buffer_bytes || !bucket_.takes(spec.dtype))) {
      DW_RETURN_IF_ERROR(flush());
    }
    bucket_.add(spec, std::move(changes));
    return {};
  }

  Status finish() override {
    DW_RETURN_IF_ERROR(order_.check_all_came());
    if (!bucket_.empty()) DW_RETURN_IF_ERROR(flush());
    // Not earlier: another process may be writing the very same files, and be about to finish.
    std::erase_if(left_over_,
                  [&](const auto& name) { return std::ranges::count(put_, name) != 0; });
    DW_RETURN_IF_ERROR(remove_files(left_over_));
    if (options_.rank == 0) {
      done_tried_ = true;
      DW_RETURN_IF_ERROR(store_->put(done_name(), MemoryBody(std::string_view())));
    }
    finished_ = true;
    static_cast<void>(store_->remove(note_));  // beside DONE it means nothing
    return {};
  }

 private:
  std::string done_name() const { return folder_ + std::string(kDone); }

  Status refuse_nan(const TensorSpec& spec, const SparseChanges& changes) const {
    const std::optional<uint64_t> nan = find_nan(spec.dtype, changes.values);
    if (!nan) return {};
    const SparsePositions positions{changes.positions, changes.position_width,
                                    options_.encoding != kIndices};
    return unsupported(
        "tensor " + quote(spec.name) + ": element " +
        std::to_string(sparse_position(positions, *nan)) +
        " became NaN, which receivers of slime-gen1 drop without an error; way out: " +
        std::string(kWayOut));
  }

  Status flush() {
    DW_ASSIGN_OR_RETURN(const std::vector<uint8_t> file,
                        bucket_.write(options_.encoding, version_));
    put_.push_back(folder_ + file_name(options_.rank, put_.size()));
    return store_->put(put_.back(), MemoryBody(std::span<const uint8_t>(file)));
  }

  Status remove_files(const std::vector<std::string>& names) {
    for (const std::string& name : names) DW_RETURN_IF_ERROR(store_->remove(name));
    return {};
  }

  const std::shared_ptr<Store> store_;
  DraftOrder order_;
  ForeignOptions options_;
  const uint64_t version_;
  const std::string folder_, note_;
  Bucket bucket_;
  std::vector<std::string> put_, left_over_;  // by this writer; by one that was killed
  bool begun_ = false, done_tried_ = false, finished_ = false;
};

}  // namespace

Result<std::unique_ptr<ForeignWriter>> create_version(std::shared_ptr<Store> store,
                                                      const ForeignDraft& draft,
                                                      const ForeignOptions& options) {
  DW_RETURN_IF_ERROR(check_options(options));
  DW_RETURN_IF_ERROR(check_draft(draft));
  auto writer = std::make_unique<Writer>(std::move(store), draft, options);
  DW_RETURN_IF_ERROR(writer->begin());
  return std::unique_ptr<ForeignWriter>(std::move(writer));
}

}  // namespace deltawire::gen1
