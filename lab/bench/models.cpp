#include "lab/bench/models.h"

namespace deltawire::cli {
namespace {

struct ModelForm {
  std::string_view name;
  uint64_t layers, hidden, queries, keys, inner, vocabulary;
  uint64_t experts;  // 0: dense
  bool tied;
};

constexpr ModelForm kModels[] = {
    {"8b", 36, 4096, 4096, 1024, 12288, 151936, 0, false},
    {"1.7b", 28, 2048, 2048, 1024, 6144, 151936, 0, true},
    {"moe", 6, 2048, 4096, 512, 768, 151936, 128, false},
};

}  // namespace

std::vector<std::string> device_models() {
  std::vector<std::string> names;
  for (const ModelForm& shape : kModels) names.emplace_back(shape.name);
  return names;
}

std::vector<uint64_t> tensors_of_model(std::string_view name) {
  std::vector<uint64_t> tensors;
  for (const ModelForm& shape : kModels) {
    if (shape.name != name) continue;
    tensors.push_back(shape.vocabulary * shape.hidden);
    for (uint64_t layer = 0; layer < shape.layers; ++layer) {
      tensors.insert(tensors.end(), {shape.hidden, shape.hidden, 128, 128});  // norms
      tensors.push_back(shape.hidden * shape.queries);
      tensors.push_back(shape.hidden * shape.keys);
      tensors.push_back(shape.hidden * shape.keys);
      tensors.push_back(shape.queries * shape.hidden);
      if (shape.experts != 0) tensors.push_back(shape.hidden * shape.experts);
      for (uint64_t e = 0; e < (shape.experts == 0 ? 1 : shape.experts); ++e) {
        tensors.insert(tensors.end(), 3, shape.hidden * shape.inner);
      }
    }
    tensors.push_back(shape.hidden);
    if (!shape.tied) tensors.push_back(shape.vocabulary * shape.hidden);
  }
  return tensors;
}

}  // namespace deltawire::cli
