// Compares a checkpoint with another project's version.
#include <algorithm>

#include "base/file.h"
#include "base/waves.h"
#include "bridge/foreign.h"
#include "delta/delta_writer.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// Whether a tensor equals what the version makes of it.
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
