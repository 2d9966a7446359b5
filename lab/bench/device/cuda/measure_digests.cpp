#include "lab/bench/device/cuda/measures.h"
#include "lab/bench/device/cuda/public_arrays.h"

namespace deltawire::cli {

Status measure_digests(DeviceModel* model) {
  DW_ASSIGN_OR_RETURN(cuda::Context context, make_context(*model));
  std::vector<cuda::Contents> arrays;
  for (size_t i = 0; i < model->sizes.size(); ++i) {
    arrays.push_back({public_pair(*model, i).after, DType::kBF16, model->sizes[i] * 2});
  }
  DW_ASSIGN_OR_RETURN(const double time,
                      model->best([&] { return context.digests(arrays, nullptr).status(); }));
  model->rows.push_back({"digests", time, model->read_both / 2, ""});
  return {};
}

}  // namespace deltawire::cli
