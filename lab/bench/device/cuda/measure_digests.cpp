#include <fmt/format.h>

#include <algorithm>

#include "lab/bench/device/cuda/measures.h"
#include "lab/bench/device/cuda/public_arrays.h"

namespace deltawire::cli {

Status measure_digests(DeviceModel* model) {
  DW_ASSIGN_OR_RETURN(cuda::Context context, make_context(*model));
  std::vector<cuda::Contents> arrays;
  for (size_t i = 0; i < model->sizes.size(); ++i) {
    arrays.push_back({public_pair(*model, i).after, DType::kBF16, model->sizes[i] * 2});
  }
  const double longest = 2 * double(*std::max_element(model->sizes.begin(), model->sizes.end()));
  for (const DigestKind kind : {DigestKind::kXxh3_128, DigestKind::kSum128}) {
    DW_ASSIGN_OR_RETURN(const double time, model->best([&] {
      return context.digests(kind, arrays, nullptr).status();
    }));
    const std::string chain = kind == DigestKind::kXxh3_128
                                  ? fmt::format("the longest chain, {:.2f} GB, at {:.1f} ns a KiB",
                                                longest * 1e-9, time * 1e6 / (longest / 1024))
                                  : "";
    model->rows.push_back(
        {fmt::format("digests, {}", digest_name(kind)), time, model->read_both / 2, chain});
  }
  return {};
}

}  // namespace deltawire::cli
