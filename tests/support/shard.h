// The part of a sharded model that one rank holds.
#pragma once

#include "deltawire/tensor.h"
#include "support/published_model.h"

namespace deltawire::testing {

// The shard of one rank of `world`: rows of most matrices, columns of one, and whole vectors on
// some ranks.
class Shard {
 public:
  Shard(const Model& model, unsigned rank, unsigned world) {
    for (size_t i = 0; i < model.tensors.size(); ++i) {
      const TestTensor& tensor = model.tensors[i];
      if (tensor.shape.size() < 2) {
        if (i % world == rank)
          views_.push_back({{tensor.name, tensor.dtype, tensor.shape, tensor.bytes}, {}});
        continue;
      }
      const size_t split = tensor.name == "layer.0.up" ? 1 : 0;
      Box box{Shape(tensor.shape.size(), 0), tensor.shape};
      const uint64_t begin = tensor.shape[split] * rank / world;
      box.offset[split] = begin;
      box.extent[split] = tensor.shape[split] * (rank + 1) / world - begin;
      auto contents = std::make_unique<std::vector<uint8_t>>(
          tensor_size_bytes(tensor.dtype, box.extent).value());
      copy_box_out(box, tensor.dtype, tensor.shape, tensor.bytes, *contents);
      views_.push_back({{tensor.name, tensor.dtype, tensor.shape, *contents}, box});
      contents_.push_back(std::move(contents));
    }
  }
  const std::vector<PublishTensor>& views() const { return views_; }

 private:
  std::vector<std::unique_ptr<std::vector<uint8_t>>> contents_;
  std::vector<PublishTensor> views_;
};

}  // namespace deltawire::testing
