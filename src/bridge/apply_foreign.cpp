// Another project's version on a checkpoint in files.
#include <algorithm>

#include "base/file.h"
#include "base/waves.h"
#include "bridge/foreign.h"
#include "bridge/patch.h"
#include "delta/output.h"
#include "tensor/form.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// The result has the files and tensors of the base; a version that is whole has to bring those.
Status check_same_tensors(const ForeignInfo& info, const Checkpoint& base) {
  DW_RETURN_IF_ERROR(check_fits(info, base));
  if (!info.full) return {};
  for (const ForeignTensor& tensor : info.tensors) {
    const CheckpointTensor* const held = base.find(tensor.name);
    if (held == nullptr || held->view.dtype != *tensor.dtype || held->view.shape != *tensor.shape) {
      return base_mismatch("version " + std::to_string(info.version) + " is whole and has tensor " +
                           quote(tensor.name) + " as " + form_of(*tensor.dtype, *tensor.shape) +
                           ", which the checkpoint has not: it is a checkpoint by itself, copy it");
    }
  }
  if (info.tensors.size() == base.tensors().size()) return {};
  return base_mismatch("version " + std::to_string(info.version) + " is whole and has " +
                       std::to_string(info.tensors.size()) + " tensors, the checkpoint has " +
                       std::to_string(base.tensors().size()) +
                       ": it is a checkpoint by itself, copy it");
}

class ForeignApply {
 public:
  ForeignApply(const ForeignVersion& version, const Checkpoint& base, const ApplyOptions& options)
      : version_(version), base_(base), options_(options), pool_(options.threads) {}

  Result<ApplyReport> run(const fs::path& out) {
    DW_RETURN_IF_ERROR(check_same_tensors(version_.info(), base_));
    std::error_code error;
    const bool folder = fs::is_directory(base_.path(), error);
    if (folder) DW_RETURN_IF_ERROR(refuse_input(out, base_.path(), {}));
    DW_ASSIGN_OR_RETURN(const fs::path target,
                        prepare_output(out, folder ? OutputForm::kFolder : OutputForm::kFile));
    if (!folder) {
      DW_ASSIGN_OR_RETURN(MutableFile made, build(base_.files()[0], target, out));
      DW_RETURN_IF_ERROR(made.commit());
      return report();
    }
    DW_ASSIGN_OR_RETURN(const fs::path temporary, create_temporary_folder(target));
    Status status = build_folder(temporary, out);
    if (status.ok()) status = publish_temporary_folder(temporary, target);
    if (!status.ok()) {
      remove_temporary_folder(temporary);
      return status;
    }
    return report();
  }

 private:
  Result<MutableFile> build(const CheckpointFile& file, const fs::path& path,
                            const fs::path& shown) {
    DW_ASSIGN_OR_RETURN(MutableFile made, MutableFile::create(path, file.bytes.size(), shown));
    std::copy(file.header.begin(), file.header.end(), made.bytes().begin());
    std::vector<uint64_t> sizes;
    for (const size_t tensor : file.tensors) {
      sizes.push_back(base_.tensors()[tensor].view.bytes.size());
    }
    Status status = Waves(sizes, Waves::Inside::kShared, &pool_, options_.progress)
                        .run([&](size_t i, ThreadPool* inner) {
                          const CheckpointTensor& tensor = base_.tensors()[file.tensors[i]];
                          return build_tensor(tensor, made.bytes(), inner);
                        });
    DW_RETURN_IF_ERROR(version_.check_unchanged());
    DW_RETURN_IF_ERROR(base_.check_unchanged());
    DW_RETURN_IF_ERROR(std::move(status));
    return made;
  }

  Status build_tensor(const CheckpointTensor& tensor, MutableBytes file, ThreadPool* inner) {
    const TensorView& view = tensor.view;
    const MutableBytes out = file.subspan(tensor.offset, view.bytes.size());
    std::ranges::copy(view.bytes, out.begin());
    const auto& named = version_.info().tensors;
    const auto found = std::ranges::lower_bound(named, view.name, {}, &ForeignTensor::name);
    if (found == named.end() || found->name != view.name) return {};
    return version_.apply(size_t(found - named.begin()), view, out, inner);
  }

