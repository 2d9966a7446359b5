
#include <algorithm>
#include <array>
#include <filesystem>

#include "base/folder.h"
#include "dialect/trl/sparse_changes.h"
#include "dialect/trl/trl_format.h"
#include "store/bodies.h"
#include "tensor/safetensors_writer.h"
#include "tensor/text.h"

namespace deltawire::trl {
namespace {

constexpr std::array kEncodings = {kGapDelta, kRaw, kV1};

Patch patch_of(const ForeignDraft& draft, std::string_view encoding) {
  Patch patch;
  patch.sparse = !draft.full;
  patch.model_version = draft.version;
  patch.encoding = encoding;
  return patch;
}

Result<uint64_t> elements_of(const std::vector<TensorSpec>& tensors) {
  uint64_t sum = 0;
  for (const TensorSpec& spec : tensors) {
    DW_ASSIGN_OR_RETURN(const uint64_t elements, num_elements(spec.shape));
    if (!checked_add(sum, elements, &sum)) return invalid_argument("over 2^64 elements");
  }
  return sum;
}

// Writes the changes into one file, held in memory until finish().
class DeltaWriter final : public ForeignWriter {
 public:
  DeltaWriter(std::shared_ptr<Store> store, const ForeignDraft& draft, std::string_view encoding,
              uint64_t total_elements)
      : store_(std::move(store)), order_(draft), patch_(patch_of(draft, encoding)) {
    patch_.total_elements = std::max(total_elements, draft.model_elements);
  }

  Status add(const TensorSpec& spec, Bytes old_bytes, Bytes new_bytes, ThreadPool* pool) override {
    DW_RETURN_IF_ERROR(order_.next(spec, old_bytes, new_bytes));
    DW_ASSIGN_OR_RETURN(SparseChanges changes,
                        collect_sparse(dtype_bits(spec.dtype) / 8, old_bytes, new_bytes,
                                       patch_.encoding == kGapDelta, pool));
    if (changes.count == 0) return {};
    const Suffixes suffixes = patch_.v1() ? kSuffixesV1 : kSuffixesV3;
    const DType narrow = changes.position_width == 2 ? DType::kU16 : DType::kU32;
    const DType positions = patch_.encoding == kGapDelta ? narrow : DType::kI32;
    patch_.num_changed_params += 1;
    patch_.total_changed_elements += changes.count;
    patch_.changed_params.push_back(spec.name);
    keep(spec.name, suffixes.positions, positions, changes.count, std::move(changes.positions));
    keep(spec.name, suffixes.values, spec.dtype, changes.count, std::move(changes.values));
    return {};
  }

  Status finish() override {
    DW_RETURN_IF_ERROR(order_.check_all_added());
    return put_held(*store_, file_name(kDeltas, patch_.model_version), std::move(tensors_),
                    patch_metadata(patch_));
  }

 private:
  void keep(const std::string& name, std::string_view suffix, DType dtype, uint64_t count,
            std::vector<uint8_t> bytes) {
    tensors_.push_back({{name + std::string(suffix), dtype, {count}}, std::move(bytes)});
  }

  const std::shared_ptr<Store> store_;
  DraftOrder order_;
  Patch patch_;
  std::vector<HeldTensor> tensors_;
};

// A full version may be larger than memory, so it is spooled to a file: in a local folder to the
// file itself, which appears by rename; for other stores to the system's temporary folder.
class AnchorWriter final : public ForeignWriter {
 public:
  AnchorWriter(std::shared_ptr<Store> store, const ForeignDraft& draft)
      : store_(std::move(store)),
        order_(draft),
        name_(file_name(kAnchors, draft.version)),
        spooled_(store_->local_folder().empty()),
        path_(spooled_ ? temporary_path(std::filesystem::temp_directory_path() / "trl-anchor")
                       : std::filesystem::path(store_->local_folder()) / name_) {}

  ~AnchorWriter() override {
    std::error_code ignored;
    if (spooled_) std::filesystem::remove(path_, ignored);
  }

  Status begin(const ForeignDraft& draft, Patch patch, uint64_t elements) {
    patch.num_changed_params = draft.tensors.size();
    patch.total_changed_elements = patch.total_elements = elements;
    for (const TensorSpec& spec : draft.tensors) patch.changed_params.push_back(spec.name);
    if (!spooled_) {
      DW_RETURN_IF_ERROR(make_folder(path_.parent_path()));
      remove_stale_temporaries(path_);  // of killed writers; each is as large as the model
    }
    DW_ASSIGN_OR_RETURN(SafetensorsWriter file,
                        SafetensorsWriter::create(path_, draft.tensors, patch_metadata(patch)));
    file_.emplace(std::move(file));
    return {};
  }

  Status add(const TensorSpec& spec, Bytes old_bytes, Bytes new_bytes, ThreadPool*) override {
    DW_RETURN_IF_ERROR(order_.next(spec, old_bytes, new_bytes));
    return file_->write_tensor(spec.name, new_bytes);
  }

  Status finish() override {
    DW_RETURN_IF_ERROR(order_.check_all_added());
    DW_RETURN_IF_ERROR(file_->commit());
    if (!spooled_) return {};
    DW_ASSIGN_OR_RETURN(auto mapped, MappedFile::open(path_));
    return store_->put(name_, *file_body(std::move(mapped)));
  }

 private:
  const std::shared_ptr<Store> store_;
  DraftOrder order_;
  const std::string name_;
  const bool spooled_;
  const std::filesystem::path path_;
  std::optional<SafetensorsWriter> file_;
};

Status check_free(Store& store, uint64_t version) {
  for (const std::string_view folder : {kAnchors, kDeltas}) {
    const auto info = store.stat(file_name(folder, version));
    if (info.ok()) {
      return conflict(store.url() + "/" + info.value().name + ": version " +
                      std::to_string(version) + " is there");
    }
    if (info.status().code() != Code::kNotFound) return info.status();
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ForeignWriter>> create_version(std::shared_ptr<Store> store,
                                                      const ForeignDraft& draft,
                                                      const ForeignOptions& options) {
  const std::string encoding = options.encoding.empty() ? std::string(kGapDelta) : options.encoding;
  if (std::ranges::count(kEncodings, encoding) == 0) {
    return invalid_argument("encoding " + quote(encoding) + ": trl has gap_delta, raw and v1");
  }
  if (!options.checksum.empty()) {
    return invalid_argument("checksum " + quote(options.checksum) + ": trl has none");
  }
  DW_ASSIGN_OR_RETURN(const uint64_t elements, elements_of(draft.tensors));
  if (!draft.full) DW_RETURN_IF_ERROR(check_sparse_draft(draft));
  DW_RETURN_IF_ERROR(check_free(*store, draft.version));
  if (!draft.full) {
    return std::unique_ptr<ForeignWriter>(
        std::make_unique<DeltaWriter>(std::move(store), draft, encoding, elements));
  }
  auto anchor = std::make_unique<AnchorWriter>(std::move(store), draft);
  DW_RETURN_IF_ERROR(anchor->begin(draft, patch_of(draft, encoding), elements));
  return std::unique_ptr<ForeignWriter>(std::move(anchor));
}

}  // namespace deltawire::trl