  Status build_folder(const fs::path& temporary, const fs::path& shown) {
    std::error_code error, ignored;
    for (const auto& item : fs::directory_iterator(base_.path(), error)) {
      const std::string name = item.path().filename().string();
      const auto files = base_.files();
      const auto file = std::ranges::find(files, name, &CheckpointFile::name);
      if (file != files.end()) {
        DW_ASSIGN_OR_RETURN(MutableFile made, build(*file, temporary / name, shown / name));
        DW_RETURN_IF_ERROR(made.commit());
      } else if (item.is_regular_file(ignored)) {
        fs::copy_file(item.path(), temporary / name, error);
        if (error) {
          return io_error((shown / name).string() + ": cannot copy: " + error.message());
        }
      }
    }
    if (error) return io_error(base_.path().string() + ": cannot list: " + error.message());
    return {};
  }

  ApplyReport report() const {
    ApplyReport report;
    report.num_tensors = base_.tensors().size();
    report.num_patched = version_.info().tensors.size();
    report.weights_bytes = base_.data_bytes();
    report.target_known = false;
    return report;
  }

  const ForeignVersion& version_;
  const Checkpoint& base_;
  const ApplyOptions& options_;
  ThreadPool pool_;
};

// Whether a tensor is what the version makes of it.
Result<bool> leads_to(const ForeignVersion& version, size_t index, const TensorView& view) {
  const ForeignTensor& tensor = version.info().tensors[index];
  if (tensor.checksum && !version.info().full) {
    return checksum_of(tensor.checksum->kind, view.bytes) == *tensor.checksum;
  }
  std::vector<uint8_t> copy(view.bytes.begin(), view.bytes.end());
  DW_RETURN_IF_ERROR(version.apply(index, view, copy, nullptr));
  return std::ranges::equal(copy, view.bytes);
}

}  // namespace

Result<ApplyReport> apply_foreign(const ForeignPath& delta, const fs::path& base_path,
                                  const fs::path& out, const ApplyOptions& options) {
  DW_ASSIGN_OR_RETURN(const auto version, open_foreign(delta));
  DW_ASSIGN_OR_RETURN(const Checkpoint base, open_checkpoint(base_path));
  DW_RETURN_IF_ERROR(refuse_input(out, delta.root, {}));
  return guard_memory("applying", [&] { return ForeignApply(*version, base, options).run(out); });
}

Result<VerifyReport> verify_foreign(const ForeignPath& path, const fs::path& checkpoint,
                                    const ApplyOptions& options) {
  DW_ASSIGN_OR_RETURN(const auto version, open_foreign(path));
  DW_ASSIGN_OR_RETURN(const Checkpoint held, open_checkpoint(checkpoint));
  const auto& named = version->info().tensors;
  VerifyReport report;
  report.num_tensors = named.size();
  std::vector<uint64_t> sizes(named.size());
  std::vector<std::string> wrong(named.size());
  for (size_t i = 0; i < named.size(); ++i) {
    const CheckpointTensor* const tensor = held.find(named[i].name);
    if (tensor == nullptr) {
      wrong[i] = "not in " + checkpoint.string();
      continue;
    }
    sizes[i] = tensor->view.bytes.size();
    report.weights_bytes += sizes[i];
    DW_ASSIGN_OR_RETURN(const uint64_t elements, num_elements(tensor->view.shape));
    report.num_elements += elements;
  }
  ThreadPool pool(options.threads);
  Status status = Waves(sizes, Waves::Inside::kOneThread, &pool, options.progress)
                      .run([&](size_t i, ThreadPool*) -> Status {
                        if (!wrong[i].empty()) return {};
                        DW_ASSIGN_OR_RETURN(const bool same,
                                            leads_to(*version, i, held.find(named[i].name)->view));
                        if (!same)
                          wrong[i] =
                              "is not what version " + std::to_string(*path.version) + " makes";
                        return {};
                      });
  DW_RETURN_IF_ERROR(version->check_unchanged());
  DW_RETURN_IF_ERROR(held.check_unchanged());
  DW_RETURN_IF_ERROR(std::move(status));
  for (size_t i = 0; i < named.size(); ++i) {
    if (!wrong[i].empty()) report.differences.push_back({named[i].name, wrong[i], 0, 0, {}});
  }
  if (!version->info().full) return report;
  for (const CheckpointTensor& tensor : held.tensors()) {  // a whole version has all there are
    const std::string& name = tensor.view.name;
    if (std::ranges::binary_search(named, name, {}, &ForeignTensor::name)) continue;
    ++report.num_tensors;
    report.differences.push_back({name, "only in " + checkpoint.string(), 0, 0, {}});
  }
  std::ranges::sort(report.differences, {}, &TensorDifference::tensor);
  return report;
}

}  // namespace deltawire
